"""LinearSoftmaxWithLoss against loops in double, against InnerProduct and SoftmaxWithLoss, and what it keeps."""

from __future__ import annotations

import math

import numpy as np
import pytest

from pycaffe_lms.errors import LayerParamError, ShapeError
from pycaffe_lms.layers.base import Lives, Needs
from pycaffe_lms.layers.loss import linear_softmax_loss

from .cases import Case
from .harness import LayerBench, check_gradient


def _case(x, labels, classes, ip="", loss=""):
    fill = 'weight_filler { type: "gaussian" std: 0.5 } bias_filler { type: "gaussian" }'
    text = f"inner_product_param {{ num_output: {classes} {fill} {ip} }} {loss}"
    return Case("LinearSoftmaxWithLoss", text, (x, labels), integer_bottoms=((1, classes),))


CASES: list[Case] = [
    _case((5, 4), (5,), 3),
    _case((2, 3, 4), (2, 3), 5, "axis: 2 bias_term: false"),
    _case((2, 3, 4), (2, 3), 5, "axis: -1 transpose: true", "loss_param { ignore_label: 1 }"),
    _case((3, 2, 2), (3, 1), 4, "", "loss_param { ignore_label: 2 normalization: FULL }"),
    _case((3, 2, 2), (3, 2), 4, "axis: 2", "loss_param { normalization: BATCH_SIZE }"),
    _case((3, 2), (3,), 4, "", "loss_param { ignore_label: 2 normalization: NONE }"),
    _case((3, 2), (3,), 4, "", "loss_param { ignore_label: 2 normalize: true }"),
    _case((3, 2), (3,), 4, "", "loss_param { normalization: PRE_FIXED pre_fixed_normalizer: 7 }"),
    _case((0, 2), (0,), 4, "", "loss_param { ignore_label: 2 }"),
    Case("LinearSoftmaxWithLoss", "inner_product_param { num_output: 3 }", ((4, 2), (4,)), integer_bottoms=((1, 3),)),
    _case((3, 70, 16), (3, 70), 300, "axis: 2 bias_term: false"),
]
SMALL = [c for c in CASES if 0 < np.prod(c.shapes[0]) < 100]


def in_loops(bench, x, labels):
    """Return (loss, dx, dw, db), one position at a time, in double."""
    layer, params = bench.layer, [np.array(p, np.float64) for p in bench.params]
    loss, transpose = layer.param.loss_param, layer.param.inner_product_param.transpose
    w = params[0].T if transpose else params[0]
    b = params[1] if len(params) > 1 else np.zeros(len(w))
    rows, labels = x.reshape(labels.size, layer.width), labels.reshape(-1)
    dx, dw, db, total, valid = np.zeros(rows.shape), np.zeros(w.shape), np.zeros(b.shape), 0.0, 0
    for i, label in enumerate(labels.astype(int)):
        if loss.HasField("ignore_label") and label == loss.ignore_label:
            continue
        valid += 1
        scores = [math.fsum(rows[i] * row) + bias for row, bias in zip(w, b, strict=True)]
        p = np.exp(np.array(scores) - max(scores))
        p /= math.fsum(p)
        total -= math.log(p[label])
        p[label] -= 1
        dx[i], dw, db = p @ w, dw + np.outer(p, rows[i]), db + p
    n = len(labels)
    z = {loss.VALID: valid, loss.FULL: n, loss.BATCH_SIZE: n, loss.NONE: 1}
    z = max(1, z.get(loss.normalization, loss.pre_fixed_normalizer))
    dw = dw.T if transpose else dw
    return total / z, dx.reshape(x.shape) / z, [dw / z, db / z][: len(params)]


@pytest.mark.parametrize("dtype, tolerance", [(np.float32, 2e-6), (np.float64, 1e-13)], ids=["f32", "f64"])
@pytest.mark.parametrize("rows", [None, 1, 2])
@pytest.mark.parametrize("case", CASES, ids=str)
def test_is_the_loop(case, dtype, tolerance, rows, monkeypatch):
    """With all positions at once, and with chunks of which the last may be smaller."""
    if rows is not None:
        classes = int(case.text.split("num_output: ")[1].split()[0])
        monkeypatch.setattr(linear_softmax_loss, "_CHUNK_BYTES", rows * classes * np.dtype(dtype).itemsize)
    bench, (x, labels) = case.bench(dtype), case.make_bottoms(np.random.default_rng(1))
    assert bench.layer.shape.rows == (rows if rows is not None and len(x) else max(1, labels.size))
    x = x.astype(dtype).astype(np.float64)
    loss, dx, d_params = in_loops(bench, x, labels)
    (found,) = bench.forward([x, labels])
    assert found.shape == () and float(found) == pytest.approx(loss, rel=10 * tolerance)
    (found_dx, _), found_params = bench.backward([np.array(0.7)])
    for found, expected in zip([found_dx, *found_params], [dx, *d_params], strict=True):
        np.testing.assert_allclose(found, 0.7 * expected, rtol=50 * tolerance, atol=10 * tolerance)


