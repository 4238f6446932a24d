"""Tests `-lms_plan FILE` with several ranks: rank 0 writes the file, all read it."""

from __future__ import annotations

import threading

import pytest

from pycaffe_lms.errors import PlanError
from pycaffe_lms.lms.config import LMSConfig

from ..solvers.helpers import GAUSSIAN, bits, inner, loss, solver_text
from .ranks import in_threads, joined, rank_solver, sim

RELU = 'layer { name: "relu" type: "ReLU" bottom: "ip1" top: "ip1" }\n'
LAYERS = inner("ip1", outputs=300) + RELU + inner("ip2", "ip1", outputs=6) + inner("ip", "ip2") + loss()
TEXT = solver_text(GAUSSIAN + LAYERS, momentum=0.9)


def _place(file):
    return sim(lms=LMSConfig(threshold_kb=1, budget=48 << 10, plan_file=None if file is None else str(file)))


def _train(files, *, layer_wise=True, iterations=4):
    """Return for every rank the parameters to the bit, how its plan was made, and whether it copies."""

    def work(rank, path):
        solver = rank_solver(TEXT, rank, len(files), **_place(files[rank])(rank))
        parallel = joined(solver, path, layer_wise=layer_wise)
        solver.step(iterations)
        plan = solver.net.memory.plans()["train"]
        found = bits(solver), plan.rules, plan.copies
        parallel.close()
        return found

    return in_threads(len(files), work)


def test_the_root_alone_writes(tmp_path):
    """Each rank has a file of its own, which shows which rank writes."""
    files = [tmp_path / f"{rank}.plan" for rank in range(3)]
    _train(files)
    assert [file.exists() for file in files] == [True, False, False]
    text = files[0].read_text()
    assert 'step { name: "reduce:' in text and 'step { name: "update:ip"' in text


@pytest.mark.parametrize("layer_wise", [True, False], ids=["layer by layer", "at the end"])
def test_written_by_one_run_and_replayed_by_all_ranks_of_the_next(tmp_path, layer_wise):
    file = tmp_path / "my.plan"
    plain = _train([None, None], layer_wise=layer_wise)
    first = _train([file, file], layer_wise=layer_wise)
    written, when = file.read_bytes(), file.stat().st_mtime_ns
    second = _train([file, file], layer_wise=layer_wise)
    assert [found[0] for found in (*first, *second)] == [found[0] for found in plain + plain]
    assert all(copies for *_, copies in second)
    assert [rules for _, rules, _ in second] == [f"written in {file}"] * 2
    assert not any(str(file) in rules for _, rules, _ in first)
    assert (file.read_bytes(), file.stat().st_mtime_ns) == (written, when)


def test_the_file_comes_when_all_have_looked_for_it(tmp_path):
    """A rank that starts late must not find the file that rank 0 wrote in this run."""
    file, made = tmp_path / "my.plan", threading.Event()

    def work(rank, path):
        if rank:
            made.wait(60)
        there = file.exists()
        solver = rank_solver(TEXT, rank, 2, **_place(file)(rank))
        if not rank:
            made.set()
        parallel = joined(solver, path)
        solver.step(1)
        rules = solver.net.memory.plans()["train"].rules
        parallel.close()
        return there, str(file) in rules

    assert in_threads(2, work) == [(False, False)] * 2
    assert file.exists()


def test_ranks_that_are_joined_by_somebody_else(tmp_path):
    """There is no reduction of ours: the file holds what `step` runs."""
    file = tmp_path / "my.plan"
    for replayed in (False, True):
        for rank in (1, 0):
            solver = rank_solver(TEXT, rank, 2, **_place(file)(rank))
            assert file.exists() is replayed
            solver.step(1)
            assert (str(file) in solver.net.memory.plans()["train"].rules) is replayed
            assert file.exists() is (replayed or rank == 0)


def test_a_plan_of_one_alone_is_refused(tmp_path):
    """It has no steps that sum gradients, and updates in other places."""
    file = tmp_path / "my.plan"
    rank_solver(TEXT, 0, 1, **_place(file)(0)).step(1)
    written = file.read_bytes()
    with pytest.raises(PlanError, match=r"my.plan:\d+: step \d+ of the program is "):
        _train([file, file])
    assert file.read_bytes() == written
