"""Softmax and SoftmaxWithLoss against plain loops, the normalisation table, and gradients."""

from __future__ import annotations

import math

import numpy as np
import pytest

from pycaffe_lms.errors import BlobCountError, LayerParamError, ShapeError
from pycaffe_lms.layers.base import Needs

from .cases import Case
from .harness import LayerBench, check_gradient

S = (3, 4, 2, 2)
FIRST = "softmax_param { axis: 0 }"


def _loss(text, scores=S, labels=(3, 2, 2), high=4, n_top=1):
    return Case("SoftmaxWithLoss", text, (scores, labels), n_top=n_top, integer_bottoms=((1, high),))


SOFTMAX: list[Case] = [
    Case("Softmax", "", (S,)),
    Case("Softmax", "softmax_param { axis: -1 engine: CUDNN }", (S,)),
    Case("Softmax", FIRST, ((5, 2),)),
    Case("Softmax", "", ((4, 300),)),  # rows of neighbours longer than a block of threads
    Case("Softmax", "", ((2, 40, 3),)),
    Case("Softmax", "softmax_param { axis: 0 }", ((6,),)),
    Case("Softmax", "", ((0, 3),)),
    Case("Softmax", "", ((0, 50),)),
]
LOSS: list[Case] = [
    _loss(""),
    _loss("", (5, 4), (5,)),
    _loss("", (5, 4), (5, 1, 1, 1)),
    _loss("loss_param { ignore_label: 1 }"),
    _loss("loss_param { ignore_label: 1 normalization: FULL }"),
    _loss("loss_param { ignore_label: 1 normalization: BATCH_SIZE }"),
    _loss("loss_param { ignore_label: 1 normalization: NONE }"),
    _loss("loss_param { ignore_label: 1 normalize: false }"),
    _loss("loss_param { ignore_label: 1 normalize: true }"),
    _loss("loss_param { ignore_label: 1 normalize: false normalization: VALID }"),
    _loss("softmax_param { axis: -1 }", (3, 2, 5), (3, 2), 5),
    _loss("", (2, 50, 40, 30), (2, 40, 30), 50),  # more than one part
    _loss("loss_param { ignore_label: 3 }", (600, 33), (600,), 33),
    _loss("loss_weight: 1 loss_weight: 0", n_top=2),
    _loss("", (0, 4), (0,)),
    _loss("loss_param { ignore_label: 1 }", (0, 4, 2), (0, 2)),
]
CASES = SOFTMAX + LOSS


def softmax(x, axis):
    e = np.exp(x - x.max(axis=axis, keepdims=True))
    return e / e.sum(axis=axis, keepdims=True)


@pytest.mark.parametrize("dtype, tolerance", [(np.float32, 2e-6), (np.float64, 1e-13)], ids=["f32", "f64"])
@pytest.mark.parametrize("case", [c for c in SOFTMAX if 0 not in c.shapes[0]], ids=str)
def test_softmax_is_the_formula(case, dtype, tolerance):
    bench, (x,) = case.bench(dtype), case.make_bottoms(np.random.default_rng(1))
    (y,) = bench.forward([x])
    np.testing.assert_allclose(y, softmax(x, bench.layer.param.softmax_param.axis), rtol=tolerance)
    dy = np.random.default_rng(2).normal(size=y.shape)
    (dx,), _ = bench.backward([dy])
    dot = (dy * y).sum(axis=bench.layer.param.softmax_param.axis, keepdims=True)
    np.testing.assert_allclose(dx, y * (dy - dot), rtol=10 * tolerance, atol=tolerance)


@pytest.mark.parametrize("case", [c for c in SOFTMAX if 0 < np.prod(c.shapes[0]) < 300], ids=str)
def test_softmax_gradient(case):
    check_gradient(case.bench(), case.make_bottoms(np.random.default_rng(2)))


def test_softmax_of_large_and_infinite_scores():
    bench = LayerBench("Softmax", "", ((3, 2),), dtype=np.float32)
    (y,) = bench.forward([[[1e30, 1e30], [-np.inf, 0], [np.inf, 0]]])
    assert y[:2].tolist() == [[0.5, 0.5], [0, 1]] and np.isnan(y[2]).any()


