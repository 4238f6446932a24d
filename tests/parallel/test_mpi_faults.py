"""Tests ranks under mpiexec of which one is killed, hangs or fails, and what goes on after that."""

from __future__ import annotations

import os
import random
import re
import signal
import socket
import subprocess
import time

import pytest

from .mpi_ranks import TRAIN, environment, finish, needs_mpi, start
from .test_launch import alive
from .test_mpi_train import NET, filled

pytestmark = needs_mpi
HOST = socket.gethostname()
LONG = ["-set", "max_iter=1000000", "-set", "display=1", "-set", "snapshot=0"]
SOON_S = 600.0  # the machine may be busy: what matters is that it is far from the default of an hour
FAILS = """
import os
import pycaffe_lms as caffe
from pycaffe_lms.errors import DataError

class Fails(caffe.Layer):
    passes = 0

    def setup(self, bottom, top): pass

    def reshape(self, bottom, top): top[0].reshape(*bottom[0].data.shape)

    def forward(self, bottom, top):
        Fails.passes += 1
        if Fails.passes > 3 and os.environ["PMI_RANK"] in os.environ["FAIL"]:
            raise {error}
        top[0].data[...] = bottom[0].data

    def backward(self, top, propagate_down, bottom): bottom[0].diff[...] = top[0].diff
"""


def begin(folder, count: int, *words: str, until: str = "Iteration 2 ", **more: str):
    """Start ranks; return them with the process numbers by rank and what was said until a text came."""
    ranks = start(count, [*TRAIN, "-solver", "s.prototxt", "-backend", "cpu", *words], folder, **more)
    said = ""
    while until not in said:
        line = ranks.stdout.readline()
        assert line, said
        said += line
    pids = [int(p) for p in re.findall(r"\d+ \(process (\d+)\)", re.search(r"Ranks on .*", said)[0])]
    assert len(pids) == count
    return ranks, pids, said


def gone(pids) -> bool:
    until = time.monotonic() + SOON_S
    while any(map(alive, pids)) and time.monotonic() < until:
        time.sleep(0.05)
    return not any(map(alive, pids))


@pytest.mark.parametrize("rank", [0, 1])
def test_a_rank_that_is_killed(tmp_path, rank):
    """Its parent process says so, and the launcher ends the others."""
    ranks, pids, _ = begin(filled(tmp_path), 3, *LONG)
    since = time.monotonic()
    os.kill(pids[rank], signal.SIGKILL)
    code, said = finish(ranks)
    assert code != 0 and said.count("error:") == 1
    assert f"error: rank {rank} on {HOST}: its process {pids[rank]} was ended by SIGKILL" in said
    assert gone(pids) and time.monotonic() - since < SOON_S


@pytest.mark.parametrize("rank", [pytest.param(0, marks=pytest.mark.thorough), 2])
def test_a_rank_that_hangs(tmp_path, rank):
    """Of the others the first says which it is, once."""
    ranks, pids, _ = begin(filled(tmp_path), 3, *LONG, "-timeout", "3")
    since = time.monotonic()
    os.kill(pids[rank], signal.SIGSTOP)
    code, said = finish(ranks)
    first = 0 if rank else 1
    assert code == 1 and said.count("error:") == 1
    named = f"rank {rank} (process {pids[rank]} on {HOST})"
    assert f"error: rank {first} of 3 on {HOST}: {named} did not answer" in said, said
    assert "within 3 s" in said and "-timeout says how long ranks wait" in said
    assert gone(pids) and time.monotonic() - since < SOON_S


