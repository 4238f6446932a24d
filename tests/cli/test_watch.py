"""Following a run: what is said before training, who gets a display, watchers that fail."""

from __future__ import annotations

import errno
import os
import re
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from pycaffe_lms.cli import terminal
from pycaffe_lms.cli.live import watcher
from pycaffe_lms.errors import CaffeError, MissingDependency, UsageError

from ..solvers.helpers import make
from .watching import NET


@pytest.mark.parametrize(
    ("package", "argv", "extra"),
    [
        ("tensorboardX", ("-tensorboard", "tb"), "tensorboard"),
        ("matplotlib.figure", ("-plot", "p.png"), "plot"),
        ("rich", ("-progress", "bar"), "progress"),
    ],
)
def test_a_missing_package_is_said_first(package, argv, extra, train, monkeypatch):
    monkeypatch.setitem(sys.modules, package, None)
    code, log = train(*argv)
    assert code == MissingDependency("", "").exit_code != 0
    assert argv[0] in log and f"pip install 'pycaffe-lms[{extra}]'" in log and "Solving" not in log


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (("-metrics", "no/m.jsonl"), "-metrics no/m.jsonl: no file can be"),
        (("-plot", "no/p.png"), "-plot no/p.png: no file can be written"),
        (("-plot", "p.pdf"), "-plot p.pdf: pictures are .png or .svg"),
        (("-tensorboard", "solver.prototxt"), "-tensorboard s"),
    ],
)
def test_a_wrong_place_is_said_first(argv, message, train):
    pytest.importorskip("matplotlib")
    pytest.importorskip("tensorboardX")
    code, log = train(*argv)
    assert code == UsageError("").exit_code and message in log and "Solving" not in log


@pytest.mark.parametrize(
    ("mode", "tty", "bar"), [("auto", True, True), ("auto", False, False), ("log", True, False), ("bar", False, True)]
)
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


def _no_room(monkeypatch, words: str, after: int = 0) -> list[int]:
    """From now on files whose name has these words take `after` more writes; returns what was refused."""
    real, left, refused = os.write, [after], []

    def write(file, data):
        if words in os.readlink(f"/proc/self/fd/{file}"):
            left[0] -= 1
            if left[0] < 0:
                refused.append(len(data))
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return real(file, data)

    monkeypatch.setattr(os, "write", write)
    return refused


@pytest.mark.skipif(not Path("/proc/self/fd").is_dir(), reason="files by their number")
@pytest.mark.parametrize(
    ("package", "flag", "place", "words"),
    [(None, "-metrics", "m.jsonl", "m.jsonl"), ("tensorboardX", "-tensorboard", "tb", "tfevents")],
)
@pytest.mark.parametrize("after", [0, 2])
def test_a_full_disk_ends_the_log_and_not_the_training(
    package, flag, place, words, after, train, monkeypatch, tmp_path
):
    """One warning, and nothing is tried again; the snapshot of a later iteration is there."""
    if package:
        pytest.importorskip(package)
    refused = _no_room(monkeypatch, words, after)
    code, log = train(flag, place, snapshot_after_train="true")
    assert code == 0 and "Optimization Done." in log and len(refused) == 1
    warnings = re.findall(
        rf"^W.*{words}.*: cannot be written: No space left on device;.*training goes on.*$", log, re.M
    )
    assert len(warnings) == 1
    assert (tmp_path / "s_iter_6.solverstate").exists()


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="a device without room")
def test_a_device_without_room(train, tmp_path):
    code, log = train("-metrics", "/dev/full", snapshot_after_train="true")
    assert code == 0 and log.count("/dev/full: cannot be written: No space left on device") == 1
    assert (tmp_path / "s_iter_6.solverstate").exists()


def test_a_picture_that_cannot_be_written(train, tmp_path, monkeypatch):
    pytest.importorskip("matplotlib")
    (tmp_path / "pictures").mkdir()
    real = os.replace

    def replace(part, target):
        if str(target).endswith(".png"):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        real(part, target)

    monkeypatch.setattr(os, "replace", replace)
    code, log = train("-plot", "pictures/p.png")
    assert code == 0 and "p.png: cannot be written: No space left on device" in log
    assert not list((tmp_path / "pictures").iterdir())


def test_other_mistakes_of_a_watcher_are_not_hidden():
    class Wrong(watcher.Watcher):
        def on_display(self, display):
            raise ZeroDivisionError

    solver = make(NET, display=1)
    with pytest.raises(ZeroDivisionError), watcher.watched(solver, [Wrong()]):
        solver.step(1)
