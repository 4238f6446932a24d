"""Correlation against a loop over padded maps, and its gradients."""

from __future__ import annotations

import numpy as np
import pytest

from pycaffe_lms.errors import BlobCountError, LayerParamError, ShapeError

from .cases import Case
from .harness import LayerBench, check_gradient

TYPE = "Correlation"
FIELDS = "correlation_param {{ {} }}"
CASES: list[Case] = [
    Case(TYPE, FIELDS.format("kernel_size: 1 max_displacement: 2 pad: 2"), ((2, 3, 5, 6),) * 2),
    Case(TYPE, FIELDS.format("kernel_size: 3 max_displacement: 3 pad: 4 stride_1: 2 stride_2: 2"), ((1, 2, 7, 6),) * 2),
    Case(TYPE, FIELDS.format("kernel_size: 3 max_displacement: 1 stride_1: 3"), ((2, 2, 9, 8),) * 2),
    Case(
        TYPE,
        FIELDS.format("kernel_size: 3 max_displacement: 2 pad: 3 stride_1: 2 correlation_type: SUBTRACT"),
        ((2, 2, 5, 4),) * 2,
    ),
]


def loop(a, b, p):
    """Return the formula, on maps with zeros around them."""
    a, b = (np.pad(x.astype(np.float64), ((0, 0), (0, 0), (p.pad, p.pad), (p.pad, p.pad))) for x in (a, b))
    k, m, s, t = p.kernel_size, p.max_displacement, p.stride_1, p.stride_2
    border, radius = m + (k - 1) // 2, m // t
    sizes = [int(np.ceil((size - 2 * border) / s)) for size in a.shape[2:]]
    y = np.zeros((len(a), (2 * radius + 1) ** 2, *sizes))
    for d, (i, j) in enumerate(np.ndindex(2 * radius + 1, 2 * radius + 1)):
        for h, w in np.ndindex(*sizes):
            rows, columns = h * s + m + np.arange(k)[:, None], w * s + m + np.arange(k)
            one = a[:, :, rows, columns]
            other = b[:, :, rows + (i - radius) * t, columns + (j - radius) * t]
            both = np.abs(one - other) if p.correlation_type else one * other
            y[:, d, h, w] = both.mean(axis=(1, 2, 3))
    return y


@pytest.mark.parametrize("dtype, tolerance", [(np.float32, 1e-6), (np.float64, 1e-14)], ids=["f32", "f64"])
@pytest.mark.parametrize("case", CASES, ids=str)
def test_is_a_loop(case, dtype, tolerance):
    bench, (a, b) = case.bench(dtype), case.make_bottoms(np.random.default_rng(1))
    wanted = loop(a.astype(dtype), b.astype(dtype), bench.layer.param.correlation_param)
    (y,) = bench.forward([a, b])
    assert y.shape == wanted.shape
    np.testing.assert_allclose(y, wanted, rtol=tolerance, atol=tolerance)


def test_sizes_of_flownet_c():
    text = FIELDS.format("pad: 20 kernel_size: 1 max_displacement: 20 stride_1: 1 stride_2: 2")
    assert LayerBench(TYPE, text, ((1, 1, 48, 64),) * 2).top_shapes == [(1, 441, 48, 64)]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_gradient(case):
    check_gradient(case.bench(), case.make_bottoms(np.random.default_rng(5)))


@pytest.mark.parametrize(
    "fields, shapes, error",
    [
        ("kernel_size: 1", ((1, 2, 5, 5),) * 2, LayerParamError),
        ("max_displacement: 1", ((1, 2, 5, 5),) * 2, LayerParamError),
        ("kernel_size: 2 max_displacement: 1", ((1, 2, 5, 5),) * 2, LayerParamError),
        ("kernel_size: 1 max_displacement: 1 stride_1: 0", ((1, 2, 5, 5),) * 2, LayerParamError),
        ("kernel_size: 1 max_displacement: 1 stride_2: 0", ((1, 2, 5, 5),) * 2, LayerParamError),
        ("kernel_size: 1 max_displacement: 3", ((1, 2, 5, 5),) * 2, ShapeError),
        ("kernel_size: 1 max_displacement: 1", ((1, 2, 5, 5), (1, 2, 5, 4)), ShapeError),
        ("kernel_size: 1 max_displacement: 1", ((1, 2, 5),) * 2, ShapeError),
        ("kernel_size: 1 max_displacement: 1", ((1, 2, 5, 5),), BlobCountError),
    ],
)
def test_refused(fields, shapes, error):
    with pytest.raises(error, match='layer "l"'):
        LayerBench(TYPE, FIELDS.format(fields), shapes)
