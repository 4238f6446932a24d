"""Axpy against plain loops, and its three gradients."""

from __future__ import annotations

import numpy as np
import pytest

from pycaffe_lms.errors import BlobCountError, ShapeError
from pycaffe_lms.layers.base import Needs

from .cases import Case
from .harness import LayerBench, check_gradient

X = (2, 3, 4, 5)

CASES: list[Case] = [
    Case("Axpy", "", ((2, 3), X, X)),
    Case("Axpy", "", ((2, 3, 1, 1), X, X)),
    Case("Axpy", "", ((4, 3), (4, 3), (4, 3))),
    Case("Axpy", "", ((2, 3, 1), (2, 3, 7), (2, 3, 7))),
    Case("Axpy", "", ((2, 3), (2, 3, 40, 50), (2, 3, 40, 50))),  # long rows
    Case("Axpy", "", ((2, 300), (2, 300, 7, 7), (2, 300, 7, 7))),
    Case("Axpy", "", ((0, 3), (0, 3, 2, 2), (0, 3, 2, 2))),
]
SMALL = [c for c in CASES if 0 < np.prod(c.shapes[1]) < 200]


@pytest.mark.parametrize("case", [c for c in CASES if np.prod(c.shapes[1]) < 200], ids=str)
def test_forward_is_the_formula(case):
    bench, (a, x, y) = case.bench(np.float32), case.make_bottoms(np.random.default_rng(1))
    (top,) = bench.forward([a, x, y])
    assert top.shape == x.shape
    flat = np.reshape(a, np.shape(a)[:2])
    for at in np.ndindex(x.shape):
        assert top[at] == pytest.approx(flat[at[:2]] * x[at] + y[at], rel=1e-5, abs=1e-6)


@pytest.mark.parametrize("dtype, tolerance", [(np.float32, 2e-4), (np.float64, 1e-12)], ids=["f32", "f64"])
@pytest.mark.parametrize("case", CASES, ids=str)
def test_gradients_are_the_sums(case, dtype, tolerance):
    bench, (a, x, y) = case.bench(dtype), case.make_bottoms(np.random.default_rng(2))
    bench.forward([a, x, y])
    dtop = np.random.default_rng(3).normal(size=x.shape)
    (da, dx, dy), _ = bench.backward([dtop])
    np.testing.assert_allclose(
        da, (dtop * x).sum(axis=tuple(range(2, x.ndim))).reshape(a.shape), rtol=tolerance, atol=tolerance
    )
    factor = a.reshape(*a.shape[:2], *(1,) * (x.ndim - 2))
    np.testing.assert_allclose(dx, dtop * factor, rtol=tolerance)
    np.testing.assert_array_equal(dy, dtop.astype(dtype))


@pytest.mark.parametrize("case", SMALL, ids=str)
def test_gradient(case):
    check_gradient(case.bench(), case.make_bottoms(np.random.default_rng(4)))


@pytest.mark.parametrize("down", [(True, False, False), (False, True, False), (False, False, True), (False,) * 3])
def test_propagate_down_and_needs(down):
    bench = LayerBench("Axpy", "", ((2, 3), X, X), propagate_down=down)
    reads = {1} if down[0] else {0} if down[1] else set()
    assert bench.layer.backward_needs(list(down), []) == Needs(bottoms=frozenset(reads))
    (top,) = bench.forward([np.ones((2, 3)), np.ones(X), np.ones(X)])
    diffs, _ = bench.backward([top])
    assert [d is not None for d in diffs] == list(down)


@pytest.mark.parametrize(
    "shapes, error, message",
    [
        (((2, 4), X, X), ShapeError, r"has shape \(2, 4\)"),
        (((2, 3, 1, 2), X, X), ShapeError, r"has shape \(2, 3, 1, 2\)"),
        (((2,), (2,), (2,)), ShapeError, "one factor per channel"),
        (((2, 3), X, (2, 3, 5, 4)), ShapeError, "the same shape"),
        (((2, 3), X), BlobCountError, "takes 3 bottom"),
    ],
)
def test_refused(shapes, error, message):
    with pytest.raises(error, match=f'(?s)layer "l".*{message}'):
        LayerBench("Axpy", "", shapes)
