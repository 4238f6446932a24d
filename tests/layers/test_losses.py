"""EuclideanLoss and SigmoidCrossEntropyLoss against plain loops, the normalisation table, and gradients."""

from __future__ import annotations

import math

import numpy as np
import pytest

from pycaffe_lms.errors import BlobCountError, ShapeError
from pycaffe_lms.layers.base import Needs

from .cases import Case
from .harness import LayerBench, check_gradient

SIGMOID = "SigmoidCrossEntropyLoss"


def _sigmoid(loss, *shapes):
    return Case(SIGMOID, f"loss_param {{ {loss} }}", shapes or ((3, 4, 2), (3, 8)))


EUCLIDEAN: list[Case] = [
    Case("EuclideanLoss", "", ((3, 4, 2), (3, 4, 2))),
    Case("EuclideanLoss", "", ((3, 4, 2), (3, 8))),
    Case("EuclideanLoss", "", ((5,), (5, 1))),
    Case("EuclideanLoss", "", ((7, 90, 900), (7, 90, 900))),  # more than one chunk and more than one part
    Case("EuclideanLoss", "", ((0, 3), (0, 3))),
]
CROSS: list[Case] = [
    Case(SIGMOID, "", ((3, 4, 2), (3, 8))),
    Case(SIGMOID, "", ((4,), (4,))),
    _sigmoid("ignore_label: 0"),
    _sigmoid("ignore_label: 0 normalization: VALID"),
    _sigmoid("ignore_label: 1 normalization: FULL"),
    _sigmoid("ignore_label: -1 normalization: NONE"),
    _sigmoid("normalize: true ignore_label: 0"),
    _sigmoid("normalize: false ignore_label: 0"),
    _sigmoid("normalize: false normalization: VALID"),
    _sigmoid("normalization: VALID ignore_label: 0", (7, 90, 900), (7, 81000)),
    _sigmoid("normalization: VALID ignore_label: 0", (0, 3), (0, 3)),
]
CASES = EUCLIDEAN + CROSS
SMALL = [c for c in CASES if 0 < np.prod(c.shapes[0]) < 100]


def cross_entropy(x, t, param):
    """Return the loss and its gradient, one element at a time."""
    total, valid, dx = 0.0, 0, np.zeros(x.size)
    x, t = x.reshape(-1), t.reshape(-1)
    for i in range(x.size):
        if param.HasField("ignore_label") and int(t[i]) == param.ignore_label:
            continue
        p = 1 / (1 + math.exp(-x[i]))
        valid += 1
        total -= t[i] * math.log(p) + (1 - t[i]) * math.log(1 - p)
        dx[i] = p - t[i]
    return total, dx, valid


def mode_of(param):
    if param.HasField("normalization"):
        return param.normalization
    return param.VALID if param.HasField("normalize") and param.normalize else param.BATCH_SIZE


TYPES = [(np.float32, 2e-5), (np.float64, 1e-11)]


@pytest.mark.parametrize("dtype, tolerance", TYPES, ids=["f32", "f64"])
@pytest.mark.parametrize("case", [c for c in CROSS if np.prod(c.shapes[0]) < 100], ids=str)
def test_cross_entropy_is_the_formula(case, dtype, tolerance):
    bench, (x, t) = case.bench(dtype), case.make_bottoms(np.random.default_rng(3))
    param = bench.layer.param.loss_param
    total, gradient, valid = cross_entropy(x, t, param)
    z = {param.VALID: valid, param.FULL: x.size, param.BATCH_SIZE: len(x), param.NONE: 1}[mode_of(param)]
    assert float(bench.forward([x, t])[0]) == pytest.approx(total / max(1, z), rel=tolerance)
    (dx, dt), _ = bench.backward([np.array(0.7)])
    np.testing.assert_allclose(dx.reshape(-1), 0.7 * gradient / max(1, z), rtol=tolerance, atol=tolerance)
    assert dt is None


@pytest.mark.parametrize("dtype, tolerance", TYPES, ids=["f32", "f64"])
@pytest.mark.parametrize("case", EUCLIDEAN, ids=str)
def test_euclidean_is_the_formula(case, dtype, tolerance):
    bench, (a, b) = case.bench(dtype), case.make_bottoms(np.random.default_rng(3))
    items = max(1, len(a))
    expected = math.fsum((a.reshape(-1) - b.reshape(-1)) ** 2) / 2 / items
    assert float(bench.forward([a, b])[0]) == pytest.approx(expected, rel=tolerance)
    (da, db), _ = bench.backward([np.array(3.0)])
    np.testing.assert_allclose(da, 3 * (a - b.reshape(a.shape)) / items, rtol=10 * tolerance, atol=tolerance)
    np.testing.assert_array_equal(db.reshape(-1), -da.reshape(-1))


