"""Tests one process per rank: what they return, and that none is left where one fails, hangs or is killed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time

import pytest

from pycaffe_lms.errors import LostRank, SolverError, UsageError
from pycaffe_lms.parallel.launch import Rank, RankError, run_ranks

NAMES = ("cpu 0", "cpu 1")


def alive(pid: int) -> bool:
    """Return whether a process exists and has not ended (an orphan may stay a zombie)."""
    done = subprocess.run(["ps", "-o", "stat=", "-p", str(pid)], capture_output=True, text=True)
    return bool(done.stdout.strip()) and not done.stdout.startswith("Z")


def codes(base: int, rank: Rank) -> int:
    assert (rank.count, rank.place) == (2, "somewhere")
    return base + rank.index


def note(folder: str, rank: Rank) -> None:
    """Write the rank's process number to a file of its name, which is whole as soon as it is there."""
    with open(f"{folder}/.{rank.index}", "w") as file:
        file.write(str(os.getpid()))
    os.rename(file.name, f"{folder}/{rank.index}")


def wait_for(folder: str, index: int) -> None:
    """Wait until a rank has noted its process."""
    while not os.path.exists(f"{folder}/{index}"):
        time.sleep(0.01)


def fail(kind: str, folder: str, rank: Rank) -> int:
    note(folder, rank)
    if rank.index == 0:
        time.sleep(600)
    wait_for(folder, 0)
    if kind == "killed":
        os.kill(os.getpid(), signal.SIGKILL)
    if kind == "exit":
        os._exit(3)
    if kind == "error":
        raise SolverError("gamma is odd", fix="make it even").at(file="solver.prototxt", line=3)
    if kind == "usage":
        raise UsageError("no such flag")
    raise ZeroDivisionError("in the middle")


def lost_and_found(folder: str, rank: Rank) -> int:
    note(folder, rank)
    if rank.index == 0:
        wait_for(folder, 1)
        raise LostRank("rank 1 is gone")
    time.sleep(0.3)
    raise SolverError("the cause")


def sleepers(folder: str, rank: Rank) -> int:
    note(folder, rank)
    time.sleep(600)
    return 0


def interrupted(folder: str, rank: Rank) -> int:
    """Take the signal on the root; the other ranks never see it."""
    seen = []
    if rank.index == 0:
        signal.signal(signal.SIGINT, lambda number, frame: seen.append(number))
        os.kill(os.getppid(), signal.SIGINT)
        until = time.monotonic() + 60
        while not seen and time.monotonic() < until:
            time.sleep(0.01)
        return 130 if seen else 0
    os.kill(os.getpid(), signal.SIGINT)
    return 0


def test_the_roots_code_is_returned():
    assert run_ranks(codes, (40,), "somewhere", NAMES) == 40


@pytest.mark.parametrize(
    ("kind", "code", "said"),
    [
        ("killed", 1, r"its process was ended by SIGKILL without a report"),
        ("exit", 1, r"its process ended with code 3 without a report"),
        ("error", 1, r"solver\.prototxt:3: gamma is odd\n  fix: make it even"),
        ("usage", 2, r"no such flag"),
        (
            "bug",
            1,
            r'Traceback (.|\n)*test_launch.py", line \d+, in fail(.|\n)*ZeroDivisionError: in the middle',
        ),
    ],
)
def test_a_rank_that_fails_ends_the_others_and_is_heard(tmp_path, kind, code, said):
    with pytest.raises(RankError, match=r"rank 1 of 2 \(cpu 1\) failed: " + said) as caught:
        run_ranks(fail, (kind, str(tmp_path)), "", NAMES)
    assert caught.value.exit_code == code
    assert not alive(int((tmp_path / "0").read_text()))


def test_who_only_noticed_is_not_to_blame(tmp_path):
    with pytest.raises(RankError, match=r"rank 1 of 2 \(cpu 1\) failed: the cause"):
        run_ranks(lost_and_found, (str(tmp_path),), "", NAMES)


def test_signals_are_the_roots(tmp_path):
    assert run_ranks(interrupted, (str(tmp_path),), "", NAMES) == 130
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_ranks_end_with_their_parent(tmp_path):
    code = (
        "from tests.parallel.test_launch import *\n"
        f"if __name__ == '__main__': run_ranks(sleepers, ({str(tmp_path)!r},), '', NAMES)\n"
    )
    script = tmp_path / "script.py"
    script.write_text(code)
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    parent = subprocess.Popen([sys.executable, script], env=environment)
    until = time.monotonic() + 60
    while not all((tmp_path / n).exists() for n in "01"):
        assert time.monotonic() < until
        time.sleep(0.02)
    parent.kill()
    parent.wait()
    pids = [int((tmp_path / n).read_text()) for n in "01"]
    while any(map(alive, pids)):
        assert time.monotonic() < until
        time.sleep(0.02)
