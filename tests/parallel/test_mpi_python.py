"""Tests `caffe.init_mpi` and `caffe.MPI` in programs that mpiexec starts."""

from __future__ import annotations

import json
import re
import socket
import subprocess
import sys

import pytest

from .mpi_ranks import TRAIN, environment, mpiexec, needs_mpi
from .test_mpi_train import filled, snapshots

pytestmark = needs_mpi
HOST = socket.gethostname()
INIT = """
import json, sys
import pycaffe_lms as caffe
caffe.init_mpi()
solver = caffe.get_solver("s.prototxt")
"""
BY_HAND = """
import json, sys
from mpi4py import MPI
import pycaffe_lms as caffe
caffe.set_solver_count(MPI.COMM_WORLD.size); caffe.set_solver_rank(MPI.COMM_WORLD.rank)
solver = caffe.get_solver("s.prototxt")
ranks = caffe.MPI(solver, MPI.COMM_WORLD.Dup())
ranks.bcast()
solver.add_callback(ranks)
"""
STEP = """
seen = []
if caffe.solver_rank() == 0:
    solver.add_callback(lambda: None, lambda: seen.append(float(solver.net.params["ip"][0].diff.sum())))
solver.step(6)
json.dump([caffe.solver_count(), len(seen)], open(f"{caffe.solver_rank()}.json", "w"))
"""
FAILS = """
solver.step(2)
if caffe.solver_rank() == 1:
    raise ValueError("odd")
solver.step(1000000)
"""


def run(folder, text: str, count: int = 2) -> tuple[int, str]:
    (folder / "program.py").write_text(text)
    return mpiexec(count, [sys.executable, "program.py"], folder)


@pytest.mark.parametrize(
    "join", [pytest.param(INIT, id="init_mpi"), pytest.param(BY_HAND, id="MPI", marks=pytest.mark.thorough)]
)
def test_the_bits_of_the_command(tmp_path, join):
    """Callbacks on rank 0 alone leave them unchanged."""
    (tmp_path / "command").mkdir()
    command = [*TRAIN, "-solver", "s.prototxt", "-backend", "cpu", "-gpu", "0,1"]
    whole = filled(tmp_path / "command")
    subprocess.run(command, cwd=whole, env=environment(), check=True, capture_output=True)
    code, said = run(filled(tmp_path), join + STEP)
    assert code == 0, said
    assert snapshots(tmp_path) == snapshots(whole)
    assert [json.loads((tmp_path / f"{r}.json").read_text()) for r in range(2)] == [[2, 6], [2, 0]]


def test_one_process_trains_alone(tmp_path):
    program = filled(tmp_path) / "program.py"
    program.write_text(INIT + STEP)
    subprocess.run([sys.executable, program], cwd=tmp_path, env=environment(), check=True, capture_output=True)
    assert json.loads((tmp_path / "0.json").read_text()) == [1, 6]


def test_an_exception_ends_all_ranks(tmp_path):
    code, said = run(filled(tmp_path), INIT + FAILS)
    assert code == 1 and re.search(rf"rank 1 of 2 on {HOST}:\nTraceback(.|\n)*ValueError: odd", said)


def test_a_solver_of_another_rank(tmp_path):
    text = "import pycaffe_lms as caffe\ncaffe.MPI(caffe.get_solver('s.prototxt'))\n"
    code, said = run(filled(tmp_path), text)
    assert code != 0 and "the solver is rank 0 of 1, this process " in said and "caffe.init_mpi()" in said
