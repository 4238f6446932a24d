"""Tests SIGINT, SIGHUP and SIGTERM as a user sends them: to `python -m pycaffe_lms train` in a process of its own."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from contextlib import contextmanager
from pathlib import Path

import pytest

import pycaffe_lms
from pycaffe_lms.cli.commands.train import Signals
from pycaffe_lms.formats.weights.solverstate import read_solverstate

from .helpers import GAUSSIAN, inner, loss, make, solver_text

pytestmark = pytest.mark.skipif(not hasattr(signal, "SIGHUP"), reason="signals as POSIX has them")

NET = GAUSSIAN + inner() + loss()
SECONDS = 60  # far more than anything here takes
ITERATION = re.compile(r"\] Iteration (\d+) \(.*loss = ")


class Training:
    """Hold a running training and its log."""

    def __init__(self, folder: Path, process: subprocess.Popen):
        self.folder, self.process = folder, process

    def log(self) -> str:
        return (self.folder / "log").read_text()

    def iteration(self) -> int:
        """Return the last iteration in the log; -1 before the first."""
        return max((int(k) for k in ITERATION.findall(self.log())), default=-1)

    def wait_for(self, condition, what: str) -> None:
        end = time.monotonic() + SECONDS
        while not condition():
            assert self.process.poll() is None, f"ended before {what}:\n{self.log()}"
            assert time.monotonic() < end, f"no {what} in {SECONDS} s:\n{self.log()}"
            time.sleep(0.02)

    def send(self, number: int) -> None:
        """Send a signal once training has begun."""
        self.wait_for(lambda: self.iteration() >= 0, "iteration")
        self.process.send_signal(number)

    def goes_on(self) -> None:
        """Wait for at least one more display."""
        now = self.iteration()
        self.wait_for(lambda: self.iteration() > now, f"iteration after {now}")

    def finish(self) -> int:
        return self.process.wait(SECONDS)

    def wait_for_snapshots(self, n: int) -> None:
        """Wait until so many snapshots are whole: they are written beside the training."""
        self.wait_for(
            lambda: len(list(self.folder.glob("*.solverstate"))) >= n and not list(self.folder.glob(".*")),
            f"snapshot {n}",
        )

    def snapshots(self) -> list[int]:
        """Return the iterations whose model and state are both there; check that there are no other files."""
        states = [int(p.stem.rsplit("_", 1)[1]) for p in self.folder.glob("*.solverstate")]
        models = [int(p.stem.rsplit("_", 1)[1]) for p in self.folder.glob("*.caffemodel")]
        assert sorted(models) == sorted(states) and not list(self.folder.glob(".*"))
        return sorted(states)


@contextmanager
def training(folder: Path, *argv: str, **options):
    """Run `pycaffe-lms train` on a small net that would take very long; kill it if a test leaves it running."""
    options = {"max_iter": 10**9, "display": 20, "snapshot_after_train": "true", "momentum": 0.9} | options
    (folder / "s.prototxt").write_text(solver_text(NET, **options))
    path = os.pathsep.join(filter(None, [str(Path(pycaffe_lms.__file__).parents[1]), os.environ.get("PYTHONPATH")]))
    command = [sys.executable, "-m", "pycaffe_lms", "train", "-solver", "s.prototxt", "-backend", "cpu", *argv]
    with open(folder / "log", "w") as log:
        process = subprocess.Popen(command, cwd=folder, env={**os.environ, "PYTHONPATH": path}, stderr=log)
    try:
        yield Training(folder, process)
    finally:
        process.kill()
        process.wait(SECONDS)


def _last_messages(run: Training, n: int) -> list[str]:
    return [line.split("] ", 1)[1] for line in run.log().splitlines()[-n:]]


def test_sigint_stops_with_a_snapshot_that_resumes(tmp_path):
    with training(tmp_path) as run:
        run.send(signal.SIGINT)
        assert run.finish() == 130
    log = run.log()
    assert "Traceback" not in log and "Optimization stopped early." in log
    (k,) = run.snapshots()
    assert f"Snapshotting solver state to binary proto file s_iter_{k}.solverstate" in log
    assert k > 0 and read_solverstate(tmp_path / f"s_iter_{k}.solverstate").iter == k
    more = k + 10
    with training(tmp_path, "-snapshot", f"s_iter_{k}.solverstate", max_iter=more) as resumed:
        assert resumed.finish() == 0
    assert _last_messages(resumed, 2)[-1] == "Optimization Done." and "stopped early" not in resumed.log()
    assert resumed.snapshots() == [k, more]
    whole = make(NET, momentum=0.9, snapshot_prefix=f'"{tmp_path}/whole"')
    whole.step(more)
    whole.snapshot()
    ours, theirs = (read_solverstate(tmp_path / f"{n}_iter_{more}.solverstate") for n in ("s", "whole"))
    assert [h.tobytes() for h in ours.history] == [h.tobytes() for h in theirs.history]


def test_sighup_makes_a_snapshot_and_goes_on(tmp_path):
    with training(tmp_path) as run:
        run.send(signal.SIGHUP)
        run.wait_for_snapshots(1)
        run.goes_on()
        (k,) = run.snapshots()
        run.process.send_signal(signal.SIGHUP)
        run.wait_for_snapshots(2)
        assert run.log().count("Snapshotting solver state") == 2
        run.goes_on()
        run.process.send_signal(signal.SIGINT)
        assert run.finish() == 130
    first, second, third = run.snapshots()
    assert first == k < second < third


def test_sigint_as_snapshot_and_sighup_as_stop(tmp_path):
    with training(tmp_path, "-sigint_effect", "snapshot", "-sighup_effect", "stop") as run:
        run.send(signal.SIGINT)
        run.wait_for_snapshots(1)
        run.goes_on()
        run.process.send_signal(signal.SIGHUP)
        assert run.finish() == 130
    assert len(run.snapshots()) == 2 and "Optimization stopped early." in run.log()


def test_effect_none(tmp_path):
    with training(tmp_path, "-sigint_effect=none", "-sighup_effect=none") as run:
        run.send(signal.SIGINT)
        run.process.send_signal(signal.SIGHUP)
        run.goes_on()
        run.goes_on()
        assert run.snapshots() == [] and "Snapshotting" not in run.log()


def test_stop_without_a_final_snapshot(tmp_path):
    with training(tmp_path, snapshot_after_train="false") as run:
        run.send(signal.SIGINT)
        assert run.finish() == 130
    assert run.snapshots() == [] and "Optimization stopped early." in run.log()


@pytest.mark.parametrize("after_train", ["true", "false"])
def test_sigterm_stops_with_a_snapshot_whatever_the_solver_says(tmp_path, after_train):
    """Clusters send it before they kill; the state can be resumed from."""
    with training(tmp_path, snapshot_after_train=after_train) as run:
        run.send(signal.SIGTERM)
        assert run.finish() == 128 + 15
    (k,) = run.snapshots()
    assert "Optimization stopped early." in run.log() and "Traceback" not in run.log()
    more = k + 10
    with training(tmp_path, "-snapshot", f"s_iter_{k}.solverstate", max_iter=more) as resumed:
        assert resumed.finish() == 0
    whole = make(NET, momentum=0.9, snapshot_prefix=f'"{tmp_path}/whole"')
    whole.step(more)
    whole.snapshot()
    ours, theirs = (read_solverstate(tmp_path / f"{n}_iter_{more}.solverstate") for n in ("s", "whole"))
    assert [h.tobytes() for h in ours.history] == [h.tobytes() for h in theirs.history]


@pytest.mark.parametrize(
    ("effect", "code", "snapshots"), [("stop", 143, 0), ("snapshot", 130, 1), ("none", 130, 0)], ids=str
)
def test_other_effects_of_sigterm(tmp_path, effect, code, snapshots):
    """Where it does not stop the run, a SIGINT does."""
    with training(tmp_path, "-sigterm_effect", effect, snapshot_after_train="false") as run:
        run.send(signal.SIGTERM)
        if effect != "stop":
            run.goes_on()
            run.goes_on()
            run.process.send_signal(signal.SIGINT)
        assert run.finish() == code
    assert len(run.snapshots()) == snapshots


def test_snapshot_and_stop_for_the_other_signals(tmp_path):
    argv = ("-sigint_effect", "snapshot_and_stop", "-sighup_effect", "none")
    with training(tmp_path, *argv, snapshot_after_train="false") as run:
        run.send(signal.SIGHUP)
        run.goes_on()
        run.process.send_signal(signal.SIGINT)
        assert run.finish() == 130
    assert len(run.snapshots()) == 1


def test_stop_within_a_long_test(tmp_path):
    """A test polls too, so it need not end first."""
    with training(tmp_path, test_iter=10**9, test_interval=20, test_initialization="false", display=1) as run:
        run.wait_for(lambda: "Testing net (#0)" in run.log(), "test")
        run.process.send_signal(signal.SIGINT)
        assert run.finish() == 130
    assert run.snapshots() == [20]
    assert "Test interrupted." in run.log() and "Test net output" not in run.log()


def test_a_bad_effect_is_a_usage_error(tmp_path):
    with training(tmp_path, "-sigint_effect", "halt") as run:
        assert run.finish() == 2
    assert "halt" in run.log() and "Traceback" not in run.log()


def test_each_flag_is_read_once_and_sighup_first():
    """Many signals between two polls count as one; both kinds are reported in turn; handlers are restored."""
    before = [signal.getsignal(s) for s in (signal.SIGINT, signal.SIGHUP, signal.SIGTERM)]
    signals = Signals("stop", "snapshot")
    try:
        assert signals.poll() == "none" and signals.exit_code == 0
        for number in (signal.SIGINT, signal.SIGINT, signal.SIGHUP, signal.SIGHUP):
            signal.raise_signal(number)
        assert [signals.poll() for _ in range(4)] == ["snapshot", "stop", "none", "none"]
        assert signals.exit_code == 130
    finally:
        signals.restore()
    assert [signal.getsignal(s) for s in (signal.SIGINT, signal.SIGHUP, signal.SIGTERM)] == before


def test_the_second_interrupt_ends_at_once_where_the_first_means_stop():
    """It raises KeyboardInterrupt; a third one ends the process at any point."""
    before = signal.getsignal(signal.SIGINT)
    signals = Signals("stop", "snapshot", insist=True)
    try:
        signal.raise_signal(signal.SIGINT)
        signal.raise_signal(signal.SIGHUP)
        signal.raise_signal(signal.SIGHUP)
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)
        assert signal.getsignal(signal.SIGINT) is signal.SIG_DFL
    finally:
        signals.restore()
    assert signal.getsignal(signal.SIGINT) is before
    signals = Signals("snapshot", "stop", insist=True)
    try:
        for _ in range(3):
            signal.raise_signal(signal.SIGINT)
        assert signals.poll() == "snapshot"
    finally:
        signals.restore()
