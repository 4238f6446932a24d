"""Every case of every layer, on the CPU: shapes, gradients, propagate_down, accumulation, empty batches, in place."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from pycaffe_lms.errors import CaffeError
from pycaffe_lms.layers.base import BuildContext, Declaration, InPlace, Runs
from pycaffe_lms.layers.registry import LAYERS

from ..sampling import of_each_type
from .all_cases import as_params, learning_cases, runnable_cases
from .case_run import Run

CASES = runnable_cases()
every_case = pytest.mark.parametrize("case", as_params(CASES))
some_cases = pytest.mark.parametrize("case", of_each_type(CASES, every=8))


def _runs(wanted):
    """Parametrise a test over some of the cases that `wanted(case)` chooses."""
    return pytest.mark.parametrize("case", of_each_type(((n, c) for n, c in CASES if wanted(c)), every=8))


@every_case
def test_forward_writes_every_element_of_the_inferred_shapes(case):
    run = Run(case)
    tops = run.forward()
    assert [t.shape for t in tops] == run.bench.top_shapes
    if run.layer.declares.runs_on is Runs.NOWHERE and not run.layer.shares_data():
        return  # filled from outside
    for i, top in enumerate(tops):
        if not run.layer.rewrites(i):
            run.layer.fill_once(i, top)
        assert np.isfinite(top).all(), f"top {i}"


ASKED = {
    "splits_over_batch": bool,
    "splits_over_outputs": int,
    "accumulates_into": frozenset,
    "view_offsets": Sequence,
    "declares": Declaration,
    "context": BuildContext,
}


@some_cases
def test_a_layer_s_own_attributes_hide_none_that_the_net_asks_for(case):
    layer = Run(case).layer
    for name, kind in ASKED.items():
        assert isinstance(getattr(layer, name), kind), name


def _same(a, b):
    assert a.keys() == b.keys()
    for target in a:
        np.testing.assert_array_equal(a[target], b[target], err_msg=str(target))


LEARNING = learning_cases()


@pytest.mark.parametrize("case", of_each_type(LEARNING, every=8))
def test_one_gradient_less_changes_no_other(case):
    run = Run(case)
    run.forward()
    diffs, targets = run.top_diffs(), run.targets()
    everything = run.backward(diffs)
    assert everything.keys() == set(targets)
    assert all(np.isfinite(g).all() for g in everything.values())
    for left_out in targets if len(targets) > 1 else ():
        run.wants(without=left_out)
        run.forward()
        _same(run.backward(diffs), {t: g for t, g in everything.items() if t != left_out})


@pytest.mark.parametrize(
    "case", of_each_type(((n, c) for n, c in LEARNING if any(Run(c).bench.param_propagate)), every=8)
)
def test_accumulate_adds(case):
    run = Run(case)
    run.forward()
    fresh = run.backward(run.top_diffs())
    start = [np.random.default_rng(3).normal(size=p.shape) for p in run.params]
    run.forward()
    added = run.backward(run.top_diffs(), accumulate=[True] * len(start), param_diffs=start)
    for (kind, i), gradient in fresh.items():
        expected = gradient + start[i] if kind == "param" else gradient
        scale = np.abs(gradient).max(initial=1.0)
        np.testing.assert_allclose(added[kind, i], expected, rtol=1e-13, atol=1e-13 * scale, err_msg=f"{kind} {i}")


@some_cases
def test_float32_agrees_with_float64(case):
    wide = Run(case)
    bottoms = [b.astype(np.float32).astype(np.float64) for b in wide.bottoms]
    runs = [Run(case, dtype, bottoms) for dtype in (np.float32, np.float64)]
    params = [p.astype(np.float32) for p in runs[1].params]
    results = []
    for run, dtype in zip(runs, (np.float32, np.float64), strict=True):
        run.params = [p.astype(dtype) for p in params]
        found = {("top", i): t for i, t in enumerate(run.forward())}
        if run.learns:
            found |= run.backward([d.astype(np.float32) for d in run.top_diffs()])
        assert all(a.dtype == dtype for a in found.values())
        results.append(found)
    for what, exact in results[1].items():
        scale = np.abs(exact).max(initial=1e-3)
        np.testing.assert_allclose(results[0][what], exact, rtol=1e-4, atol=2e-5 * scale, err_msg=str(what))


# -- empty batches ------------------------------------------------------------------------------------------------
_BATCH_AXIS = dict.fromkeys(("RNN", "LSTM", "Lstm", "LSTMUnit"), 1)  # axis 0 is time
_BATCH_AXIS |= dict.fromkeys(("CTCLoss", "CtcLoss", "WarpCTCLoss", "CTCGreedyDecoder"), 1)
_BATCH_AXIS["DetectionEvaluate"] = 2  # rows of boxes
_CHOOSERS = {"BatchReindex"}  # bottom 1 chooses from bottom 0, so an empty batch is an empty choice


def _emptied(case):
    """Return the case's shapes without items: the batch axis is 0 where a bottom has as many items as the first."""
    if case.type in _CHOOSERS:
        return (case.shapes[0], (0,))
    if case.type == "BoxGroupOutput":  # axis 0 holds the images' anchors, of as many as each level has
        return tuple((0, *s[1:]) for s in case.shapes)
    if case.type in ("CtcLoss", "WarpCTCLoss"):
        (steps, _, *classes), (_, *labels) = case.shapes
        return ((steps, 0, *classes), (0, *labels))
    axis = _BATCH_AXIS.get(case.type, 0)
    n = case.shapes[0][axis]
    return tuple((*s[:axis], 0, *s[axis + 1 :]) if len(s) > axis and s[axis] == n else s for s in case.shapes)