@pytest.mark.parametrize(
    ("error", "failing", "message"),
    [
        ("MemoryError", "2", f"error: rank 2 of 3 on {HOST}: the host has no memory left"),
        ("DataError('odd record')", "12", f"error: rank 1 of 3 on {HOST}: .*odd record"),
        ("ZeroDivisionError('in the middle')", "012", f"error: rank 0 of 3 on {HOST}: .*(.|\n)*in the middle"),
    ],
)
def test_a_rank_that_fails(tmp_path, error, failing, message):
    """It says why, once for all that fail so."""
    layer = (
        'layer { name: "fails" type: "Python" bottom: "ip" top: "fails" '
        'python_param { module: "fails" layer: "Fails" } }\nlayer { name: "loss"'
    )
    filled(tmp_path)
    net = NET.replace('bottom: "ip" bottom: "label"', 'bottom: "fails" bottom: "label"')
    (tmp_path / "net.prototxt").write_text(net.replace('layer { name: "loss"', layer))
    (tmp_path / "fails.py").write_text(FAILS.replace("{error}", error))
    path = f"{tmp_path}{os.pathsep}{environment()['PYTHONPATH']}"
    ranks, pids, _ = begin(tmp_path, 3, *LONG, until="Solving", FAIL=failing, PYTHONPATH=path)
    code, said = finish(ranks)
    assert code == 1 and said.count("error:") == 1 and re.search(message, said), said
    assert gone(pids)


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_signals_to_the_launcher(tmp_path, number, code):
    """All stop after one iteration, with a snapshot."""
    ranks, pids, _ = begin(filled(tmp_path), 2, *LONG)
    ranks.send_signal(number)
    found, said = finish(ranks)
    assert found == code, said
    stopped = int(re.search(r"Snapshotting solver state to binary proto file run_iter_(\d+)\.solverstate", said)[1])
    assert (tmp_path / f"run_iter_{stopped}.caffemodel").exists() and "error:" not in said and gone(pids)


@pytest.mark.parametrize("rank", [pytest.param(0, marks=pytest.mark.thorough), 1])
def test_a_host_that_is_taken_away(tmp_path, rank):
    """Clusters send SIGTERM to the processes of that host alone, and kill them later."""
    ranks, pids, _ = begin(filled(tmp_path), 2, *LONG)
    os.kill(pids[rank], signal.SIGTERM)
    found, said = finish(ranks)
    assert found == 143, said
    stopped = int(re.search(r"Snapshotting solver state to binary proto file run_iter_(\d+)\.solverstate", said)[1])
    assert (tmp_path / f"run_iter_{stopped}.caffemodel").exists() and "error:" not in said and gone(pids)


def test_sigterm_of_one_rank_may_mean_nothing(tmp_path):
    ranks, pids, _ = begin(filled(tmp_path), 2, *LONG, "-set", "max_iter=400", "-sigterm_effect", "snapshot")
    os.kill(pids[1], signal.SIGTERM)
    found, said = finish(ranks)
    assert found == 0 and "Iteration 400, loss" in said, said


@pytest.mark.thorough
def test_killed_at_random_instants_and_resumed(tmp_path):
    """The same mpiexec line with -resume latest ends with the bits of a run that was left alone."""
    words = ["-set", "max_iter=200", "-set", "snapshot=4", "-set", "display=1", "-resume", "latest"]
    (tmp_path / "whole").mkdir()
    whole = filled(tmp_path / "whole")
    command = [*TRAIN, "-solver", "s.prototxt", "-backend", "cpu", *words, "-gpu", "0,1"]
    subprocess.run(command, cwd=whole, env=environment(), check=True, capture_output=True)
    (tmp_path / "killed").mkdir()
    folder, rng, begun = filled(tmp_path / "killed"), random.Random(7), []
    for _ in range(3):
        ranks, pids, said = begin(folder, 2, *words, until="Starting Optimization")
        least = 5 + rng.randrange(8)  # iterations, of which one at least is followed by a snapshot
        while said.count(" iter/s") < least:
            line = ranks.stdout.readline()
            assert line, said
            said += line
        begun.append("Resuming from" in said)
        time.sleep(rng.uniform(0, 0.05))
        os.kill(rng.choice(pids), signal.SIGKILL)
        assert finish(ranks)[0] != 0
    ranks, _, said = begin(folder, 2, *words, until="Starting Optimization")
    code, rest = finish(ranks)
    assert code == 0 and begun == [False, True, True] and "Resuming from" in said + rest
    for kind in ("caffemodel", "solverstate"):
        assert (folder / f"run_iter_200.{kind}").read_bytes() == (whole / f"run_iter_200.{kind}").read_bytes()
