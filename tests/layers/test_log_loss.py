"""MultinomialLogisticLoss and InfogainLoss against plain loops, gradients, and the matrix from a file."""

from __future__ import annotations

import math

import numpy as np
import pytest

from pycaffe_lms.backend import cuda_available
from pycaffe_lms.errors import BlobCountError, DataError, LayerParamError, ShapeError, WeightsError
from pycaffe_lms.formats.weights.blobproto import array_to_blobproto
from pycaffe_lms.layers.base import Needs

from .cases import Case
from .harness import CudaArrays, HostArrays, LayerBench, check_gradient

PLAIN = "MultinomialLogisticLoss"


def _infogain(text, scores=(3, 4, 2, 2), labels=(3, 2, 2), c=4, n_top=1, matrix=None):
    shapes = (scores, labels, matrix or (1, 1, c, c))
    return Case("InfogainLoss", text, shapes, n_top=n_top, integer_bottoms=((1, c),))


GIVEN: list[Case] = [
    Case(PLAIN, "", ((5, 4), (5,)), integer_bottoms=((1, 4),)),
    Case(PLAIN, "", ((3, 2, 2), (3, 1, 1, 1)), integer_bottoms=((1, 4),)),
    Case(PLAIN, "", ((3000, 7), (3000,)), integer_bottoms=((1, 7),)),
    Case(PLAIN, "", ((0, 4), (0,))),
]
INFOGAIN: list[Case] = [
    _infogain(""),
    _infogain("", (5, 4), (5,), matrix=(4, 4)),
    _infogain("loss_param { ignore_label: 1 }"),
    _infogain("loss_param { ignore_label: 1 normalization: FULL }"),
    _infogain("loss_param { ignore_label: 1 normalization: BATCH_SIZE }"),
    _infogain("loss_param { ignore_label: 1 normalization: NONE }"),
    _infogain("infogain_loss_param { axis: -1 } softmax_param { axis: 1 }", (3, 2, 5), (3, 2), 5),
    _infogain("loss_weight: 1 loss_weight: 0", n_top=2),
    _infogain("loss_param { ignore_label: 7 }", (40, 300, 3, 2), (40, 3, 2), 300),
    _infogain("", (900, 300), (900,), 300),
    _infogain("loss_param { ignore_label: 1 }", (0, 4, 2), (0, 2)),
]
CASES = GIVEN + INFOGAIN
SMALL = [c for c in CASES if 0 < np.prod(c.shapes[0]) < 100 and c.n_top == 1]
TYPES = [(np.float32, 1e-4), (np.float64, 1e-11)]


def bottoms_of(case, seed):
    """Return the case's bottoms, with probabilities for the loss that needs them."""
    bottoms = case.make_bottoms(np.random.default_rng(seed))
    if case.type == PLAIN:
        bottoms[0] = np.exp(bottoms[0]) / 8
    return bottoms


def infogain(x, label, matrix, layer):
    """Return the loss and its gradient, one position at a time."""
    param, (outer, c, inner) = layer.param.loss_param, layer.grid
    x, label, matrix = x.reshape(outer, c, inner), label.reshape(outer, inner), matrix.reshape(c, c)
    total, valid, dx = 0.0, 0, np.zeros(x.shape)
    for o, i in np.ndindex(outer, inner):
        k = int(label[o, i])
        if param.HasField("ignore_label") and k == param.ignore_label:
            continue
        valid += 1
        p = np.exp(x[o, :, i] - x[o, :, i].max())
        p /= p.sum()
        total -= sum(matrix[k, j] * math.log(max(p[j], 1e-20)) for j in range(c))
        dx[o, :, i] = p * matrix[k].sum() - matrix[k]
    z = {param.VALID: valid, param.FULL: outer * inner, param.BATCH_SIZE: outer, param.NONE: 1}[param.normalization]
    return total / max(1, z), dx / max(1, z)


@pytest.mark.parametrize("dtype, tolerance", TYPES, ids=["f32", "f64"])
@pytest.mark.parametrize("case", INFOGAIN, ids=str)
def test_infogain_is_the_formula(case, dtype, tolerance):
    bench, (x, label, matrix) = case.bench(dtype), bottoms_of(case, 3)
    value, gradient = infogain(x, label, matrix, bench.layer)
    loss, *prob = bench.forward([x, label, matrix])
    assert float(loss) == pytest.approx(value, rel=tolerance, abs=tolerance)
    assert all(p.sum(axis=1) == pytest.approx(1) for p in prob)
    (dx, *none), _ = bench.backward([np.array(0.7), None][: case.n_top])
    np.testing.assert_allclose(dx, 0.7 * gradient.reshape(dx.shape), rtol=tolerance, atol=tolerance)
    assert none == [None, None]