def _can_be_empty(case):
    return bool(case.shapes) and bool(case.shapes[0])


def _run_empty(case):
    """Run forward and backward of no items; return the error if the layer refuses them."""
    try:
        run = Run(case, shapes=_emptied(case))
    except CaffeError as error:
        return error
    tops = run.forward()
    assert [t.shape for t in tops] == run.bench.top_shapes
    assert not any(np.isnan(t).any() for t in tops)
    if run.learns:
        for target, gradient in run.backward(run.top_diffs()).items():
            assert np.isfinite(gradient).all(), target
    return None


@_runs(_can_be_empty)
def test_an_empty_batch(case):
    error = _run_empty(case)
    assert error is None or f'layer "l" ({case.type})' in str(error)


def test_every_type_takes_an_empty_batch():
    taken = {c.type for _, c in CASES if _can_be_empty(c) and _run_empty(c) is None}
    assert {c.type for _, c in CASES if _can_be_empty(c)} - taken == set()


# -- in place -----------------------------------------------------------------------------------------------------
def _may_be_in_place(case):
    if LAYERS[case.type].declares.in_place in (InPlace.MUST, InPlace.REFUSED) or not case.shapes or case.n_top != 1:
        return False
    run = Run(case, in_place=False)
    same = tuple(run.bench.top_shapes[0]) == tuple(case.shapes[0]) and run.learns
    return same and not run.layer.shares_data() and 0 not in case.shapes[0]


@_runs(_may_be_in_place)
def test_in_place_gives_the_same_numbers(case):
    """Memory is shared as in `net/program/buffers.py`: data if no step needs the old values, diffs if ALLOWED."""
    apart = Run(case, in_place=False)
    top, diffs = apart.forward(), apart.top_diffs()
    expected = apart.backward(diffs)
    names = " ".join(f'bottom: "b{i}"' for i in range(len(case.shapes))) + ' top: "b0"'
    run = Run(case, in_place=False, text=f"{case.text} {names}")
    bench, layer = run.bench, run.layer
    if layer.declares.in_place is InPlace.ALLOWED:
        needs = layer.backward_needs(list(bench.propagate_down), list(bench.param_propagate))
        forward, backward = layer.forward, layer.backward

        def forward_in_place(io):
            if 0 not in needs.bottoms:
                bench._top[0] = io.top[0] = bench._bottom[0]
            forward(io)

        def backward_in_place(io):
            if io.bottom_diff[0] is not None:
                io.top_diff[0] = io.bottom_diff[0]
                io.top_diff[0][...] = diffs[0]
            backward(io)

        layer.forward, layer.backward = forward_in_place, backward_in_place
    np.testing.assert_array_equal(run.forward()[0], top[0])
    _same(run.backward(diffs), expected)


# -- what passes may write, and tops that nobody learns from -------------------------------------------------------
def _unchanged(arrays, before, what, but=()):
    for i, (array, old) in enumerate(zip(arrays, before, strict=True)):
        if i not in but:
            np.testing.assert_array_equal(array, old, err_msg=f"{what} {i}")


@some_cases
def test_passes_change_nothing_but_their_results(case):
    """Neither bottoms, nor parameters that forward does not update; in backward no data at all, and no top's diff."""
    run = Run(case, in_place=False)
    bench, layer = run.bench, run.layer
    run.forward()
    _unchanged(bench._bottom, run.bottoms, "bottom")
    _unchanged(bench._param, run.params, "parameter", layer.forward_updates())
    if not run.learns:
        return
    groups = ("bottom", bench._bottom), ("top", bench._top), ("parameter", bench._param)
    before = [[a.copy() for a in arrays] for _, arrays in groups]
    diffs, backward, seen = run.top_diffs(), layer.backward, []

    def watched(io):
        seen.extend(io.top_diff)
        backward(io)

    layer.backward = watched
    run.backward(diffs)
    for (what, arrays), old in zip(groups, before, strict=True):
        _unchanged(arrays, old, what)
    _unchanged(seen, diffs[: len(seen)], "diff of top")


@pytest.mark.parametrize("case", as_params((n, c) for n, c in LEARNING if c.n_top > 1))
def test_no_gradient_of_a_top_counts_as_zero(case):
    run = Run(case)
    run.forward()
    diffs = run.top_diffs()
    for j in range(len(diffs)):
        run.forward()
        zero = run.backward([d * (i != j) for i, d in enumerate(diffs)])
        run.forward()
        none = run.backward([d if i != j else None for i, d in enumerate(diffs)])
        for target, gradient in zero.items():
            np.testing.assert_array_equal(none[target], gradient, err_msg=f"top {j}, {target}")
