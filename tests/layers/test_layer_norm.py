"""LayerNorm and RMSNorm against ONNX's reference implementation, and their gradients."""

from __future__ import annotations

import numpy as np
import pytest

from pycaffe_lms.errors import LayerParamError, ShapeError
from pycaffe_lms.layers.base import Needs

from .cases import Case
from .harness import LayerBench, check_gradient
from .onnx_reference import onnx_operator


def _norm(fields, shape):
    plain = fields.replace("bias_term: false", "")
    return [
        Case("LayerNorm", f"layer_norm_param {{ {fields} }}", (shape,)),
        Case("RMSNorm", f"rms_norm_param {{ {plain} }}", (shape,)),
    ]


CASES: list[Case] = [
    *_norm("", (2, 3, 8)),
    *_norm("bias_term: false", (3, 5)),
    *_norm("affine: false", (2, 6)),
    *_norm("axis: 1 eps: 0.25", (2, 3, 4)),
    *_norm("axis: 0", (2, 3)),
    *_norm("", (0, 4)),
    *_norm("", (70, 33)),  # not a multiple of four
    *_norm("", (300, 40)),  # sums over rows in more than one part
    *_norm("", (3, 1500)),  # rows for whole blocks
    *_norm("affine: false", (2, 1203)),
]
SMALL = [c for c in CASES if 0 < np.prod(c.shapes[0]) < 100]


@pytest.mark.parametrize("dtype, tolerance", [(np.float32, 2e-5), (np.float64, 1e-12)], ids=["f32", "f64"])
@pytest.mark.parametrize("case", [c for c in CASES if np.prod(c.shapes[0])], ids=str)
def test_is_onnx_s_operator(case, dtype, tolerance):
    bench, (x,) = case.bench(dtype), case.make_bottoms(np.random.default_rng(1))
    x = x.astype(dtype)
    (y,) = bench.forward([x])
    layer = bench.layer
    inputs = [x, *bench.params] if bench.params else [x, np.ones(layer.shape, dtype)]
    operator = "LayerNormalization" if case.type == "LayerNorm" else "RMSNormalization"
    (expected,) = onnx_operator(operator, inputs, 1, axis=layer.axis, epsilon=layer.options.eps)
    np.testing.assert_allclose(y, expected, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("case", SMALL, ids=str)
def test_gradient(case):
    check_gradient(case.bench(), case.make_bottoms(np.random.default_rng(2)))


@pytest.mark.parametrize("case", [c for c in CASES if np.prod(c.shapes[0])], ids=str)
def test_float32_gradients_are_the_formula(case):
    """In float64, with rows as they are defined."""
    bench, (x,) = case.bench(np.float32), case.make_bottoms(np.random.default_rng(3))
    (y,) = bench.forward([x])
    rows, dim, eps = bench.layer.norm
    dy = np.random.default_rng(4).normal(size=y.shape)
    (dx,), found = bench.backward([dy])
    start = np.random.default_rng(5).normal(size=x.shape)
    (added,), _ = bench.backward([dy], add_to={0: start})
    x, g = (a.astype(np.float32).astype(np.float64).reshape(rows, dim) for a in (x, dy))
    v = x - x.mean(axis=1, keepdims=True) if case.type == "LayerNorm" else x
    std = np.sqrt((v**2).mean(axis=1, keepdims=True) + eps)
    v = v / std
    sums = [(g * v).sum(axis=0), g.sum(axis=0)]
    slope = g * bench.params[0].reshape(dim) if bench.params else g
    expected = slope - v * (slope * v).mean(axis=1, keepdims=True)
    if case.type == "LayerNorm":
        expected -= slope.mean(axis=1, keepdims=True)
    np.testing.assert_allclose(dx.reshape(rows, dim), expected / std, rtol=1e-4, atol=2e-5)
    np.testing.assert_allclose(
        added.reshape(rows, dim), start.reshape(rows, dim) + expected / std, rtol=1e-4, atol=2e-5
    )
    for gradient, want in zip(found, sums, strict=False):
        np.testing.assert_allclose(gradient.reshape(dim), want, rtol=1e-4, atol=1e-4)


def test_a_large_mean_costs_no_digits():
    """The variance is that of the differences from the mean, not a difference of two sums."""
    bench = LayerBench("LayerNorm", "layer_norm_param { affine: false }", ((1, 4),), dtype=np.float32)
    (y,) = bench.forward([[[4096, 4097, 4098, 4099]]])
    std = np.sqrt(1.25 + 1e-5)
    np.testing.assert_allclose(y, [[-1.5 / std, -0.5 / std, 0.5 / std, 1.5 / std]], rtol=1e-6)


def test_parameters_and_needs():
    def layer(text, type="LayerNorm"):
        return LayerBench(type, text, ((2, 3, 4),)).layer

    both = layer("")
    assert [(p.shape, p.filler.value) for p in both.params] == [((4,), 1), ((4,), 0)]
    assert [p.shape for p in layer("layer_norm_param { axis: 1 bias_term: false }").params] == [(3, 4)]
    assert [p.shape for p in layer("", "RMSNorm").params] == [(4,)]
    assert not layer("layer_norm_param { affine: false }").params
    zero = frozenset({0})
    assert both.backward_needs([True], [True, True]) == Needs(bottoms=zero, params=zero)
    assert both.backward_needs([False], [True, False]) == Needs(bottoms=zero)
    assert both.backward_needs([False], [False, True]) == Needs()
    assert both.splits_over_batch and not layer("layer_norm_param { axis: 0 }").splits_over_batch
    assert {n: s.shape for n, s in both.scratches.items() if n != "work"} == {"mean": (6,), "inv_std": (6,)}
    assert "mean" not in layer("", "RMSNorm").scratches


@pytest.mark.parametrize(
    "type, text, shapes, error, message",
    [
        ("LayerNorm", "layer_norm_param { axis: 2 }", ((2, 3),), LayerParamError, "axis 2 is out of range"),
        ("RMSNorm", "rms_norm_param { eps: -1 }", ((2, 3),), LayerParamError, "eps -1 is negative"),
        ("RMSNorm", "", ((),), ShapeError, "has no axes"),
    ],
)
def test_refused(type, text, shapes, error, message):
    with pytest.raises(error, match=f'layer "l".*{message}'):
        LayerBench(type, text, shapes)


def test_reshape():
    bench = LayerBench("LayerNorm", "", ((2, 3),))
    bench.reshape([(7, 5, 3)])
    with pytest.raises(ShapeError, match="parameters were set up for"):
        bench.reshape([(2, 4)])
    LayerBench("RMSNorm", "rms_norm_param { affine: false }", ((2, 3),)).reshape([(2, 4)])
