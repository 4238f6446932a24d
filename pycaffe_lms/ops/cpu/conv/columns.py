"""Copy windows of images to columns, on any number of spatial axes: x (planes, *inputs), y (planes, *kernel, *outputs).

inputs, kernel, stride, pad, dilation and outputs are tuples, one value for each axis.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from ....arrays import HostArray
from ...geometry import Ints

__all__ = ["im2col_forward", "im2col_backward"]


def _taps(
    x: HostArray,
    y: HostArray,
    planes: int,
    inputs: Ints,
    kernel: Ints,
    stride: Ints,
    pad: Ints,
    dilation: Ints,
    outputs: Ints,
) -> Iterator[tuple[HostArray, HostArray, tuple[slice, ...]]]:
    """Yield for each kernel tap: its part of y (planes, *outputs), the pixels of x it sees, their places in it."""
    x, y = x.reshape(planes, *inputs), y.reshape(planes, *kernel, *outputs)
    for tap in np.ndindex(*kernel):
        ours, theirs = [slice(None)], [slice(None)]
        for size, k, s, p, d, out in zip(inputs, tap, stride, pad, dilation, outputs, strict=True):
            shift = k * d - p  # output o looks at input o * s + shift
            first = min(out, max(0, -(shift // s)))
            end = max(first, min(out, (size - 1 - shift) // s + 1))
            ours.append(slice(first, end))
            theirs.append(slice(first * s + shift, (end - 1) * s + shift + 1, s) if end > first else slice(0, 0))
        yield y[(slice(None), *tap)], x[tuple(theirs)], tuple(ours)


def im2col_forward(
    x: HostArray,
    y: HostArray,
    planes: int,
    inputs: Ints,
    kernel: Ints,
    stride: Ints,
    pad: Ints,
    dilation: Ints,
    outputs: Ints,
) -> None:
    """Compute y[plane, tap, o] = x[plane, o * stride + tap * dilation - pad], 0 outside of x."""
    for part, values, within in _taps(x, y, planes, inputs, kernel, stride, pad, dilation, outputs):
        part.fill(0)
        part[within] = values


def im2col_backward(
    dy: HostArray,
    dx: HostArray,
    planes: int,
    inputs: Ints,
    kernel: Ints,
    stride: Ints,
    pad: Ints,
    dilation: Ints,
    outputs: Ints,
) -> None:
    """Compute dx = for each element the sum of dy over all places that `im2col_forward` copied it to."""
    dx.fill(0)
    for part, values, within in _taps(dx, dy, planes, inputs, kernel, stride, pad, dilation, outputs):
        values += part[within]