@pytest.mark.parametrize("case", [c for c in SOFTMAX if 0 in c.shapes[0]], ids=str)
def test_softmax_of_nothing(case):
    bench = case.bench()
    assert bench.forward([np.zeros(case.shapes[0])])[0].shape == case.shapes[0]
    assert bench.backward([np.zeros(case.shapes[0])])[0][0].shape == case.shapes[0]


def reference(x, label, layer):
    """Return (loss, gradient), computed one position at a time."""
    param, (outer, c, inner) = layer.param.loss_param, layer.grid
    p = softmax(x.reshape(outer, c, inner), 1) if x.size else x.reshape(outer, c, inner)
    label, total, valid, dx = label.reshape(outer, inner), 0.0, 0, p.copy()
    for o, i in np.ndindex(outer, inner):
        k = int(label[o, i])
        if param.HasField("ignore_label") and k == param.ignore_label:
            dx[o, :, i] = 0
            continue
        valid += 1
        total -= math.log(max(p[o, k, i], 1.1754944e-38))
        dx[o, k, i] -= 1
    mode = param.normalization
    if param.HasField("normalize") and not param.HasField("normalization"):
        mode = param.VALID if param.normalize else param.BATCH_SIZE
    z = {param.VALID: valid, param.FULL: outer * inner, param.BATCH_SIZE: outer, param.NONE: 1}[mode]
    return total / max(1, z), dx.reshape(x.shape) / max(1, z)


@pytest.mark.parametrize("dtype, tolerance", [(np.float32, 2e-6), (np.float64, 1e-12)], ids=["f32", "f64"])
@pytest.mark.parametrize("case", LOSS, ids=str)
def test_loss_is_the_formula(case, dtype, tolerance):
    bench, (x, label) = case.bench(dtype), case.make_bottoms(np.random.default_rng(3))
    loss, *prob = bench.forward([x, label])
    value, gradient = reference(x, label, bench.layer)
    assert loss.shape == () and float(loss) == pytest.approx(value, rel=10 * tolerance)
    if prob:
        np.testing.assert_allclose(prob[0], softmax(x, 1), rtol=tolerance)
    (dx, _), _ = bench.backward([np.array(0.7), None][: case.n_top])
    np.testing.assert_allclose(dx, 0.7 * gradient, rtol=10 * tolerance, atol=tolerance)


@pytest.mark.parametrize("case", [c for c in LOSS if 0 < np.prod(c.shapes[0]) < 100 and c.n_top == 1], ids=str)
def test_loss_gradient(case):
    check_gradient(case.bench(), case.make_bottoms(np.random.default_rng(4)), only_bottoms=[0])


@pytest.mark.parametrize(
    "text, factor",
    [
        ("", 1),
        ("ignore_label: 1", 1),
        ("ignore_label: 1 normalization: FULL", 0.5),
        ("ignore_label: 1 normalization: NONE", 2),
        ("normalization: NONE", 4),
        ("normalize: false", 2),
        ("normalization: BATCH_SIZE ignore_label: 1", 1),
    ],
)
def test_recorded_normalisations(text, factor):
    bench = LayerBench("SoftmaxWithLoss", f"loss_param {{ {text} }}", ((2, 3, 2, 1), (2, 2, 1)))
    loss = bench.forward([np.zeros((2, 3, 2, 1)), [[[0], [1]], [[1], [2]]]])[0]
    assert float(loss) == pytest.approx(factor * math.log(3))


def test_all_labels_ignored():
    bench = LayerBench("SoftmaxWithLoss", "loss_param { ignore_label: -1 }", ((2, 3), (2,)))
    assert bench.forward([np.ones((2, 3)), [-1, -1]])[0] == 0
    assert not bench.backward([np.array(1.0)])[0][0].any()


def test_the_floor_of_the_probability():
    bench = LayerBench("SoftmaxWithLoss", "", ((1, 2), (1,)))
    assert float(bench.forward([[[0.0, 1000.0]], [0]])[0]) == pytest.approx(-math.log(1.1754944e-38))


