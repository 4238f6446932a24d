"""Pooling over two axes where channels lie behind them, on the CPU: as in `pooling.py`, on transposed copies.

x and dx are (items, *in_spatial, channels), y and dy (items, *out_spatial, channels). A mask holds each maximum's
row-major place in its window (see `ops/window_places.py`).
"""

from __future__ import annotations

import numpy as np

from . import pooling

__all__ = [
    "average_pool_last_backward",
    "average_pool_last_forward",
    "max_pool_last_backward",
    "max_pool_last_forward",
]


def max_pool_last_forward(x, y, mask, top_mask, channels, geometry) -> None:
    """y = the maximum of each window: the first one in row-major order, never a NaN.

    `mask` (for backward) and `top_mask` (of x's type, for the user: the maximum's index in its plane) may be None.
    """
    g = geometry
    top = np.empty((y.size // max(1, channels * _positions(g.out_spatial)), channels, *g.out_spatial), y.dtype)
    index = np.empty(top.shape, np.int32)
    pooling.max_pool_forward(_planes(x, channels, g.in_spatial), top, index, None, g)
    _put(top, y)
    if top_mask is not None:
        _put(index, top_mask)
    if mask is not None:
        rows, columns = _starts(g)
        width = g.in_spatial[1]
        place = (index // width - rows) * g.kernel[1] + index % width - columns
        _put(np.where(index < 0, mask.dtype.type(-1 if mask.dtype == np.int32 else 255), place), mask)


def max_pool_last_backward(dy, mask, dx, channels, geometry) -> None:
    """dx = for each input, the sum of dy over the windows whose maximum it was."""
    g = geometry
    place = _planes(mask, channels, g.out_spatial)
    nothing = place == mask.dtype.type(-1 if mask.dtype == np.int32 else 255)
    rows, columns = _starts(g)
    place = place.astype(np.int32)
    index = (place // g.kernel[1] + rows) * g.in_spatial[1] + place % g.kernel[1] + columns
    index = np.where(nothing, -1, index).astype(np.int32)
    bottom = np.empty((len(place), channels, *g.in_spatial), dx.dtype)
    pooling.max_pool_backward(_planes(dy, channels, g.out_spatial), index, bottom, g)
    _put(bottom, dx)


def average_pool_last_forward(x, y, channels, geometry) -> None:
    """y = the sum of each window's pixels / its size with padding (see PoolGeometry.divisors)."""
    planes = _planes(x, channels, geometry.in_spatial)
    top = np.empty((*planes.shape[:2], *geometry.out_spatial), y.dtype)
    pooling.average_pool_forward(planes, top, geometry)
    _put(top, y)


def average_pool_last_backward(dy, dx, channels, geometry) -> None:
    """dx = for each input, the sum of dy / the window's size over the windows it was in."""
    planes = _planes(dy, channels, geometry.out_spatial)
    bottom = np.empty((*planes.shape[:2], *geometry.in_spatial), dx.dtype)
    pooling.average_pool_backward(planes, bottom, geometry)
    _put(bottom, dx)


def _positions(spatial) -> int:
    return spatial[0] * spatial[1]


def _planes(array, channels, spatial):
    """(items, channels, *spatial) of an array whose channels lie last."""
    items = array.size // max(1, channels * _positions(spatial))
    return np.ascontiguousarray(array.reshape(items, *spatial, channels).transpose(0, 3, 1, 2))


def _put(planes, array) -> None:
    """Write planes (items, channels, ...) into an array whose channels lie last."""
    moved = planes.transpose(0, 2, 3, 1)
    np.copyto(array.reshape(moved.shape), moved, casting="unsafe")


def _starts(g):
    """The first row and column of every output's window, before clipping, to be broadcast over (..., rows, columns)."""
    rows, columns = (np.arange(n) * s - p for n, s, p in zip(g.out_spatial, g.stride, g.pad, strict=True))
    return rows[:, None], columns
