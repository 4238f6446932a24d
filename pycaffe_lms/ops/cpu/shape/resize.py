"""Resize maps as OpenCV does: bilinearly between the centres of pixels, or to the pixel at the corner."""

from __future__ import annotations

from typing import Any

import numpy as np

from ....arrays import HostArray
from ...records import Resize
from ..channels import row_slices

__all__ = ["resize_backward", "resize_forward"]


def resize_forward(x: HostArray, y: HostArray, resize: Resize) -> None:
    """Resize each plane of x to y: output o lies at (o + 0.5) * size / out - 0.5, within the first and last pixel.

    With `nearest` it is pixel o * size / out, rounded down; with `corners` o lies at o * size / out.
    """
    planes, size, out, nearest, _ = resize
    x, y = x.reshape(planes, *size), y.reshape(planes, *out)
    (top, bottom, down), (left, right, across) = (_taps(s, o, resize, y.dtype) for s, o in zip(size, out, strict=True))
    for part in row_slices(planes, max(size[0] * size[1], out[0] * out[1])):
        rows = x[part][:, top]
        if nearest:
            y[part] = rows[:, :, left]
            continue
        rows = rows * (1 - down[:, None])
        rows += x[part][:, bottom] * down[:, None]
        np.multiply(rows[:, :, left], 1 - across, out=y[part])
        y[part] += rows[:, :, right] * across


def resize_backward(dy: HostArray, dx: HostArray, resize: Resize) -> None:
    """Compute dx = for each input, the sum of dy * its weight over the outputs that hold it."""
    planes, size, out, _, _ = resize
    dy, dx = dy.reshape(planes, *out), dx.reshape(planes, *size)
    for part in row_slices(planes, max(size[0] * size[1], out[0] * out[1])):
        rows = _transposed(dy[part].swapaxes(1, 2), size[1], out[1], resize).swapaxes(1, 2)
        dx[part] = _transposed(rows, size[0], out[0], resize)


def _taps(size: int, out: int, how: Resize, dtype: np.dtype[Any]) -> tuple[HostArray, HostArray, HostArray]:
    """Return (input before, input after, weight of the latter) of each output along one axis, in exact integers."""
    o = np.arange(out, dtype=np.int64)
    if how.nearest:
        before = o * size // out
        return before, before, np.zeros(out, dtype)
    at = 2 * o * size + (0 if how.corners else size - out)  # in halves of an output
    before, weight = at // (2 * out), (at % (2 * out)) / (2 * out)
    weight[(before < 0) | (before >= size - 1)] = 0
    before = np.clip(before, 0, size - 1)
    return before, np.minimum(before + 1, size - 1), weight.astype(dtype)


def _transposed(dy: HostArray, size: int, out: int, how: Resize) -> HostArray:
    """Return the transpose of resizing along axis 1: (n, out, m) -> (n, size, m)."""
    before, _, weight = _taps(size, out, how, dy.dtype)
    inputs, starts = np.unique(before, return_index=True)  # neighbouring outputs share an input
    dx = np.zeros((dy.shape[0], size, dy.shape[2]), dy.dtype)
    dx[:, inputs] = np.add.reduceat(dy * (1 - weight[:, None]), starts, axis=1)
    after = np.add.reduceat(dy * weight[:, None], starts, axis=1)
    inner = inputs < size - 1
    dx[:, inputs[inner] + 1] += after[:, inner]
    return dx
