"""tools/train.py: what a rank does, on the CPU; what is wrong with its words; times of layers."""

from __future__ import annotations

import logging
import re
from dataclasses import asdict
from pathlib import Path

import pytest

import pycaffe_lms as caffe
from pycaffe_lms.parallel.data_parallel import DataParallel
from pycaffe_lms.parallel.host import HostCommunicator
from pycaffe_lms.parallel.launch import Rank
from pycaffe_lms.parallel.meeting import Meeting
from pycaffe_lms.pycaffe import mode

from ..parallel.ranks import rank_solver
from ..solvers.helpers import GAUSSIAN, bits, inner, loss, messages, solver_text

TOOLS = Path(__file__).resolve().parents[2] / "tools"
NET = GAUSSIAN + inner() + loss()


@pytest.fixture
def script(monkeypatch):
    """The module, with ranks on the CPU, and a thread's settings as they were afterwards."""
    monkeypatch.syspath_prepend(str(TOOLS))
    import train

    before = asdict(mode.settings)
    made = []

    def nccl(solver, place):
        communicator = HostCommunicator(solver.net.device, place, solver.solver_count, solver.solver_rank)
        made.append(solver)
        return DataParallel(solver, communicator)

    monkeypatch.setattr(train.caffe, "NCCL", nccl)
    monkeypatch.setattr(train.caffe, "set_mode_gpu", caffe.set_mode_cpu)
    monkeypatch.setattr(train.caffe, "init_log", lambda level, stderr: None)
    train.made = made
    yield train
    vars(mode.settings).update(before)


@pytest.mark.parametrize("timing", [False, True])
def test_a_rank(script, tmp_path, timing, caplog):
    caplog.set_level(logging.INFO)
    text = solver_text(NET, max_iter=4, display=2, momentum=0.9)
    (tmp_path / "solver.prototxt").write_text(text)
    with Meeting() as meeting:
        assert script.solve(str(tmp_path / "solver.prototxt"), "", [3], timing, Rank(0, 1, meeting.path)) == 0
    (solver,) = script.made
    expected = rank_solver(text, 0, 1)
    expected.step(4)
    assert (solver.iter, mode.settings.index) == (4, 3) and bits(solver) == bits(expected)
    said = [m for m in messages(caplog) if re.fullmatch(r"ip: forward [\d.]+ ms, backward [\d.]+ ms", m)]
    assert len(said) == 2 * timing


def test_going_on_from_a_snapshot(script, tmp_path):
    text = solver_text(NET, max_iter=4, momentum=0.9, snapshot_prefix=f'"{tmp_path}/run"')
    (tmp_path / "solver.prototxt").write_text(text)
    expected = rank_solver(text, 0, 1)
    expected.step(2)
    expected.snapshot()
    expected.step(2)
    with Meeting() as meeting:
        state = f"{tmp_path}/run_iter_2.solverstate"
        script.solve(str(tmp_path / "solver.prototxt"), state, [0], False, Rank(0, 1, meeting.path))
    assert bits(script.made[0]) == bits(expected)


def test_words_that_are_wrong(monkeypatch, capsys):
    monkeypatch.syspath_prepend(str(TOOLS))
    import train

    assert train.main(["--solver", "x", "--gpus", "0", "0"]) == 2
    assert "--gpus 0 0: one is listed twice" in capsys.readouterr().err
    if not caffe.has_nccl():
        assert train.main(["--solver", "x", "--gpus", "0", "1"]) == 1
        assert "fix: pip install" in capsys.readouterr().err
