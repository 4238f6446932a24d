"""Copy windows of images to columns, on any number of spatial axes.

The geometry's x is (planes, *in_spatial), planes = batch * channels, and the columns are (planes, *kernel,
*out_spatial); its outputs and groups do not count.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from ....arrays import HostArray
from ...geometry import ConvGeometry

__all__ = ["im2col_forward", "im2col_backward"]


def _taps(x: HostArray, y: HostArray, g: ConvGeometry) -> Iterator[tuple[HostArray, HostArray, tuple[slice, ...]]]:
    """Yield for each kernel tap: its part of y (planes, *out_spatial), the pixels of x it sees, their places in it."""
    planes = g.batch * g.channels
    x, y = x.reshape(planes, *g.in_spatial), y.reshape(planes, *g.kernel, *g.out_spatial)
    for tap in np.ndindex(*g.kernel):
        ours, theirs = [slice(None)], [slice(None)]
        for size, k, s, p, d, out in zip(g.in_spatial, tap, g.stride, g.pad, g.dilation, g.out_spatial, strict=True):
            shift = k * d - p  # output o looks at input o * s + shift
            first = min(out, max(0, -(shift // s)))
            end = max(first, min(out, (size - 1 - shift) // s + 1))
            ours.append(slice(first, end))
            theirs.append(slice(first * s + shift, (end - 1) * s + shift + 1, s) if end > first else slice(0, 0))
        yield y[(slice(None), *tap)], x[tuple(theirs)], tuple(ours)


def im2col_forward(x: HostArray, y: HostArray, geometry: ConvGeometry) -> None:
    """Compute y[plane, tap, o] = x[plane, o * stride + tap * dilation - pad], 0 outside of x."""
    for part, values, within in _taps(x, y, geometry):
        part.fill(0)
        part[within] = values


def im2col_backward(dy: HostArray, dx: HostArray, geometry: ConvGeometry) -> None:
    """Compute dx = for each element the sum of dy over all places that `im2col_forward` copied it to."""
    dx.fill(0)
    for part, values, within in _taps(dx, dy, geometry):
        values += part[within]
