"""PReLU against max(x, 0) + a_c * min(x, 0), element by element."""

from __future__ import annotations

import numpy as np
import pytest

from pycaffe_lms.errors import ShapeError
from pycaffe_lms.layers.base import Needs
from pycaffe_lms.ops.records import Grid

from .cases import Case
from .harness import LayerBench, check_gradient

SHARED = "prelu_param { channel_shared: true }"
CASES: list[Case] = [
    Case("PReLU", "", ((2, 3, 4, 5),)),
    Case("PReLU", "", ((4, 3),)),
    Case("PReLU", "", ((2, 3, 4),)),
    Case("PReLU", "", ((2, 3, 2, 1, 2),)),
    Case("PReLU", "", ((1, 1),)),
    Case("PReLU", SHARED, ((2, 3, 4, 5),)),
    Case("PReLU", SHARED, ((2, 3),)),
    Case("PReLU", SHARED, ((3, 1),)),
    Case("PReLU", "", ((0, 3, 2, 2),)),
    Case("PReLU", "", ((0, 3),)),
    Case("PReLU", SHARED, ((0, 3, 2),)),
    Case("PReLU", "", ((3, 5, 61, 67),)),
    Case("PReLU", "", ((9001, 37),)),
    Case("PReLU", SHARED, ((3, 5, 61, 67),)),
]
SMALL = [c for c in CASES if 0 < np.prod(c.shapes[0]) < 1000]


def _slope_of(a, index):
    return float(a) if a.ndim == 0 else float(a[index[1]])


@pytest.mark.parametrize("dtype", [np.float32, np.float64], ids=["f32", "f64"])
@pytest.mark.parametrize("case", SMALL, ids=str)
def test_forward_is_the_formula(case, dtype):
    bench, (x,) = case.bench(dtype), case.make_bottoms(np.random.default_rng(1))
    (y,) = bench.forward([x])
    x = x.astype(dtype)
    for i in np.ndindex(x.shape):
        np.testing.assert_allclose(y[i], x[i] if x[i] > 0 else _slope_of(bench.params[0], i) * x[i], rtol=1e-6)


@pytest.mark.parametrize("case", SMALL, ids=str)
def test_gradient(case):
    check_gradient(case.bench(), case.make_bottoms(np.random.default_rng(2)), kinks=[0.0])


@pytest.mark.parametrize("case", [c for c in CASES if c not in SMALL], ids=str)
@pytest.mark.parametrize("dtype", [np.float32, np.float64], ids=["f32", "f64"])
def test_large_and_empty_bottoms(case, dtype):
    bench, (x,) = case.bench(dtype), case.make_bottoms(np.random.default_rng(3))
    (y,) = bench.forward([x])
    dy = np.random.default_rng(4).normal(size=x.shape)
    (dx,), (da,) = bench.backward([dy])
    axes = tuple(i for i in range(x.ndim) if i != 1 or case.text == SHARED)
    a = bench.params[0].reshape([-1 if i == 1 and case.text != SHARED else 1 for i in range(x.ndim)])
    close = {"rtol": 1e-4, "atol": 1e-3} if dtype is np.float32 else {"rtol": 1e-12, "atol": 1e-9}
    np.testing.assert_allclose(y, np.where(x > 0, x, a * x), **close)
    np.testing.assert_allclose(dx, np.where(x > 0, dy, a * dy), **close)
    np.testing.assert_allclose(da, np.where(x > 0, 0, dy * x).sum(axis=axes), **close)
    assert da.dtype == dtype and da.shape == bench.params[0].shape


def test_at_zero_the_slope_counts_and_nan_has_no_gradient():
    bench = LayerBench("PReLU", SHARED, ((1, 4),), propagate_down=(True,), param_propagate=(False,))
    bench.params = [np.array(0.5)]
    (y,) = bench.forward([[[2.0, 0.0, -4.0, np.nan]]])
    assert y[0, :3].tolist() == [2, 0, -2] and np.isnan(y[0, 3])
    (dx,), (da,) = bench.backward([[[6.0, 6.0, 6.0, 6.0]]])
    assert dx.tolist() == [[6, 3, 3, 0]] and da is None


