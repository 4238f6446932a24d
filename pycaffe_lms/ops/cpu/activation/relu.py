"""Compute ReLU and ReLU6 and their gradients from values. Those that keep bits are in `bits.py`."""

from __future__ import annotations

import numpy as np

from ....arrays import HostArray
from ..compiled import BLOCK, kernel
from ..threads import ELEMENTS, parallel

__all__ = ["relu_forward", "relu_backward", "relu6_forward", "relu6_backward"]


def relu_forward(x: HostArray, y: HostArray, slope: float) -> None:
    """Compute y = max(x, 0) + slope * min(x, 0); NaN stays NaN, and -inf with slope 0 gives NaN, as in Caffe."""
    parallel(_forward, x.size, x.reshape(-1), y.reshape(-1), x.dtype.type(slope), grain=ELEMENTS)


def relu_backward(y_or_x: HostArray, dy: HostArray, dx: HostArray, slope: float) -> None:
    """Compute dx = dy * (1 where v > 0, slope where v <= 0, 0 where v is NaN), v being `y_or_x`."""
    flat = y_or_x.reshape(-1), dy.reshape(-1), dx.reshape(-1)
    parallel(_backward, dy.size, *flat, dy.dtype.type(slope), grain=ELEMENTS)


@kernel
def _forward(first: int, last: int, x: HostArray, y: HostArray, slope: float) -> None:
    zero, result = x.dtype.type(0), np.empty(BLOCK, x.dtype)
    for start in range(first, last, BLOCK):
        values = x[start : min(start + BLOCK, last)]
        for i in range(values.size):
            low = zero + slope * values[i]  # 0 + -0 = 0
            result[i] = values[i] if values[i] > zero else low
        y[start : start + values.size] = result[: values.size]


@kernel
def _backward(first: int, last: int, v: HostArray, dy: HostArray, dx: HostArray, slope: float) -> None:
    zero, one, result = dy.dtype.type(0), dy.dtype.type(1), np.empty(BLOCK, dy.dtype)
    for start in range(first, last, BLOCK):
        end = min(start + BLOCK, last)
        values, gradient = v[start:end], dy[start:end]
        for i in range(values.size):
            factor = slope if values[i] <= zero else zero
            factor = one if values[i] > zero else factor
            result[i] = gradient[i] * factor
        dx[start:end] = result[: end - start]


def relu6_forward(x: HostArray, y: HostArray, slope: float) -> None:
    """Compute y = min(x, 6) where x > 0, slope * x where x <= 0 (0 for slope 0, even at -inf), NaN where x is NaN."""
    parallel(_relu6_forward, x.size, x.reshape(-1), y.reshape(-1), x.dtype.type(slope), grain=ELEMENTS)


def relu6_backward(y_or_x: HostArray, dy: HostArray, dx: HostArray, slope: float) -> None:
    """Compute dx = dy * (1 where 0 < v < 6, slope where v <= 0, else 0).

    `y_or_x` is v: the input, or the output where slope >= 0.
    """
    flat = y_or_x.reshape(-1), dy.reshape(-1), dx.reshape(-1)
    parallel(_relu6_backward, dy.size, *flat, dy.dtype.type(slope), grain=ELEMENTS)


@kernel
def _relu6_forward(first: int, last: int, x: HostArray, y: HostArray, slope: float) -> None:
    zero, six, result = x.dtype.type(0), x.dtype.type(6), np.empty(BLOCK, x.dtype)
    for start in range(first, last, BLOCK):
        values = x[start : min(start + BLOCK, last)]
        for i in range(values.size):
            low = zero if slope == zero else slope * values[i]
            high = six if values[i] > six else values[i]
            result[i] = low if values[i] <= zero else high
        y[start : start + values.size] = result[: values.size]


@kernel
def _relu6_backward(first: int, last: int, v: HostArray, dy: HostArray, dx: HostArray, slope: float) -> None:
    zero, one, six, result = dy.dtype.type(0), dy.dtype.type(1), dy.dtype.type(6), np.empty(BLOCK, dy.dtype)
    for start in range(first, last, BLOCK):
        end = min(start + BLOCK, last)
        values, gradient = v[start:end], dy[start:end]
        for i in range(values.size):
            factor = slope if values[i] <= zero else zero
            inside = one if values[i] < six else zero
            factor = inside if values[i] > zero else factor
            result[i] = gradient[i] * factor
        dx[start:end] = result[: end - start]
