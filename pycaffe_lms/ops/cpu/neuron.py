"""Element-wise activations."""

from __future__ import annotations

import numpy as np

from .compiled import BLOCK, kernel
from .threads import ELEMENTS, parallel

__all__ = ["relu_forward", "relu_backward"]


def relu_forward(x, y, slope):
    """y = max(x, 0) + slope * min(x, 0); NaN stays NaN, and -inf with slope 0 gives NaN, as in Caffe."""
    parallel(_forward, x.size, x.reshape(-1), y.reshape(-1), x.dtype.type(slope), grain=ELEMENTS)


def relu_backward(y_or_x, dy, dx, slope):
    """dx = dy * (1 where v > 0, slope where v <= 0, 0 where v is NaN)."""
    flat = y_or_x.reshape(-1), dy.reshape(-1), dx.reshape(-1)
    parallel(_backward, dy.size, *flat, dy.dtype.type(slope), grain=ELEMENTS)


@kernel
def _forward(first, last, x, y, slope):
    zero, result = x.dtype.type(0), np.empty(BLOCK, x.dtype)
    for start in range(first, last, BLOCK):
        values = x[start : min(start + BLOCK, last)]
        for i in range(values.size):
            low = zero + slope * values[i]  # 0 + -0 = 0
            result[i] = values[i] if values[i] > zero else low
        y[start : start + values.size] = result[: values.size]


@kernel
def _backward(first, last, v, dy, dx, slope):
    zero, one, result = dy.dtype.type(0), dy.dtype.type(1), np.empty(BLOCK, dy.dtype)
    for start in range(first, last, BLOCK):
        end = min(start + BLOCK, last)
        values, gradient = v[start:end], dy[start:end]
        for i in range(values.size):
            factor = slope if values[i] <= zero else zero
            factor = one if values[i] > zero else factor
            result[i] = gradient[i] * factor
        dx[start:end] = result[: end - start]
