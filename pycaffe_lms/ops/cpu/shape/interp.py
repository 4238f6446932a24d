"""Interpolate bilinearly between corner points: the corners of a window are the corners of the result."""

from __future__ import annotations

from typing import Any

import numpy as np

from ....arrays import HostArray
from ...records import StretchedWindow
from ..channels import row_slices

__all__ = ["interp_backward", "interp_forward"]


def interp_forward(x: HostArray, y: HostArray, stretch: StretchedWindow) -> None:
    """StretchedWindow the window of x to y: output o lies at o * (size - 1) / (out - 1), or at 0 where out is 1."""
    planes, full, start, size, out = stretch
    y = y.reshape(planes, *out)
    window = x.reshape(planes, *full)[:, start : start + size[0], start : start + size[1]]
    if size == out:
        y[...] = window
        return
    (top, bottom, down), (left, right, across) = (_taps(s, o, y.dtype) for s, o in zip(size, out, strict=True))
    for part in row_slices(planes, max(full[0] * full[1], out[0] * out[1])):
        some = window[part]
        rows = some[:, top] * (1 - down[:, None])
        rows += some[:, bottom] * down[:, None]
        np.multiply(rows[:, :, left], 1 - across, out=y[part])
        y[part] += rows[:, :, right] * across


def interp_backward(dy: HostArray, dx: HostArray, stretch: StretchedWindow) -> None:
    """Compute dx = for each input, the sum of dy * its weight over the outputs that hold it; 0 outside the window."""
    planes, full, start, size, out = stretch
    dy, dx = dy.reshape(planes, *out), dx.reshape(planes, *full)
    dx[...] = 0
    window = dx[:, start : start + size[0], start : start + size[1]]
    for part in row_slices(planes, max(full[0] * full[1], out[0] * out[1])):
        if size == out:
            window[part] = dy[part]
        else:
            rows = _transposed(dy[part].swapaxes(1, 2), size[1], out[1]).swapaxes(1, 2)
            window[part] = _transposed(rows, size[0], out[0])


def _taps(size: int, out: int, dtype: np.dtype[Any]) -> tuple[HostArray, HostArray, HostArray]:
    """Return (input before, input after, weight of the latter) of each output along one axis, in exact integers."""
    steps = max(out - 1, 1)
    at = np.arange(out, dtype=np.int64) * (size - 1)
    before = at // steps
    return before, np.minimum(before + 1, size - 1), (at % steps / steps).astype(dtype)


def _transposed(dy: HostArray, size: int, out: int) -> HostArray:
    """Return the transpose of the interpolation along axis 1: (n, out, m) -> (n, size, m)."""
    before, _, weight = _taps(size, out, dy.dtype)
    inputs, starts = np.unique(before, return_index=True)  # neighbouring outputs share an input
    dx = np.zeros((dy.shape[0], size, dy.shape[2]), dy.dtype)
    dx[:, inputs] = np.add.reduceat(dy * (1 - weight[:, None]), starts, axis=1)
    after = np.add.reduceat(dy * weight[:, None], starts, axis=1)
    inner = inputs < size - 1
    dx[:, inputs[inner] + 1] += after[:, inner]
    return dx
