"""HingeLoss and ContrastiveLoss against plain loops, and their gradients."""

from __future__ import annotations

import math

import numpy as np
import pytest

from pycaffe_lms.errors import BlobCountError, ShapeError
from pycaffe_lms.layers.base import Needs

from .cases import Case
from .harness import LayerBench, check_gradient

L2 = "hinge_loss_param { norm: L2 }"


def _hinge(text, scores, labels, high):
    return Case("HingeLoss", text, (scores, labels), integer_bottoms=((1, high),))


def _contrastive(fields, *shapes):
    return Case("ContrastiveLoss", f"contrastive_loss_param {{ {fields} }}", shapes, integer_bottoms=((2, 2),))


HINGE: list[Case] = [
    _hinge("", (5, 4), (5,), 4),
    _hinge(L2, (5, 4), (5,), 4),
    _hinge("hinge_loss_param { norm: L1 }", (3, 2, 2), (3, 1, 1, 1), 4),
    _hinge(L2, (6000, 9), (6000,), 9),
    _hinge("", (0, 4), (0,), 4),
]
PAIRS: list[Case] = [
    _contrastive("", (6, 3), (6, 3), (6,)),
    _contrastive("margin: 3.5", (6, 3), (6, 3), (6,)),
    _contrastive("margin: 5 legacy_version: true", (6, 3), (6, 3), (6, 1, 1, 1)),
    _contrastive("margin: 2", (5, 2, 1, 1), (5, 2, 1, 1), (5, 1)),
    _contrastive("margin: 40", (3000, 70), (3000, 70), (3000,)),
    _contrastive("", (4,), (4,), (4,)),
    _contrastive("", (0, 3), (0, 3), (0,)),
]
CASES = HINGE + PAIRS
SMALL = [c for c in CASES if 0 < np.prod(c.shapes[0]) < 100]


def hinge(x, label, squared):
    """Return the loss and its gradient, one score at a time."""
    x, label = x.reshape(len(x), int(np.prod(x.shape[1:]))), label.reshape(-1)
    total, dx = 0.0, np.zeros(x.shape)
    for n, k in np.ndindex(*x.shape):
        sign = 1 if int(label[n]) == k else -1
        m = max(0.0, 1 - sign * x[n, k])
        total += m * m if squared else m
        dx[n, k] = -sign * (2 * m if squared else float(m > 0))
    return total / max(1, len(x)), dx / max(1, len(x))


def contrastive(a, b, y, margin, legacy):
    """Return the loss and its gradient for a, one pair at a time."""
    total, da = 0.0, np.zeros(a.shape)
    for n in range(len(a)):
        difference = a[n] - b[n]
        squared = float((difference**2).sum())
        d = math.sqrt(squared)
        if int(y.reshape(-1)[n]):
            total += squared
            da[n] = difference
        elif legacy:
            total += max(margin - squared, 0)
            da[n] = -difference if margin > squared else 0
        else:
            total += max(margin - d, 0) ** 2
            da[n] = -(margin - d) / (d + 1e-4) * difference if margin > d else 0
    return total / 2 / max(1, len(a)), da / max(1, len(a))


TYPES = [(np.float32, 2e-5), (np.float64, 1e-11)]


@pytest.mark.parametrize("dtype, tolerance", TYPES, ids=["f32", "f64"])
@pytest.mark.parametrize("case", HINGE, ids=str)
def test_hinge_is_the_formula(case, dtype, tolerance):
    bench, (x, label) = case.bench(dtype), case.make_bottoms(np.random.default_rng(3))
    value, gradient = hinge(x, label, bench.layer.squared)
    assert float(bench.forward([x, label])[0]) == pytest.approx(value, rel=tolerance)
    (dx, none), _ = bench.backward([np.array(0.7)])
    np.testing.assert_allclose(dx.reshape(-1), 0.7 * gradient.reshape(-1), rtol=tolerance, atol=tolerance)
    assert none is None


@pytest.mark.parametrize("dtype, tolerance", TYPES, ids=["f32", "f64"])
@pytest.mark.parametrize("case", PAIRS, ids=str)
def test_contrastive_is_the_formula(case, dtype, tolerance):
    bench, (a, b, y) = case.bench(dtype), case.make_bottoms(np.random.default_rng(3))
    value, gradient = contrastive(a, b, y, bench.layer.margin, bench.layer.legacy)
    assert float(bench.forward([a, b, y])[0]) == pytest.approx(value, rel=tolerance)
    (da, db, none), _ = bench.backward([np.array(0.7)])
    np.testing.assert_allclose(da, 0.7 * gradient, rtol=10 * tolerance, atol=tolerance)
    np.testing.assert_array_equal(db, -da)
    assert none is None


@pytest.mark.parametrize("case", SMALL, ids=str)
def test_gradient(case):
    # Caffe adds 1e-4 to a distance: the gradient of dissimilar pairs is that much smaller than the difference quotient
    contrastive = case.type == "ContrastiveLoss" and "legacy" not in case.text
    kinks = (1.0, -1.0) if case.type == "HingeLoss" else ()
    tol = 5e-4 if contrastive else 1e-6
    check_gradient(case.bench(), case.make_bottoms(np.random.default_rng(4)), tol=tol, kinks=kinks)


def test_recorded_hinge_values():
    scores, label = [[0.5, -2.0, 3.0]], [2.9]
    for text, value, gradient in (("", 1.5, [1, 0, 0]), (L2, 2.25, [3, 0, 0])):
        bench = LayerBench("HingeLoss", text, ((1, 3), (1,)))
        assert float(bench.forward([scores, label])[0]) == value
        np.testing.assert_array_equal(bench.backward([np.array(1.0)])[0][0], [gradient])


