"""MVN against its formulas."""

from __future__ import annotations

import numpy as np
import pytest

from pycaffe_lms.errors import ShapeError
from pycaffe_lms.layers.base import Needs

from .cases import Case
from .harness import LayerBench, check_gradient

ACROSS, CENTRE = "mvn_param { across_channels: true }", "mvn_param { normalize_variance: false }"

CASES: list[Case] = [
    Case("MVN", "", ((2, 3, 4, 5),)),
    Case("MVN", "", ((2, 3, 4, 5),), in_place=True),
    Case("MVN", ACROSS, ((2, 3, 4, 5),)),
    Case("MVN", CENTRE, ((2, 3, 4, 5),)),
    Case("MVN", CENTRE, ((2, 3, 4, 5),), in_place=True),
    Case("MVN", "mvn_param { normalize_variance: false across_channels: true }", ((2, 3, 4),)),
    Case("MVN", ACROSS, ((3, 7),)),
    Case("MVN", "mvn_param { eps: 0.5 }", ((3, 2, 9),)),
    Case("MVN", "", ((2, 3, 90, 80),)),  # more than one part
    Case("MVN", ACROSS, ((2, 3, 90, 80),)),
    Case("MVN", CENTRE, ((5, 4),)),  # rows of one value
    Case("MVN", "", ((0, 3, 2, 2),)),
    Case("MVN", "", ((2, 3, 0, 2),)),
    Case("MVN", ACROSS, ((0, 3, 2, 2),)),
]
SMALL = [c for c in CASES if 0 < np.prod(c.shapes[0]) < 1000]


def reference(x, layer):
    """Return (y, standard deviation + eps of each row), row by row."""
    rows = np.asarray(x, np.float64).reshape(layer.size)
    y, scale = np.zeros_like(rows), np.ones(len(rows))
    for i, row in enumerate(rows):
        y[i] = row - row.mean()
        if layer.variance:
            scale[i] = np.sqrt(np.square(y[i]).mean()) + layer.eps
            y[i] /= scale[i]
    return y, scale


@pytest.mark.parametrize("dtype, tol", [(np.float32, 1e-4), (np.float64, 1e-12)], ids=["f32", "f64"])
@pytest.mark.parametrize("case", CASES, ids=str)
def test_forward_and_backward_follow_the_formulas(case, dtype, tol):
    bench, rng = case.bench(dtype), np.random.default_rng(1)
    x = case.make_bottoms(rng)[0].astype(dtype)
    (top,) = bench.forward([x])
    shape = case.shapes[0]
    assert bench.top_shapes[0] == (*shape, *(1,) * (4 - len(shape)))
    if not x.size:
        assert bench.backward([top])[0][0].size == 0
        return
    y, scale = reference(x, bench.layer)
    np.testing.assert_allclose(top.reshape(y.shape), y, rtol=tol, atol=tol)
    dy = rng.normal(size=top.shape).astype(dtype)
    (dx,), _ = bench.backward([dy])
    dy = dy.reshape(y.shape).astype(np.float64)
    wanted = dy - dy.mean(axis=1, keepdims=True)
    if bench.layer.variance:
        wanted -= y * (dy * y).mean(axis=1, keepdims=True)
    np.testing.assert_allclose(dx.reshape(y.shape), wanted / scale[:, None], rtol=tol, atol=tol)


@pytest.mark.parametrize("case", [c for c in SMALL if "eps" not in c.text], ids=str)
def test_gradient(case):
    check_gradient(case.bench(), case.make_bottoms(np.random.default_rng(2)))


def test_eps_is_added_behind_the_square_root():
    bench = LayerBench("MVN", "mvn_param { eps: 1 }", ((1, 1, 1, 2),))
    assert bench.forward([[[[1, 5]]]])[0].reshape(-1).tolist() == [-2 / 3, 2 / 3]


def test_large_means_cost_no_digits():
    bench = LayerBench("MVN", "", ((1, 1, 64, 64),), dtype=np.float32)
    x = np.random.default_rng(3).normal(size=(1, 1, 64, 64)) + 1000
    (y,) = bench.forward([x])
    np.testing.assert_allclose(y, (x - x.mean()) / x.std(), atol=1e-3)


def test_needs_and_propagate_down():
    bench = LayerBench("MVN", "", ((2, 3, 2, 2),))
    assert bench.layer.backward_needs([True], []) == Needs(tops=frozenset({0}))
    assert bench.layer.backward_needs([False], []) == Needs()
    assert LayerBench("MVN", CENTRE, ((2, 3, 2, 2),)).layer.backward_needs([True], []) == Needs()
    bench = LayerBench("MVN", "", ((2, 3),), propagate_down=(False,))
    (y,) = bench.forward([np.ones((2, 3))])
    assert bench.backward([y])[0] == [None] and not y.any()
    bench = LayerBench("MVN", "", ((2, 3, 2),), needs_backward=False)
    assert np.isfinite(bench.forward([np.random.default_rng(4).normal(size=(2, 3, 2))])[0]).all()


def test_more_than_four_axes_are_refused():
    with pytest.raises(ShapeError, match='layer "l".*more than 4 axes'):
        LayerBench("MVN", "", ((1, 2, 3, 4, 5),))
