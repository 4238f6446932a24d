"""Im2col against a plain loop over windows."""

from __future__ import annotations

import math

import numpy as np
import pytest

from pycaffe_lms.errors import LayerParamError, ShapeError
from pycaffe_lms.layers.base import Needs

from .cases import Case
from .harness import LayerBench, check_gradient


def _text(fields):
    return f"convolution_param {{ {fields} }}"


CASES: list[Case] = [
    Case("Im2col", _text("kernel_size: 3"), ((2, 2, 5, 4),)),
    Case("Im2col", _text("kernel_h: 2 kernel_w: 3 stride: 2 pad: 1"), ((2, 3, 5, 6),)),
    Case("Im2col", _text("kernel_size: 2 dilation: 3 pad: 2 stride: 2"), ((1, 2, 6, 5),)),
    Case("Im2col", _text("kernel_size: 1 stride: 3"), ((1, 2, 7, 7),)),
    Case("Im2col", _text("kernel_size: 3 pad: 1"), ((2, 3, 7),)),
    Case("Im2col", _text("kernel_size: 2 kernel_size: 1 kernel_size: 3 pad: 1"), ((1, 2, 2, 3, 3),)),
    Case("Im2col", _text("kernel_size: 2 axis: 2"), ((2, 2, 3, 4, 3),)),
    Case("Im2col", _text("kernel_size: 2 axis: 0 pad: 4"), ((2, 2, 2),)),  # windows wholly outside
    Case("Im2col", _text("kernel_size: 3"), ((0, 2, 5, 4),)),
]


def reference(x, layer):
    """Return y, computed window by window."""
    g, planes = layer.geometry, layer.geometry.batch * layer.geometry.channels
    x, y = x.reshape(planes, *g.in_spatial), np.zeros((planes, *g.kernel, *g.out_spatial))
    for tap in np.ndindex(*g.kernel):
        for o in np.ndindex(*g.out_spatial):
            at = [a * s + t * d - p for a, s, t, d, p in zip(o, g.stride, tap, g.dilation, g.pad, strict=True)]
            if all(0 <= a < n for a, n in zip(at, g.in_spatial, strict=True)):
                y[(slice(None), *tap, *o)] = x[(slice(None), *at)]
    return y


@pytest.mark.parametrize("dtype", [np.float32, np.float64], ids=["f32", "f64"])
@pytest.mark.parametrize("case", CASES, ids=str)
def test_forward(case, dtype):
    bench = case.bench(dtype)
    x = case.make_bottoms(np.random.default_rng(1))[0].astype(dtype)
    (y,) = bench.forward([x])
    shape, axis = case.shapes[0], bench.layer.axis
    assert y.shape[: axis + 1] == (*shape[:axis], shape[axis] * math.prod(bench.layer.kernel))
    assert np.array_equal(y.reshape(-1), reference(x, bench.layer).reshape(-1))


@pytest.mark.parametrize("case", CASES[:-1], ids=str)
def test_gradient(case):
    check_gradient(case.bench(), case.make_bottoms(np.random.default_rng(2)))


def test_channels_are_outside_and_taps_inside():
    bench = LayerBench("Im2col", _text("kernel_size: 2"), ((1, 2, 2, 2),))
    (y,) = bench.forward([np.arange(8).reshape(1, 2, 2, 2)])
    assert y.shape == (1, 8, 1, 1) and y.reshape(-1).tolist() == list(range(8))


def test_needs_and_propagate_down():
    bench = LayerBench("Im2col", _text("kernel_size: 1"), ((1, 1, 2),), propagate_down=(False,))
    (y,) = bench.forward([[[[1, 2]]]])
    assert bench.backward([y])[0] == [None] and bench.layer.backward_needs([True], []) == Needs()


@pytest.mark.parametrize(
    "fields, shape, error, message",
    [
        ("", (1, 2, 3, 3), LayerParamError, "has no kernel size"),
        ("kernel_size: 0", (1, 2, 3, 3), LayerParamError, "kernel_size is 0"),
        ("kernel_size: 1 axis: 4", (1, 2, 3, 3), LayerParamError, "axis 4 is out of range"),
        ("kernel_size: 1", (1, 2), ShapeError, 'blob "b0": has shape .1, 2.: no spatial axes'),
        ("kernel_size: 4", (1, 2, 3, 3), ShapeError, "too small for kernel"),
    ],
)
def test_refused(fields, shape, error, message):
    with pytest.raises(error, match=f'layer "l".*{message}'):
        LayerBench("Im2col", _text(fields), (shape,))


def test_another_number_of_axes_later_is_refused():
    with pytest.raises(ShapeError, match="set up for 4 axes"):
        CASES[0].bench().reshape([(2, 2, 5)])