@pytest.mark.parametrize("case", SMALL, ids=str)
def test_gradient(case):
    check_gradient(case.bench(), case.make_bottoms(np.random.default_rng(4)))


def test_large_scores_stay_finite():
    bench = LayerBench(SIGMOID, "", ((1, 4), (1, 4)), dtype=np.float32)
    assert float(bench.forward([[[1000.0, -1000.0, 1000.0, -1000.0]], [[1.0, 0, 0, 1]]])[0]) == 2000
    np.testing.assert_array_equal(bench.backward([np.array(1.0)])[0][0], [[0, 0, 1, -1]])


@pytest.mark.parametrize("a, b, loss", [(1e30, 0, np.inf), (np.inf, np.inf, np.nan), (np.nan, 0, np.nan)])
def test_diverging_distances_end_in_inf_or_nan(a, b, loss):
    bench = LayerBench("EuclideanLoss", "", ((1, 1), (1, 1)), dtype=np.float32)
    np.testing.assert_equal(float(bench.forward([[[a]], [[b]]])[0]), loss)
    assert bench.backward([np.array(1.0)])[0][0].shape == (1, 1)


@pytest.mark.parametrize("target, ignored", [(0.4, True), (-0.5, True), (0, True), (1, False), (1.9, False)])
def test_the_integer_part_of_a_target_is_ignored(target, ignored):
    bench = LayerBench(SIGMOID, "loss_param { ignore_label: 0 }", ((1, 1), (1, 1)))
    loss = float(bench.forward([[[0.3]], [[target]]])[0])
    dx = bench.backward([np.array(1.0)])[0][0]
    assert (loss == 0) == (dx[0, 0] == 0) == ignored


@pytest.mark.parametrize(
    "text, z", [("", 2), ("normalization: FULL", 6), ("normalization: VALID", 6), ("normalization: NONE", 1)]
)
def test_recorded_normalisations(text, z):
    bench = LayerBench(SIGMOID, f"loss_param {{ {text} }}", ((2, 3), (2, 3)))
    assert float(bench.forward([np.zeros((2, 3)), np.ones((2, 3))])[0]) == pytest.approx(6 * math.log(2) / z)


def test_everything_ignored():
    bench = LayerBench(SIGMOID, "loss_param { ignore_label: 7 normalization: VALID }", ((2, 3), (2, 3)))
    assert bench.forward([np.ones((2, 3)), np.full((2, 3), 7.5)])[0] == 0
    assert not bench.backward([np.array(1.0)])[0][0].any()


@pytest.mark.parametrize("down", [(True, False), (False, True)])
def test_one_side_alone(down):
    bench = LayerBench("EuclideanLoss", "", ((2, 3), (2, 3)), propagate_down=down)
    assert bench.layer.backward_needs(down, ()) == Needs(bottoms=frozenset({0, 1}))
    check_gradient(bench, list(np.random.default_rng(5).normal(size=(2, 2, 3))))


def test_declarations():
    layer = LayerBench("EuclideanLoss", "", ((2, 3), (2, 3))).layer
    assert layer.declares.is_loss and not layer.declares.no_backward and not layer.declares.ignores_force_backward
    assert layer.backward_needs([False, False], []) == Needs()
    layer = LayerBench(SIGMOID, "", ((2, 3), (2, 3))).layer
    assert layer.declares.is_loss and layer.declares.no_backward == layer.declares.ignores_force_backward == {1}
    assert layer.backward_needs([False, False], []) == Needs()
    bench = LayerBench(SIGMOID, "", ((2, 3), (2, 3)), needs_backward=False)
    assert float(bench.forward([np.zeros((2, 3)), np.zeros((2, 3))])[0]) == pytest.approx(3 * math.log(2))


@pytest.mark.parametrize(
    "type, shapes, error, message",
    [
        ("EuclideanLoss", ((2, 3), (3, 3)), ShapeError, "the first axes differ"),
        ("EuclideanLoss", ((2, 3), (2, 4)), ShapeError, "4 elements per item"),
        ("EuclideanLoss", ((), ()), ShapeError, "has no axes"),
        ("EuclideanLoss", ((2, 3),), BlobCountError, "takes 2 bottom"),
        (SIGMOID, ((2, 3), (3, 2)), ShapeError, "the first axes differ"),
        (SIGMOID, ((2, 3), (2,)), ShapeError, "2 targets, but .* 6 elements"),
    ],
)
def test_refused(type, shapes, error, message):
    with pytest.raises(error, match=f'layer "l".*{message}'):
        LayerBench(type, "", shapes)