@pytest.mark.parametrize("dtype, tolerance", TYPES, ids=["f32", "f64"])
@pytest.mark.parametrize("case", GIVEN, ids=str)
def test_given_probabilities(case, dtype, tolerance):
    bench, (p, label) = case.bench(dtype), bottoms_of(case, 3)
    n, flat, gradient = len(p), p.reshape(len(p), -1) if p.size else p, np.zeros(p.shape)
    total, rows = 0.0, gradient.reshape(flat.shape)
    for i in range(n):
        k = int(label.reshape(-1)[i])
        total -= math.log(flat[i, k]) / n
        rows[i, k] = -1 / n / flat[i, k]
    assert float(bench.forward([p, label])[0]) == pytest.approx(total, rel=tolerance)
    (dp, none), _ = bench.backward([np.array(0.7)])
    np.testing.assert_allclose(dp, 0.7 * gradient, rtol=tolerance)
    assert none is None


@pytest.mark.parametrize("case", SMALL, ids=str)
def test_gradient(case):
    check_gradient(case.bench(), bottoms_of(case, 4))


def test_the_floor_of_the_probability():
    bench = LayerBench(PLAIN, "", ((1, 2), (1,)))
    assert float(bench.forward([[[1.0, 0.0]], [1.9]])[0]) == pytest.approx(-math.log(1e-20))
    np.testing.assert_allclose(bench.backward([np.array(1.0)])[0][0], [[0, -1e20]])
    bench = LayerBench("InfogainLoss", "", ((1, 2), (1,), (2, 2)))
    assert float(bench.forward([[[0.0, 1000.0]], [0], np.eye(2)])[0]) == pytest.approx(-math.log(1e-20))


def test_an_identity_matrix_gives_the_softmax_loss():
    rng = np.random.default_rng(9)
    x, label = rng.normal(size=(3, 4, 2)), rng.integers(4, size=(3, 2))
    ours = LayerBench("InfogainLoss", "", ((3, 4, 2), (3, 2), (4, 4)))
    theirs = LayerBench("SoftmaxWithLoss", "", ((3, 4, 2), (3, 2)))
    assert float(ours.forward([x, label, np.eye(4)])[0]) == pytest.approx(float(theirs.forward([x, label])[0]))
    gradients = [bench.backward([np.array(1.0)])[0][0] for bench in (ours, theirs)]
    np.testing.assert_allclose(*gradients, atol=1e-12)


@pytest.mark.parametrize("bad", [3, -1, 1e30, np.nan, -np.inf])
@pytest.mark.parametrize("type", [PLAIN, "InfogainLoss"])
def test_a_label_out_of_range_gives_nan(type, bad):
    matrix = [np.ones((3, 3))] if type == "InfogainLoss" else []
    bench = LayerBench(type, "", ((2, 3), (2,), (3, 3))[: 2 + len(matrix)])
    assert np.isnan(bench.forward([np.full((2, 3), 0.5), [bad, 1], *matrix])[0])
    dx = bench.backward([np.array(1.0)])[0][0]
    assert np.isnan(dx[0]).all() and np.isfinite(dx[1]).all()


def test_an_ignored_label_need_not_be_a_class():
    bench = LayerBench("InfogainLoss", "loss_param { ignore_label: 255 }", ((2, 3), (2,), (3, 3)))
    assert float(bench.forward([np.zeros((2, 3)), [255, 1], np.eye(3)])[0]) == pytest.approx(math.log(3))
    assert not bench.backward([np.array(1.0)])[0][0][0].any()


GPU = pytest.param(CudaArrays, marks=[pytest.mark.gpu, pytest.mark.skipif(not cuda_available(), reason="no GPU")])


def _source(path):
    return f'infogain_loss_param {{ source: "{path}" }}'


@pytest.mark.parametrize("dtype", [np.float32, np.float64], ids=["f32", "f64"])
@pytest.mark.parametrize("device", [HostArrays, GPU])
def test_the_matrix_from_a_file(tmp_path, device, dtype):
    rng, path = np.random.default_rng(3), tmp_path / "h.binaryproto"
    x, label, matrix = rng.normal(size=(3, 4, 2)), rng.integers(4, size=(3, 2)), rng.normal(size=(1, 1, 4, 4))
    path.write_bytes(array_to_blobproto(matrix).SerializeToString())
    shapes = ((3, 4, 2), (3, 2), (1, 1, 4, 4))
    results = []
    for text, bottoms in ((_source(path), [x, label]), ("", [x, label, matrix])):
        bench = LayerBench("InfogainLoss", text, shapes[: len(bottoms)], dtype=dtype, device=device())
        loss = bench.forward(bottoms)[0]
        results.append((float(loss), bench.backward([np.array(1.0)])[0][0].tolist()))
    assert results[0] == results[1]
    bench = LayerBench("InfogainLoss", _source(path), shapes[:2], dtype=dtype, device=device(), needs_backward=False)
    assert float(bench.forward([x, label])[0]) == results[0][0]


