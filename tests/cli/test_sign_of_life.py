"""A command that works for long says so on stderr: a line that counts in a terminal, one plain line elsewhere."""

from __future__ import annotations

import io
import sys
import time

import pytest

from pycaffe_lms.cli import sign_of_life
from pycaffe_lms.cli.main import main
from pycaffe_lms.cli.sign_of_life import SignOfLife

from .nets import NET, write


class Stream(io.StringIO):
    def __init__(self, terminal):
        super().__init__()
        self.isatty = lambda: terminal

    def wait_for(self, text):
        deadline = time.monotonic() + 60
        while text not in self.getvalue():
            assert time.monotonic() < deadline, self.getvalue()
            time.sleep(0.001)


@pytest.fixture
def soon(monkeypatch):
    monkeypatch.setattr(sign_of_life, "_AFTER", 0.0)
    monkeypatch.setattr(sign_of_life, "_EVERY", 0.001)


def test_one_line_where_nobody_watches(soon, monkeypatch):
    monkeypatch.setattr(sys, "stderr", stream := Stream(False))
    with SignOfLife("planning x") as sign:
        stream.wait_for("\n")
        sign.clear()
    assert stream.getvalue() == "planning x ...\n"


def test_a_line_that_counts_and_vanishes_in_a_terminal(soon, monkeypatch):
    monkeypatch.setattr(sys, "stderr", stream := Stream(True))
    with SignOfLife("planning x"):
        stream.wait_for("\rplanning x ... 0 s\rplanning x")
    shown, blank, rest = stream.getvalue().rsplit("\r", 2)
    assert blank == " " * len(shown.rsplit("\r", 1)[1]) and rest == "" and "\n" not in stream.getvalue()


def test_nothing_is_said_of_work_that_ends_soon(monkeypatch):
    monkeypatch.setattr(sign_of_life, "_AFTER", 3600.0)
    monkeypatch.setattr(sys, "stderr", stream := Stream(True))
    with SignOfLife("planning x"):
        pass
    assert stream.getvalue() == ""


def test_an_error_stands_on_a_line_of_its_own(soon, tmp_path, monkeypatch):
    model = str(write(tmp_path, NET, ('"ReLU"', '"Relu"')))
    monkeypatch.setattr(sys, "stderr", stream := Stream(True))
    assert main(["plan", "-model", model, "-cache", "off"]) == 1
    last = stream.getvalue().rsplit("\r", 1)[-1]
    assert last.startswith("error: ") and "Relu" in last
