"""Split backward: a layer computes the gradients of its parameters and of its bottoms in two passes. Each pass
reads only what it declares, and both together give the bits of one pass."""

from __future__ import annotations

import numpy as np
import pytest

from pycaffe_lms.layers.base import Gradients
from pycaffe_lms.layers.registry import layer_class

from .all_cases import as_params, runnable_cases
from .case_run import Run, hand_over_poison, spoil, spoil_undeclared

FAMILY = {
    "Convolution",
    "LocallyConnected",
    "NdConvolution",
    "DepthwiseConvolution",
    "ConvolutionDepthwise",
    "Deconvolution",
    "InnerProduct",
}
CASES = [(n, c) for n, c in runnable_cases() if layer_class(c.type).declares.split_backward]
BOTH = [(n, c) for n, c in CASES if {kind for kind, _ in Run(c).targets()} == {"bottom", "param"}]


def _half(run: Run, makes: Gradients, **options) -> dict:
    """Return the gradients of one pass, with NaN in all that it did not declare, without the other's scratch."""
    bench, flags = run.bench, (run.bench.propagate_down, run.bench.param_propagate)
    if makes is Gradients.PARAMS:
        bench.propagate_down = tuple(False for _ in flags[0])
    else:
        bench.param_propagate = tuple(False for _ in flags[1])
    spoil_undeclared(run)
    there = dict(bench.scratch)
    bench.scratch = {n: a for n, a in there.items() if run.layer.scratches[n].used_for(makes)}
    for array in bench.scratch.values():  # of what lives no longer than a pass nothing is left for the next one
        spoil(array)
    found = run.backward(run.top_diffs(), **options)
    bench.scratch = there
    bench.propagate_down, bench.param_propagate = flags
    return found


def test_which_layers_say_that_they_may():
    assert {case.type for _, case in CASES} == {case.type for _, case in BOTH} == FAMILY


@pytest.mark.parametrize(
    "makes", [(Gradients.PARAMS, Gradients.BOTTOMS), (Gradients.BOTTOMS, Gradients.PARAMS)], ids=str
)
@pytest.mark.parametrize("case", as_params(BOTH))
def test_two_passes_make_the_bits_of_one(case, makes):
    """In either order: each pass begins with its own forward, so that what the other needs is spoilt."""
    whole = Run(case)
    whole.forward()
    expected = whole.backward(whole.top_diffs())
    run = Run(case)
    hand_over_poison(run, "backward")
    found = {}
    for half in makes:
        run.forward()
        found |= _half(run, half)
    assert found.keys() == expected.keys()
    for target, gradient in expected.items():
        assert np.isfinite(gradient).all()
        np.testing.assert_array_equal(found[target], gradient, err_msg=str(target))


@pytest.mark.parametrize("case", as_params(BOTH))
def test_gradients_of_parameters_are_added_alike(case):
    whole, run = Run(case), Run(case)
    starts = [np.random.default_rng(3).normal(size=p.shape) for p in whole.params]
    options = {"accumulate": [True] * len(starts)}
    whole.forward()
    expected = whole.backward(whole.top_diffs(), **options, param_diffs=[np.array(s) for s in starts])
    run.forward()
    found = _half(run, Gradients.PARAMS, **options, param_diffs=[np.array(s) for s in starts])
    for target, gradient in found.items():
        np.testing.assert_array_equal(gradient, expected[target], err_msg=str(target))


def test_scratch_that_a_half_does_not_declare_is_missed():
    """The tests above find a layer that uses scratch declared for the other pass."""
    case = next(c for _, c in BOTH if c.type == "Convolution" and "sums" in Run(c).layer.scratches)
    run = Run(case)
    run.forward()
    run.layer.scratch("sums", run.layer.scratches["sums"].shape, gradients=Gradients.BOTTOMS)
    with pytest.raises(KeyError, match="sums"):
        _half(run, Gradients.PARAMS)
