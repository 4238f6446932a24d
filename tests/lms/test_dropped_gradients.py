"""Gradients of parameters that nobody needs after their update are dropped with `pack`; no stale number is shown."""

from __future__ import annotations

import pytest

from pycaffe_lms.backend.sim.device import SimDevice
from pycaffe_lms.errors import DiscardedRead
from pycaffe_lms.formats.prototxt.parser import parse_solver
from pycaffe_lms.lms.config import LMSConfig
from pycaffe_lms.net.tuning import Tuning
from pycaffe_lms.solvers import solver_class

from . import nets


def _trained(lms=None, pack=True, seed=0, net="chain", **options):
    """Return (solver after two iterations, losses, parameters to the bit, bytes copied out)."""
    parsed = parse_solver(nets.solver_text(net, **options), "solver.prototxt")
    device = SimDevice(64 << 20, order="random", seed=seed)
    solver = solver_class(parsed.message)(parsed.message, device=device, lms=lms, tuning=Tuning(pack=pack))
    losses = []
    for _ in range(2):
        solver.step(1)
        losses.append(solver.net.loss())
    return solver, losses, [b.read_data().tobytes() for b in solver.net.learnable_params], device.bytes_out


def _managed(seed=0) -> LMSConfig:
    return LMSConfig(threshold_kb=0.01, ahead=(None, 1, 32)[seed % 3])


OPTIONS = [{}, {"clip_gradients": 0.05}, {"iter_size": 2}, {"type": '"Adam"'}, {"net": "shared"}]


@pytest.mark.parametrize("seed, options", [*enumerate(OPTIONS)], ids=str)
def test_dropping_changes_no_bit_and_copies_less(seed, options):
    _, losses, params, _ = _trained(**options)
    dropping, found_losses, found, fewer = _trained(_managed(seed), seed=seed, **options)
    keeping, *_, copied = _trained(_managed(seed), pack=False, seed=seed, **options)
    assert (found_losses, found) == (losses, params)
    assert found == [b.read_data().tobytes() for b in keeping.net.learnable_params]
    if "iter_size" in options:  # the pass that adds to gradients reads them first
        assert fewer <= copied
        return
    assert copied - fewer == 2 * sum(b.diff_memory.nbytes for b in keeping.net.learnable_params)
    for blob in dropping.net.learnable_params:
        with pytest.raises(DiscardedRead, match=r"param\d.diff.*was dropped") as error:
            blob.read_diff()
        assert "-pack off" in error.value.fix and "snapshot_diff: true" in error.value.fix


@pytest.mark.parametrize("options", [{"snapshot_diff": "true"}, {"debug_info": "true"}], ids=lambda o: next(iter(o)))
def test_what_asks_for_gradients_keeps_them(options):
    plain, managed = _trained(pack=False, **options)[0], _trained(_managed(), **options)[0]
    for mine, theirs in zip(managed.net.learnable_params, plain.net.learnable_params, strict=True):
        assert mine.read_diff().any()
        assert mine.read_diff().tobytes() == theirs.read_diff().tobytes()


def test_a_dropped_gradient_can_be_written_again():
    solver = _trained(_managed())[0]
    with pytest.raises(DiscardedRead):
        solver.net.backward_range()  # would add to it
    solver.net.clear_param_diffs()
    solver.net.forward_range()
    solver.net.backward_range()
    assert all(b.read_diff().any() for b in solver.net.learnable_params)
