"""GELU and GatedUnit against ONNX's reference implementation and the formulas, and their gradients."""

from __future__ import annotations

import math

import numpy as np
import pytest

from pycaffe_lms.errors import LayerParamError, ShapeError
from pycaffe_lms.layers.base import Needs

from .cases import Case
from .harness import LayerBench, check_gradient
from .onnx_reference import onnx_operator

TANH = "gelu_param { approximate: TANH }"
X = (3, 5, 4)
GELU: list[Case] = [
    Case("GELU", "", (X,)),
    Case("GELU", TANH, (X,)),
    Case("GELU", TANH, (X,), in_place=True),
    Case("GELU", "", ((0, 3),)),
    Case("GELU", "", ((3, 1001),)),
]


def _gated(fields, *shapes):
    return Case("GatedUnit", f"gated_unit_param {{ {fields} }}", shapes)


GATED: list[Case] = [
    _gated("", X, X),
    _gated("activation: GELU", X, X),
    _gated("activation: GELU_TANH", X),
    _gated("activation: SIGMOID", X, X),
    _gated("", (2, 3, 6)),  # rows of neighbours, not a multiple of four
    _gated("", (2, 8)),
    _gated("axis: 1 activation: SIGMOID", (2, 6, 3)),
    _gated("axis: 0", (4, 3)),
    _gated("", (0, 4)),
    _gated("activation: GELU", (5, 2004)),
]
CASES = GELU + GATED


def formula(activation, x):
    return {
        "SILU": lambda: x / (1 + np.exp(-x)),
        "SIGMOID": lambda: 1 / (1 + np.exp(-x)),
        "GELU": lambda: x * np.vectorize(lambda v: 0.5 * math.erfc(-v / math.sqrt(2)))(x),
        "GELU_TANH": lambda: x / 2 * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3))),
    }[activation]()


@pytest.mark.parametrize("dtype, tolerance", [(np.float32, 2e-6), (np.float64, 1e-7)], ids=["f32", "f64"])
@pytest.mark.parametrize("case", [c for c in GELU if np.prod(c.shapes[0])], ids=str)
def test_gelu_is_onnx_s_operator(case, dtype, tolerance):
    """Its erf is one of single precision."""
    bench, (x,) = case.bench(dtype), case.make_bottoms(np.random.default_rng(1))
    (y,) = bench.forward([x])
    way = "tanh" if case.text else "none"
    np.testing.assert_allclose(y, onnx_operator("Gelu", [x.astype(dtype)], 1, approximate=way)[0], atol=tolerance)


@pytest.mark.parametrize("dtype, tolerance", [(np.float32, 2e-6), (np.float64, 1e-14)], ids=["f32", "f64"])
@pytest.mark.parametrize("case", [c for c in CASES if np.prod(c.shapes[0])], ids=str)
def test_is_the_formula(case, dtype, tolerance):
    bench, bottoms = case.bench(dtype), case.make_bottoms(np.random.default_rng(1))
    (y,) = bench.forward(bottoms)
    if case.type == "GELU":
        expected = formula("GELU_TANH" if case.text else "GELU", bottoms[0])
    else:
        halves = bottoms if len(bottoms) == 2 else np.split(bottoms[0], 2, axis=bench.layer.axis)
        expected = formula(bench.layer.activation, halves[0]) * halves[1]
    np.testing.assert_allclose(y, expected, rtol=10 * tolerance, atol=tolerance)


@pytest.mark.parametrize("case", [c for c in CASES if 0 < np.prod(c.shapes[0]) < 100 and not c.in_place], ids=str)
def test_gradient(case):
    check_gradient(case.bench(), case.make_bottoms(np.random.default_rng(2)))


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("text", ["", TANH])
def test_gelu_far_from_zero(text, dtype):
    """Slopes end in 0 and 1, small values below 0 keep their digits, and nothing overflows."""
    x = np.array([-1e30, -60, -5, 5, 60, 1e30], dtype)
    bench = LayerBench("GELU", text, ((6,),), dtype=dtype)
    (y,) = bench.forward([x])
    tail = -1.4332578809106106e-06 if not text else -2.2917961972623857e-07  # math.erfc and math.tanh, in float64
    assert y[2] == pytest.approx(tail, rel=1e-5)
    assert [*np.abs(y[:2])] == [0, 0] and [*y[4:]] == [*x[4:]]
    (dx,), _ = bench.backward([np.ones(6, dtype)])
    assert [*dx[:2], *dx[4:]] == pytest.approx([0, 0, 1, 1], abs=1e-100)


def test_needs():
    layer = LayerBench("GatedUnit", "", (X, X)).layer
    assert layer.backward_needs([True, True], []) == Needs(bottoms=frozenset({0, 1}))
    assert layer.backward_needs([False, True], []) == Needs(bottoms=frozenset({0}))
    assert layer.splits_over_batch
    assert not LayerBench("GatedUnit", "gated_unit_param { axis: 0 }", ((4, 3),)).layer.splits_over_batch


@pytest.mark.parametrize(
    "text, shapes, error, message",
    [
        ("", ((2, 3),), ShapeError, "axis 1 cannot be halved"),
        ("", ((2, 3), (2, 4)), ShapeError, "but the first bottom"),
        ("gated_unit_param { axis: 2 }", ((2, 4),), LayerParamError, "axis 2 is out of range"),
    ],
)
def test_refused(text, shapes, error, message):
    with pytest.raises(error, match=f'layer "l".*{message}'):
        LayerBench("GatedUnit", text, shapes)
