"""Following a run: what is said before training, who gets a display, watchers that fail."""

from __future__ import annotations

import sys
from types import SimpleNamespace

import pytest

from pycaffe_lms.cli import terminal, watcher
from pycaffe_lms.errors import CaffeError, MissingDependency, UsageError

from ..solvers.helpers import make
from .watching import NET


@pytest.mark.parametrize(("package", "argv", "extra"), [("tensorboardX", ("-tensorboard", "tb"), "tensorboard"),
                                                        ("matplotlib.figure", ("-plot", "p.png"), "plot"),
                                                        ("rich", ("-progress", "bar"), "progress")])  # fmt: skip
def test_a_missing_package_is_said_first(package, argv, extra, train, monkeypatch):
    monkeypatch.setitem(sys.modules, package, None)
    code, log = train(*argv)
    assert code == MissingDependency("", "").exit_code != 0
    assert argv[0] in log and f"pip install 'pycaffe-lms[{extra}]'" in log and "Solving" not in log


@pytest.mark.parametrize(("argv", "message"), [(("-metrics", "no/m.jsonl"), "-metrics no/m.jsonl: no file can be"),
                                               (("-plot", "no/p.png"), "-plot no/p.png: no file can be written"),
                                               (("-plot", "p.pdf"), "-plot p.pdf: pictures are .png or .svg"),
                                               (("-tensorboard", "solver.prototxt"), "-tensorboard s")])  # fmt: skip
def test_a_wrong_place_is_said_first(argv, message, train):
    pytest.importorskip("matplotlib")
    pytest.importorskip("tensorboardX")
    code, log = train(*argv)
    assert code == UsageError("").exit_code and message in log and "Solving" not in log


@pytest.mark.parametrize(("mode", "tty", "bar"), [("auto", True, True), ("auto", False, False), ("log", True, False),
                                                  ("bar", False, True)])  # fmt: skip
def test_modes(mode, tty, bar, monkeypatch):
    pytest.importorskip("rich")
    monkeypatch.setattr(sys, "stderr", SimpleNamespace(isatty=lambda: tty))
    assert terminal.wants_bar(mode) is bar


def test_watchers_are_stopped_whatever_happens():
    told = []

    class One(watcher.Watcher):
        def __init__(self, name):
            self.name = name

        def start(self, solver):
            told.append(f"start {self.name}")
            if self.name == "b":
                raise CaffeError("b cannot")

        def stop(self):
            told.append(f"stop {self.name}")

    solver = make(NET)
    with pytest.raises(CaffeError, match="b cannot"), watcher.watched(solver, [One("a"), One("b"), One("c")]):
        pass
    assert told == ["start a", "start b", "stop b", "stop a"] and not solver.observers
