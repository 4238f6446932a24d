"""Tests the progress bar: what it shows, where, and that training does not change."""

from __future__ import annotations

import importlib
import io
import sys

import pytest

import pycaffe_lms as caffe
from pycaffe_lms import progress

from .solvers.helpers import GAUSSIAN, bits, inner, loss, solver_text

NET = GAUSSIAN + inner() + loss()


class Terminal(io.StringIO):
    def isatty(self):
        return True


class Pictures:
    """Note what a bar is asked to show."""

    def __init__(self):
        self.shown, self.closed = [], 0

    def show(self, done, words):
        self.shown.append((done, words))

    def close(self):
        self.closed += 1


@pytest.fixture
def solver(tmp_path):
    def make(**options):
        path = tmp_path / "s.prototxt"
        path.write_text(solver_text(NET, **{"max_iter": 4, "momentum": 0.9} | options))
        return caffe.SGDSolver(path)

    return make


@pytest.fixture
def without_rich(monkeypatch):
    for name in ("rich", "rich.console", "rich.progress"):
        monkeypatch.setitem(sys.modules, name, None)


def test_a_picture_of_every_iteration_when_there_is_time(solver, monkeypatch):
    """It shows the iterations done and the mean of the last losses; training is the same to the bit."""
    clock = iter(range(100))
    monkeypatch.setattr(progress.time, "monotonic", lambda: float(next(clock)))
    plain, watched, bar = solver(average_loss=2), solver(average_loss=2), Pictures()
    losses = [plain.step(1) or plain.net.loss() for _ in range(4)]
    before = watched.around_iteration
    with progress.shown(watched, bar):
        watched.step(4)
    assert watched.around_iteration is before and bar.closed == 1
    means = [sum(losses[max(0, k - 1) : k + 1]) / min(2, k + 1) for k in range(4)]
    expected = [(0, ""), *((k + 1, f"loss {mean:.4g}") for k, mean in enumerate(means))]
    assert bar.shown == [*expected, expected[-1]]
    assert bits(watched) == bits(plain)


def test_no_more_than_ten_pictures_a_second(solver, monkeypatch):
    clock = iter(k * 0.03 for k in range(1000))
    monkeypatch.setattr(progress.time, "monotonic", lambda: next(clock))
    watched, bar = solver(), Pictures()
    with progress.shown(watched, bar):
        watched.step(40)
    # The solver itself looks at the clock when it starts; each iteration takes 0.03 s: every fourth one is shown.
    assert [done for done, _ in bar.shown] == [0, *range(1, 41, 4), 40]


def test_closed_after_an_error_too(solver):
    watched, bar = solver(), Pictures()
    watched.add_callback(lambda: 1 / 0, lambda: None)
    before = watched.around_iteration
    with pytest.raises(ZeroDivisionError), progress.shown(watched, bar):
        watched.step(1)
    assert bar.closed == 1 and watched.around_iteration is before


@pytest.mark.usefixtures("without_rich")
def test_plain():
    stream = Terminal()
    bar = progress.make_bar("lenet", 300, stream)
    assert isinstance(bar, progress.PlainBar)
    bar.show(0, "")
    bar.show(150, "loss 0.123456")
    bar.show(300, "x")
    bar.close()
    lines = stream.getvalue().split("\r")
    assert lines[1] == f"lenet [{'.' * 30}] 0/300  "
    assert lines[2] == f"lenet [{'#' * 15}{'.' * 15}] 150/300  loss 0.123456"
    assert lines[3].rstrip() == f"lenet [{'#' * 30}] 300/300  x"
    assert len(lines[3]) == len(lines[2]) + 1, "what was longer is wiped out; then comes the end of the line"


@pytest.mark.usefixtures("without_rich")
def test_plain_where_nobody_looks():
    assert progress.make_bar("lenet", 3, io.StringIO()) is None
    assert isinstance(progress.make_bar("lenet", 3, io.StringIO(), always=True), progress.PlainBar)


@pytest.mark.usefixtures("without_rich")
def test_plain_in_a_notebook(monkeypatch):
    shell = type("ZMQInteractiveShell", (), {})()
    monkeypatch.setitem(sys.modules, "IPython", type("IPython", (), {"get_ipython": staticmethod(lambda: shell)}))
    assert isinstance(progress.make_bar("lenet", 3, io.StringIO()), progress.PlainBar)


@pytest.mark.parametrize("widgets", [False, True])
def test_rich_in_a_notebook(monkeypatch, widgets):
    """Without ipywidgets rich shows no bar, but a warning for every picture."""
    pytest.importorskip("rich")
    console = type("Console", (), {"is_jupyter": True, "is_terminal": False})
    monkeypatch.setattr("rich.console.Console", lambda **options: console())
    monkeypatch.setattr(progress, "RichBar", lambda rich, title, total, console: "rich")
    monkeypatch.setattr(progress.importlib.util, "find_spec", lambda name: widgets or None)
    bar = progress.make_bar("lenet", 3, io.StringIO())
    assert bar == "rich" if widgets else isinstance(bar, progress.PlainBar)


def test_with_rich(monkeypatch):
    pytest.importorskip("rich")
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "120")
    stream = io.StringIO()
    assert progress.make_bar("lenet", 3, stream) is None
    bar = progress.make_bar("lenet", 30, stream, always=True)
    assert isinstance(bar, progress.RichBar)
    bar.show(12, "loss 0.5")
    bar.close()
    text = stream.getvalue()
    assert "lenet" in text and "12/30" in text and "loss 0.5" in text


@pytest.mark.usefixtures("without_rich")
@pytest.mark.parametrize(
    ("terminal", "asked", "seen"), [(True, None, True), (True, False, False), (False, None, False), (False, True, True)]
)
def test_solve_shows_it(terminal, asked, seen, solver, monkeypatch):
    stream = Terminal() if terminal else io.StringIO()
    monkeypatch.setattr(sys, "stderr", stream)
    solver().solve(progress=asked)
    assert ("] 4/4  loss " in stream.getvalue()) == seen == bool(stream.getvalue())


def test_the_module_needs_nothing():
    """rich is imported when a bar is made."""
    assert "rich" not in importlib.import_module("pycaffe_lms.progress").__dict__
