"""Pool over two axes in front of the channels, on the CPU: as in `pooling.py`, on transposed copies.

x and dx are (items, *in_spatial, channels), y and dy (items, *out_spatial, channels). A mask holds each maximum's
row-major place in its window (see `ops/geometry.py`).
"""

from __future__ import annotations

import numpy as np

from ....arrays import HostArray
from ...geometry import Ints, PoolGeometry, place_dtype
from . import pooling
from .window_places import plane_indices

__all__ = ["average_pool_last_backward", "average_pool_last_forward", "max_pool_last_backward", "max_pool_last_forward"]


def max_pool_last_forward(
    x: HostArray,
    y: HostArray,
    mask: HostArray | None,
    top_mask: HostArray | None,
    channels: int,
    geometry: PoolGeometry,
) -> None:
    """Compute y = the maximum of each window: the first one in row-major order, never a NaN.

    `mask` (for backward) and `top_mask` (of x's type, for users: the maximum's index in its plane) may be None.
    """
    g = geometry
    top = np.empty((y.size // max(1, channels * _positions(g.out_spatial)), channels, *g.out_spatial), y.dtype)
    place = np.empty(top.shape, place_dtype(g) if mask is None else mask.dtype)
    pooling.max_pool_forward(_planes(x, channels, g.in_spatial), top, place, None, g)
    _put(top, y)
    if top_mask is not None:
        _put(plane_indices(place, g).reshape(place.shape), top_mask)
    if mask is not None:
        _put(place, mask)


def max_pool_last_backward(
    dy: HostArray, mask: HostArray, dx: HostArray, channels: int, geometry: PoolGeometry
) -> None:
    """Compute dx = for each input, the sum of dy over the windows whose maximum it was."""
    g = geometry
    place = _planes(mask, channels, g.out_spatial)
    bottom = np.empty((len(place), channels, *g.in_spatial), dx.dtype)
    pooling.max_pool_backward(_planes(dy, channels, g.out_spatial), place, bottom, g)
    _put(bottom, dx)


def average_pool_last_forward(x: HostArray, y: HostArray, channels: int, geometry: PoolGeometry) -> None:
    """Compute y = the sum of each window's pixels / its size with padding (see PoolGeometry.divisors)."""
    planes = _planes(x, channels, geometry.in_spatial)
    top = np.empty((*planes.shape[:2], *geometry.out_spatial), y.dtype)
    pooling.average_pool_forward(planes, top, geometry)
    _put(top, y)


def average_pool_last_backward(dy: HostArray, dx: HostArray, channels: int, geometry: PoolGeometry) -> None:
    """Compute dx = for each input, the sum of dy / the window's size over the windows that hold it."""
    planes = _planes(dy, channels, geometry.out_spatial)
    bottom = np.empty((*planes.shape[:2], *geometry.in_spatial), dx.dtype)
    pooling.average_pool_backward(planes, bottom, geometry)
    _put(bottom, dx)


def _positions(spatial: Ints) -> int:
    return spatial[0] * spatial[1]


def _planes(array: HostArray, channels: int, spatial: Ints) -> HostArray:
    """Return a copy (items, channels, *spatial) of an array whose channels lie last."""
    items = array.size // max(1, channels * _positions(spatial))
    return np.ascontiguousarray(array.reshape(items, *spatial, channels).transpose(0, 3, 1, 2))


def _put(planes: HostArray, array: HostArray) -> None:
    """Write planes (items, channels, ...) into an array whose channels lie last."""
    moved = planes.transpose(0, 2, 3, 1)
    np.copyto(array.reshape(moved.shape), moved, casting="unsafe")