def test_the_slopes_gradient_adds_up():
    bench = LayerBench("PReLU", "", ((2, 2),))
    bench.forward([[[-1.0, 2.0], [-3.0, -5.0]]])
    dy = [[10.0, 10.0], [1.0, 2.0]]
    assert bench.backward([dy])[1][0].tolist() == [-13, -10]
    assert bench.backward([dy], accumulate=[True], param_diffs=[np.array([1.0, 1.0])])[1][0].tolist() == [-12, -9]


def test_gradients_of_nothing_are_zero():
    bench = LayerBench("PReLU", "", ((0, 2, 3),))
    bench.forward([np.empty((0, 2, 3))])
    assert bench.backward([np.empty((0, 2, 3))])[1][0].tolist() == [0, 0]
    kept = bench.backward([np.empty((0, 2, 3))], accumulate=[True], param_diffs=[np.array([7.0, 8.0])])[1][0]
    assert kept.tolist() == [7, 8]


@pytest.mark.parametrize(("down", "learn"), [(True, False), (False, True), (False, False)])
def test_only_what_is_wanted_is_written(down, learn):
    bench = LayerBench("PReLU", "", ((3, 2, 4),), propagate_down=(down,), param_propagate=(learn,))
    x = np.random.default_rng(5).normal(size=(3, 2, 4))
    bench.forward([x])
    if down or learn:
        check_gradient(bench, [x], kinks=[0.0])
    (dx,), (da,) = bench.backward([x])
    assert (dx is not None, da is not None) == (down, learn)


def test_backward_may_overwrite_the_top_diff():
    """In place the two diffs are the same memory; the net keeps the data that the layer reads elsewhere."""
    bench = LayerBench("PReLU", "", ((3, 2, 4),))
    x, dy = np.random.default_rng(6).normal(size=(2, 3, 2, 4))
    bench.forward([x])
    (dx,), (da,) = bench.backward([dy])
    ops, both, sums = bench.device.ops, dy.copy(), np.empty(2)
    ops.prelu.backward(x, bench.params[0], both, both, sums, False, bench.scratch["work"], Grid(3, 2, 4))
    np.testing.assert_array_equal(both, dx)
    np.testing.assert_array_equal(sums, da)


def test_needs_and_parameters():
    layer = LayerBench("PReLU", "", ((2, 3, 4),)).layer
    bottom, slope = frozenset({0}), frozenset({0})
    assert layer.backward_needs([True], [True]) == Needs(bottoms=bottom, params=slope)
    assert layer.backward_needs([True], [False]) == Needs(bottoms=bottom, params=slope)
    assert layer.backward_needs([False], [True]) == Needs(bottoms=bottom)
    assert layer.backward_needs([False], [False]) == Needs()
    (request,) = layer.params
    assert request.shape == (3,) and (request.filler.type, request.filler.value) == ("constant", 0.25)
    (request,) = LayerBench("PReLU", SHARED, ((2, 3, 4),)).layer.params
    assert request.shape == ()
    filled = LayerBench("PReLU", 'prelu_param { filler { type: "gaussian" std: 2 } }', ((2, 3),)).layer.params[0].filler
    assert (filled.type, filled.std) == ("gaussian", 2)


def test_wrong_shapes():
    with pytest.raises(ShapeError, match=r'layer "l" \(PReLU\), blob "b0".*fewer than 2 axes'):
        LayerBench("PReLU", "", ((4,),))
    bench = LayerBench("PReLU", "", ((4, 3),))
    bench.reshape(((5, 3, 2),))
    with pytest.raises(ShapeError, match="has 2 channels, but the layer has 3 slopes"):
        bench.reshape(((4, 2),))
    LayerBench("PReLU", SHARED, ((4, 3),)).reshape(((4, 2),))
