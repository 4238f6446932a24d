"""Tests ranks of which one splits its backwards: the same bits."""

from __future__ import annotations

import pytest

from pycaffe_lms.net.tuning import Tuning

from ..lms.nets import solver_text as make_text
from ..solvers.helpers import bits
from .ranks import in_threads, joined, rank_solver, sim

ITERATIONS = 5
CONVNET = make_text("chain")


@pytest.mark.parametrize("layer_wise", [True, False])
def test_ranks_one_of_which_makes_gradients_in_two_steps(layer_wise):
    """What is summed, in which order, does not depend on it, so every rank may choose for itself."""

    def work(rank, path, separate):
        tuning = Tuning(channels_last=True, split_backward=separate[rank])
        text = CONVNET if layer_wise else f"layer_wise_reduce: false {CONVNET}"
        solver = rank_solver(text, rank, 2, tuning=tuning, **sim()(rank))
        parallel = joined(solver, path)
        solver.step(ITERATIONS)
        assert any("[params]" in s.step.name for s in solver.net.memory.steps("train")) is separate[rank]
        found = bits(solver)
        parallel.close()
        return found

    whole = in_threads(2, lambda rank, path: work(rank, path, (False, False)))
    mixed = in_threads(2, lambda rank, path: work(rank, path, (False, True)))
    assert mixed[0] == mixed[1] == whole[0] == whole[1]