@pytest.mark.parametrize("case", SMALL, ids=str)
def test_gradient(case):
    bench = case.bench()
    check_gradient(bench, case.make_bottoms(np.random.default_rng(2)), only_bottoms=[0])


@pytest.mark.parametrize("dtype, tolerance", [(np.float32, 3e-6), (np.float64, 1e-13)], ids=["f32", "f64"])
def test_is_inner_product_and_softmax_with_loss(dtype, tolerance, monkeypatch):
    monkeypatch.setattr(linear_softmax_loss, "_CHUNK_BYTES", 7 * 300 * 4)
    case, rng = CASES[-1], np.random.default_rng(3)
    x, labels = case.make_bottoms(rng)
    fused = case.bench(dtype)
    inner = LayerBench("InnerProduct", case.text, (x.shape,), dtype=dtype)
    loss = LayerBench("SoftmaxWithLoss", "softmax_param { axis: 2 }", ((*x.shape[:2], 300), labels.shape), dtype=dtype)
    inner.params[0][...] = fused.params[0]
    (scores,) = inner.forward([x])
    (expected,) = loss.forward([scores, labels])
    assert float(fused.forward([x, labels])[0]) == pytest.approx(float(expected), rel=tolerance)
    (dx, _), (dw,) = fused.backward([np.array(1.0)])
    (slopes, _), _ = loss.backward([np.array(1.0)])
    (expected_dx,), (expected_dw,) = inner.backward([slopes])
    np.testing.assert_allclose(dx, expected_dx, rtol=1e-3 if dtype == np.float32 else 1e-10, atol=tolerance)
    np.testing.assert_allclose(dw, expected_dw, rtol=1e-3 if dtype == np.float32 else 1e-10, atol=tolerance)


def test_large_scores_and_labels_that_name_no_class():
    text = "inner_product_param { num_output: 2 bias_term: false } loss_param { ignore_label: 9 normalization: NONE }"
    bench = LayerBench("LinearSoftmaxWithLoss", text, ((3, 1), (3,)), dtype=np.float32)
    bench.params[0][...] = [[1e4], [-1e4]]
    (loss,) = bench.forward([[[1.0], [1.0], [1.0]], [0, 1, 9]])
    assert float(loss) == 2e4  # the difference of the scores: no probability is taken to be more than it is
    (dx, _), _ = bench.backward([np.array(1.0)])
    assert dx.reshape(-1).tolist() == [0, 2e4, 0]
    for label in (2, -1, np.nan):
        assert np.isnan(bench.forward([[[1.0]] * 3, [0, label, 9]])[0])
        (dx, _), _ = bench.backward([np.array(1.0)])
        assert np.isnan(dx.reshape(-1)).tolist() == [False, True, False]


def test_needs_and_memory():
    """Of a language model's 8192 positions and 128k classes: 64 MiB of scores, not 4 GiB."""
    text = "inner_product_param { num_output: 131072 axis: 2 bias_term: false }"
    layer = LayerBench("LinearSoftmaxWithLoss", text, ((2, 4096, 4), (2, 4096)), dtype="f4").layer
    sizes = {name: (s.nbytes, s.lives) for name, s in layer.scratches.items()}
    assert sizes == {
        "lse": (4 * 8192, Lives.SAVED),
        "norm": (8, Lives.SAVED),
        "scores": (64 << 20, Lives.CALL),
        "losses": (4 * 8192, Lives.CALL),
    }
    assert len(layer.shape.chunks()) == 64 and layer.flops([], []) == 2 * 8192 * 131072 * 4
    assert layer.backward_needs([True, False], [False]) == Needs(bottoms=frozenset({0, 1}), params=frozenset({0}))
    assert layer.backward_needs([False, False], [False]) == Needs()


@pytest.mark.parametrize(
    "text, shapes, error, message",
    [
        ("", ((2, 3), (2,)), LayerParamError, "num_output is 0"),
        ("loss_param { weight_by_label_freqs: true }", ((2, 3), (2,)), LayerParamError, "not for this layer"),
        ("inner_product_param { num_output: 2 axis: 3 }", ((2, 3), (2,)), LayerParamError, "axis"),
        ("inner_product_param { num_output: 2 }", ((2, 0), (2,)), ShapeError, "no values from axis 1 on"),
        ("inner_product_param { num_output: 2 axis: 2 }", ((2, 3, 4), (2,)), ShapeError, "6 positions before axis 2"),
    ],
)
def test_refused(text, shapes, error, message):
    with pytest.raises(error, match=f'layer "l".*{message}'):
        LayerBench("LinearSoftmaxWithLoss", text, shapes)
