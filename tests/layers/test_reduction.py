"""Reduction against plain sums."""

from __future__ import annotations

import math

import numpy as np
import pytest

from pycaffe_lms.errors import LayerParamError, ShapeError
from pycaffe_lms.layers.base import Needs

from .cases import Case
from .harness import LayerBench, check_gradient


def _text(operation, axis=0, coeff=1):
    return f"reduction_param {{ operation: {operation} axis: {axis} coeff: {coeff} }}"


OPERATIONS = ["SUM", "ASUM", "SUMSQ", "MEAN"]
CASES: list[Case] = [
    Case("Reduction", "", ((2, 3, 4),)),
    *(
        Case("Reduction", _text(op, axis, coeff), ((2, 3, 4),))
        for op in OPERATIONS
        for axis, coeff in ((1, 0.5), (-1, 2))
    ),
    *(Case("Reduction", _text(op, 1, -3), ((3, 0, 2),)) for op in OPERATIONS),
    *(Case("Reduction", _text(op, 1), ((0, 3),)) for op in OPERATIONS),
    *(Case("Reduction", _text(op, 0, 0.25), ((3, 70, 70),)) for op in OPERATIONS),  # more than one part
    *(Case("Reduction", _text(op, 1), ((3, 1500),)) for op in OPERATIONS),
    Case("Reduction", _text("SUMSQ", 1), ((40, 1),)),
    Case("Reduction", _text("ASUM", 0), ((5,),)),
]


def reference(x, layer_text, shape):
    """Return y by a plain loop over the rows, with exact sums."""
    op = next((o for o in OPERATIONS[::-1] if f"operation: {o} " in layer_text), "SUM")
    coeff = float(layer_text.split("coeff: ")[1].split()[0]) if "coeff" in layer_text else 1.0
    rows = math.prod(shape)
    y = []
    for row in x.reshape(rows, x.size // rows if rows else 0).tolist():
        terms = [abs(v) if op == "ASUM" else v * v if op == "SUMSQ" else v for v in row]
        y.append(coeff * math.fsum(terms) / (len(row) if op == "MEAN" and row else 1))
    return np.array(y).reshape(shape)


@pytest.mark.parametrize("dtype, tol", [(np.float32, 2e-6), (np.float64, 1e-14)], ids=["f32", "f64"])
@pytest.mark.parametrize("case", CASES, ids=str)
def test_forward(case, dtype, tol):
    bench = case.bench(dtype)
    x = case.make_bottoms(np.random.default_rng(3))[0].astype(dtype)
    (y,) = bench.forward([x])
    size = float(np.abs(x).sum()) + 1
    np.testing.assert_allclose(y, reference(x, case.text, bench.top_shapes[0]), rtol=tol, atol=tol * size)


@pytest.mark.parametrize("case", [c for c in CASES if 0 < math.prod(c.shapes[0]) < 100], ids=str)
def test_gradient(case):
    check_gradient(case.bench(), case.make_bottoms(np.random.default_rng(4)), kinks=(0.0,))


@pytest.mark.parametrize("case", [c for c in CASES if math.prod(c.shapes[0]) == 0], ids=str)
def test_empty_bottoms(case):
    bench = case.bench()
    (y,) = bench.forward([np.zeros(case.shapes[0])])
    (dx,), _ = bench.backward([np.ones(y.shape)])
    assert not y.any() and dx.shape == case.shapes[0]


def test_recorded_values():
    x = [[1.0, -2, 3], [0, 5, -4]]
    wanted = {"SUM": [2, 1], "ASUM": [6, 9], "SUMSQ": [14, 41], "MEAN": [2 / 3, 1 / 3]}
    slopes = {"SUM": [1, 1, 1], "ASUM": [0, 1, -1], "SUMSQ": [0, 10, -8], "MEAN": [1 / 3] * 3}
    for op in OPERATIONS:
        bench = LayerBench("Reduction", _text(op, 1, 2), ((2, 3),))
        assert np.allclose(bench.forward([x])[0], 2 * np.array(wanted[op]))
        assert np.allclose(bench.backward([[0, 0.5]])[0][0], [[0, 0, 0], slopes[op]])


def test_long_float32_sums_stay_accurate():
    bench = LayerBench("Reduction", "", ((1 << 20,),), dtype=np.float32)
    (y,) = bench.forward([np.full(1 << 20, 0.1, np.float32)])
    assert y.shape == () and abs(y / (2**20 * float(np.float32(0.1))) - 1) < 1e-6


def test_needs_and_propagate_down():
    for op in OPERATIONS:
        bench = LayerBench("Reduction", _text(op), ((2, 3),), propagate_down=(False,))
        bench.forward([np.ones((2, 3))])
        assert bench.backward([1.0])[0] == [None]
        reads = frozenset({0}) if op in ("ASUM", "SUMSQ") else frozenset()
        assert bench.layer.backward_needs([True], []) == Needs(bottoms=reads)
        assert bench.layer.backward_needs([False], []) == Needs()


@pytest.mark.parametrize(
    "text, shape, error, message",
    [
        ("reduction_param { axis: 2 }", (2, 3), LayerParamError, "axis 2 is out of range"),
        ("reduction_param { axis: -3 }", (2, 3), LayerParamError, "axis -3 is out of range"),
        ("", (), ShapeError, 'blob "b0": has no axes'),
    ],
)
def test_refused(text, shape, error, message):
    with pytest.raises(error, match=f'layer "l".*{message}'):
        LayerBench("Reduction", text, (shape,))