@pytest.mark.parametrize("bad", [3, -1, 1e30, np.nan, -np.inf])
def test_a_label_out_of_range_gives_nan(bad):
    bench = LayerBench("SoftmaxWithLoss", "", ((2, 3), (2,)))
    assert np.isnan(bench.forward([np.zeros((2, 3)), [bad, 1]])[0])
    dx = bench.backward([np.array(1.0)])[0][0]
    assert np.isnan(dx[0]).all() and dx[1] == pytest.approx([1 / 6, -1 / 3, 1 / 6])


def test_labels_are_cut_toward_zero():
    bench = LayerBench("SoftmaxWithLoss", "", ((2, 3), (2,)))
    whole = bench.forward([[[0.0, 1, 2], [2, 1, 0]], [0, 2]])[0]
    assert bench.forward([[[0.0, 1, 2], [2, 1, 0]], [-0.9, 2.9]])[0] == whole


def test_no_gradient_of_the_loss_means_zeros():
    bench = LayerBench("SoftmaxWithLoss", "", ((2, 3), (2,)), n_top=2)
    bench.forward([np.zeros((2, 3)), [0, 1]])
    assert not bench.backward([None, np.ones((2, 3))])[0][0].any()


def test_declarations():
    layer = LayerBench("SoftmaxWithLoss", "", ((2, 3), (2,))).layer
    assert layer.declares.is_loss and layer.declares.no_backward == layer.declares.ignores_force_backward == {1}
    assert layer.backward_needs([True, False], []) == Needs(bottoms=frozenset({1}))
    assert layer.backward_needs([False, False], []) == Needs()
    assert "prob" in layer.scratches
    layer = LayerBench("SoftmaxWithLoss", "", ((2, 3), (2,)), n_top=2).layer
    assert layer.backward_needs([True, False], []) == Needs(bottoms=frozenset({1}), tops=frozenset({1}))
    assert "prob" not in layer.scratches
    bench = LayerBench("SoftmaxWithLoss", "", ((2, 3), (2,)), needs_backward=False)
    assert float(bench.forward([np.zeros((2, 3)), [0, 1]])[0]) == pytest.approx(math.log(3))
    layer = LayerBench("Softmax", "", ((2, 3),)).layer
    assert layer.backward_needs([True], []) == Needs(tops=frozenset({0}))


@pytest.mark.parametrize(
    "type, text, shapes, error, message",
    [
        ("Softmax", "", ((4,),), LayerParamError, "axis 1 is out of range"),
        ("SoftmaxWithLoss", "softmax_param { axis: 3 }", ((2, 3), (2,)), LayerParamError, "axis 3 is out of range"),
        ("SoftmaxWithLoss", "", ((2, 3), (3,)), ShapeError, "the first axes differ"),
        ("SoftmaxWithLoss", "", ((2, 3, 5), (2,)), ShapeError, "2 labels, but .* 10 positions"),
        ("SoftmaxWithLoss", "", ((2, 3),), BlobCountError, "takes 2 bottom"),
    ],
)
def test_refused(type, text, shapes, error, message):
    with pytest.raises(error, match=f'layer "l".*{message}'):
        LayerBench(type, text, shapes)


@pytest.mark.parametrize(
    "kind, more", [("SoftmaxWithLoss", ()), ("MultinomialLogisticLoss", ()), ("InfogainLoss", (np.eye(2),))]
)
def test_the_loss_of_a_perfect_prediction_has_no_minus(kind, more):
    """As in Caffe, which subtracts logarithms from 0: nobody reads "loss = -0"."""
    bench = LayerBench(kind, "", ((2, 2), (2,), *(m.shape for m in more)), dtype=np.float32)
    scores = np.eye(2, dtype=np.float32) * (1 if kind == "MultinomialLogisticLoss" else 200)
    (loss,) = bench.forward([scores, np.arange(2, dtype=np.float32), *(m.astype(np.float32) for m in more)])
    assert loss == 0 and not np.signbit(loss)