@pytest.mark.parametrize("legacy, value, slope", [(False, 0.5, -1 / 1.0001), (True, 1.5, -1)])
def test_recorded_distances(legacy, value, slope):
    text = f"contrastive_loss_param {{ margin: {4 if legacy else 2} legacy_version: {str(legacy).lower()} }}"
    bench = LayerBench("ContrastiveLoss", text, ((1, 2), (1, 2), (1,)))
    assert float(bench.forward([[[1.0, 2.0]], [[1.0, 1.0]], [0.9]])[0]) == value
    da, db, _ = bench.backward([np.array(1.0)])[0]
    np.testing.assert_allclose(da, [[0, slope]])
    np.testing.assert_allclose(db, [[0, -slope]])


def test_equal_points_have_no_gradient():
    bench = LayerBench("ContrastiveLoss", "", ((1, 2), (1, 2), (1,)))
    assert float(bench.forward([np.ones((1, 2)), np.ones((1, 2)), [0]])[0]) == 0.5
    assert not bench.backward([np.array(1.0)])[0][0].any()


@pytest.mark.parametrize("bad", [3, -1, 1e30, np.nan, -np.inf])
def test_a_label_out_of_range_gives_nan(bad):
    bench = LayerBench("HingeLoss", "", ((2, 3), (2,)))
    assert np.isnan(bench.forward([np.zeros((2, 3)), [bad, 1]])[0])
    dx = bench.backward([np.array(1.0)])[0][0]
    assert np.isnan(dx[0]).all() and dx[1] == pytest.approx([0.5, -0.5, 0.5])


@pytest.mark.parametrize("value, loss", [(-1e30, np.inf), (np.inf, np.nan), (np.nan, np.nan)])
def test_diverging_scores_end_in_inf_or_nan(value, loss):
    pairs = LayerBench("ContrastiveLoss", "", ((1, 1), (1, 1), (1,)), dtype=np.float32)
    hinges = LayerBench("HingeLoss", L2, ((1, 1), (1,)), dtype=np.float32)
    other = value if np.isinf(value) else 0
    np.testing.assert_equal(float(pairs.forward([[[value]], [[other]], [1]])[0]), loss)
    np.testing.assert_equal(float(hinges.forward([[[value]], [0]])[0]), 0 if np.isinf(value) else loss)
    for bench in (pairs, hinges):
        assert bench.backward([np.array(1.0)])[0][0].shape == (1, 1)


def test_the_batch_may_grow():
    bench = LayerBench("ContrastiveLoss", "", ((1, 2), (1, 2), (1,)))
    bench.reshape([(5, 2), (5, 2), (5,)])
    check_gradient(bench, [*np.random.default_rng(2).normal(size=(2, 5, 2)), np.array([0, 1, 0, 1, 1])], tol=5e-4)


@pytest.mark.parametrize("down", [(True, False, False), (False, True, False)])
def test_one_side_alone(down):
    bench = LayerBench("ContrastiveLoss", "", ((3, 2), (3, 2), (3,)), propagate_down=down)
    check_gradient(bench, [*np.random.default_rng(2).normal(size=(2, 3, 2)), np.array([0, 1, 0])], tol=5e-4)


def test_declarations():
    layer = LayerBench("HingeLoss", "", ((2, 3), (2,))).layer
    assert layer.declares.is_loss and layer.declares.no_backward == layer.declares.ignores_force_backward == {1}
    assert layer.backward_needs([True, False], []) == Needs(bottoms=frozenset({0, 1}))
    assert layer.backward_needs([False, False], []) == Needs()
    layer = LayerBench("ContrastiveLoss", "", ((2, 3), (2, 3), (2,))).layer
    assert layer.declares.is_loss and layer.declares.no_backward == layer.declares.ignores_force_backward == {2}
    assert layer.backward_needs([False, True, False], []) == Needs(bottoms=frozenset({0, 1, 2}))
    assert layer.backward_needs([False] * 3, []) == Needs()
    bench = LayerBench("ContrastiveLoss", "", ((1, 2), (1, 2), (1,)), needs_backward=False)
    assert float(bench.forward([[[1.0, 2.0]], [[1.0, 1.0]], [1]])[0]) == 0.5


@pytest.mark.parametrize(
    "type, shapes, error, message",
    [
        ("HingeLoss", ((2, 3), (3,)), ShapeError, "the first axes differ"),
        ("HingeLoss", ((2, 3), (2, 2)), ShapeError, "an item has one label"),
        ("HingeLoss", ((2, 3),), BlobCountError, "takes 2 bottom"),
        ("ContrastiveLoss", ((2, 3), (2, 3)), BlobCountError, "takes 3 bottom"),
        ("ContrastiveLoss", ((2, 3), (2, 4), (2,)), ShapeError, "not 2 items of 3 channels"),
        ("ContrastiveLoss", ((2, 3, 2), (2, 3, 2), (2,)), ShapeError, "no further size"),
        ("ContrastiveLoss", ((2, 3), (2, 3), (2, 2)), ShapeError, "not 2 items of 1 channels"),
        ("ContrastiveLoss", ((2, 3), (2, 3), (3,)), ShapeError, "the first axes differ"),
    ],
)
def test_refused(type, shapes, error, message):
    with pytest.raises(error, match=f'layer "l".*{message}'):
        LayerBench(type, "", shapes)
