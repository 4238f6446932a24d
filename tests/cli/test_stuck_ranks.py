"""`train -gpu 0,1` where a rank's process stops: it is named, the run ends in time, Ctrl-C is heard."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
import tempfile
import time
from contextlib import contextmanager
from pathlib import Path

import pytest

import pycaffe_lms

from ..parallel.test_launch import alive
from ..solvers.helpers import GAUSSIAN, inner, loss, solver_text
from .command import caffe, complaint

ROOT = Path(__file__).resolve().parents[2]
SECONDS = 100.0  # far more than anything here takes
NET = GAUSSIAN + inner() + loss()


class Run:
    """A training of two ranks, each a process."""

    def __init__(self, folder: Path, process: subprocess.Popen):
        self.folder, self.process = folder, process

    def log(self) -> str:
        return (self.folder / "log").read_text()

    def wait_for(self, pattern: str) -> None:
        end = time.monotonic() + SECONDS
        while not re.search(pattern, self.log()):
            assert self.process.poll() is None and time.monotonic() < end, f"no {pattern!r} in\n{self.log()}"
            time.sleep(0.02)

    def rank(self, index: int) -> int:
        return int((self.folder / f"rank{index}").read_text())

    def ended(self) -> int:
        """The exit code; no rank is left, nor a folder where they met."""
        code = self.process.wait(SECONDS)
        assert not alive(self.rank(0)) and not alive(self.rank(1))
        assert not list((self.folder / "t").iterdir())
        assert "Traceback" not in self.log()
        return code


@pytest.fixture
def folder():
    with tempfile.TemporaryDirectory(prefix="s-") as folder:  # short, as the address of a socket must be
        yield Path(folder)


@contextmanager
def two_ranks(folder: Path, *flags: str):
    """Within: they train, the first display is out."""
    (folder / "t").mkdir()
    (folder / "s.prototxt").write_text(solver_text(NET, max_iter=10**9, display=1, snapshot_after_train="true"))
    path = os.pathsep.join([str(Path(pycaffe_lms.__file__).parents[1]), str(ROOT)])
    with open(folder / "log", "w") as log:
        process = subprocess.Popen(
            [
                sys.executable,
                "-m",
                "tests.cli.stuck",
                "train",
                "-solver",
                "s.prototxt",
                "-backend",
                "sim",
                "-gpu",
                "0,1",
                *flags,
            ],
            cwd=folder,
            env=os.environ | {"PYTHONPATH": path, "TMPDIR": str(folder / "t")},
            stderr=log,
        )
    run = Run(folder, process)
    try:
        run.wait_for(r"Iteration 3 \(")
        yield run
    finally:
        for index in (0, 1):
            if (folder / f"rank{index}").exists() and alive(run.rank(index)):
                os.kill(run.rank(index), signal.SIGKILL)
        process.kill()
        process.wait()


@pytest.mark.parametrize("stuck", [pytest.param(0, marks=pytest.mark.thorough), 1])
def test_a_stopped_rank_is_named_and_ends_the_run_in_time(folder, stuck):
    with two_ranks(folder, "-timeout", "4") as run:
        os.kill(run.rank(stuck), signal.SIGSTOP)
        place = rf"process {run.rank(stuck)} on {re.escape(socket.gethostname())}"
        run.wait_for(rf"Rank {1 - stuck} of 2 has waited 1 s for rank {stuck} to answer \({place}\)")
        assert run.ended() == 1
        blamed = rf"error: rank {1 - stuck} of 2 \(sim {1 - stuck}\) failed: rank {1 - stuck} of 2: "
        assert re.search(rf"{blamed}rank {stuck} did not answer within 4 s \({place}\)\n  fix: ", run.log())


def test_a_rank_that_is_stopped_for_a_while_is_waited_for(folder):
    with two_ranks(folder) as run:
        os.kill(run.rank(1), signal.SIGSTOP)
        run.wait_for("has waited 1 s for rank 1 to answer")
        os.kill(run.rank(1), signal.SIGCONT)
        last = max(int(n) for n in re.findall(r"Iteration (\d+) \(", run.log()))
        run.wait_for(rf"Iteration {last + 5} \(")
        run.process.send_signal(signal.SIGINT)
        assert run.ended() == 130
        assert "Optimization stopped early." in run.log() and len(list(folder.glob("s_iter_*.solverstate"))) == 1


def test_the_second_interrupt_ends_at_once(folder):
    """Also while the root waits for a rank that is stopped, for an hour if it must."""
    with two_ranks(folder) as run:
        os.kill(run.rank(1), signal.SIGSTOP)
        run.wait_for("has waited 1 s for rank 1 to answer")
        run.process.send_signal(signal.SIGINT)
        run.wait_for("a second Ctrl-C ends them at once")
        assert alive(run.rank(0)) and alive(run.rank(1))
        run.process.send_signal(signal.SIGINT)
        assert run.ended() == 130
        assert run.log().endswith("interrupted\n") and not list(folder.glob("s_iter_*"))


def test_a_killed_run_leaves_no_process_and_no_folder(folder):
    with two_ranks(folder) as run:
        run.process.kill()
        run.process.wait()
        end = time.monotonic() + SECONDS
        while alive(run.rank(0)) or alive(run.rank(1)):
            assert time.monotonic() < end
            time.sleep(0.02)
        assert not list((folder / "t").iterdir())  # it went when all had met


@pytest.mark.parametrize("text", ["0", "-1", "soon", "inf", "nan"])
def test_what_is_no_timeout(tmp_path, text):
    done = caffe("train", "-solver", "s.prototxt", f"-timeout={text}", cwd=tmp_path)
    message, _ = complaint(done, 2)
    assert f"'{text}' is no time in seconds" in message