def test_bad_matrices(tmp_path):
    with pytest.raises(LayerParamError, match='layer "l".*has no infogain matrix'):
        LayerBench("InfogainLoss", "", ((2, 3), (2,)))
    with pytest.raises(DataError, match='layer "l".*nothing.binaryproto'):
        LayerBench("InfogainLoss", _source(tmp_path / "nothing.binaryproto"), ((2, 3), (2,)))
    path = tmp_path / "h.binaryproto"
    path.write_bytes(b"\xff\xff\xff")
    with pytest.raises(DataError, match='layer "l".*cannot be read'):
        LayerBench("InfogainLoss", _source(path), ((2, 3), (2,)))
    proto = array_to_blobproto(np.eye(2))
    path.write_bytes(proto.SerializeToString())
    with pytest.raises(ShapeError, match='layer "l".*has 4 numbers, but 3 classes need 3 x 3'):
        LayerBench("InfogainLoss", _source(path), ((2, 3), (2,)))
    proto.shape.dim[0] = 5
    path.write_bytes(proto.SerializeToString())
    with pytest.raises(WeightsError, match='layer "l".*needs 10 values'):
        LayerBench("InfogainLoss", _source(path), ((2, 3), (2,)))


def test_no_gradient_of_the_loss_means_zeros():
    bench = LayerBench("InfogainLoss", "", ((2, 3), (2,), (3, 3)), n_top=2)
    bench.forward([np.zeros((2, 3)), [0, 1], np.eye(3)])
    assert not bench.backward([None, np.ones((2, 3))])[0][0].any()


def test_declarations(tmp_path):
    layer = LayerBench(PLAIN, "", ((2, 3), (2,))).layer
    assert layer.declares.is_loss and layer.declares.no_backward == layer.declares.ignores_force_backward == {1}
    assert layer.backward_needs([True, False], []) == Needs(bottoms=frozenset({0, 1}))
    assert layer.backward_needs([False, False], []) == Needs()
    layer = LayerBench("InfogainLoss", "", ((2, 3), (2,), (3, 3))).layer
    assert layer.declares.is_loss and layer.declares.no_backward == layer.declares.ignores_force_backward == {1, 2}
    assert layer.backward_needs([True, False, False], []) == Needs(bottoms=frozenset({1, 2}))
    assert layer.backward_needs([False] * 3, []) == Needs()
    layer = LayerBench("InfogainLoss", "", ((2, 3), (2,), (3, 3)), n_top=2).layer
    assert layer.backward_needs([True, False, False], []) == Needs(bottoms=frozenset({1, 2}), tops=frozenset({1}))
    (tmp_path / "h").write_bytes(array_to_blobproto(np.eye(3)).SerializeToString())
    layer = LayerBench("InfogainLoss", _source(tmp_path / "h"), ((2, 3), (2,))).layer
    assert layer.backward_needs([True, False], []) == Needs(bottoms=frozenset({1}))


@pytest.mark.parametrize(
    "type, text, shapes, error, message",
    [
        (PLAIN, "", ((2, 3), (3,)), ShapeError, "the first axes differ"),
        (PLAIN, "", ((2, 3), (2, 2)), ShapeError, "an item has one label"),
        (PLAIN, "", ((2, 3),), BlobCountError, "takes 2 bottom"),
        ("InfogainLoss", "loss_param { normalize: true }", ((2, 3), (2,), (3, 3)), LayerParamError, "normalize is not"),
        ("InfogainLoss", "infogain_loss_param { axis: 2 }", ((2, 3), (2,), (3, 3)), LayerParamError, "axis 2 is out"),
        ("InfogainLoss", "", ((2, 3, 5), (2,), (3, 3)), ShapeError, "2 labels, but .* 10 positions"),
        ("InfogainLoss", "", ((2, 3), (2,), (3, 2)), ShapeError, "has 6 numbers, but 3 classes need 3 x 3"),
        ("InfogainLoss", "", ((2, 3), (3,), (3, 3)), ShapeError, "the first axes differ"),
    ],
)
def test_refused(type, text, shapes, error, message):
    with pytest.raises(error, match=f'layer "l".*{message}'):
        LayerBench(type, text, shapes)
