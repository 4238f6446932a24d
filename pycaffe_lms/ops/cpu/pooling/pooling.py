"""Pool on the CPU: compiled kernels over planes, one row of outputs at a time.

`geometry` is a PoolGeometry; x and dx are (planes, *in_spatial), y and dy (planes, *out_spatial). A mask holds each
maximum's row-major place in its window (see `ops/geometry.py`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ....arrays import HostArray
from ...geometry import Ints, PoolGeometry, place_dtype
from ..compiled import kernel
from ..threads import parallel
from .window_places import LEAST, plane_indices, scatter

__all__ = ["average_pool_backward", "average_pool_forward", "max_pool_backward", "max_pool_forward"]

_WIDE = 24  # outputs in a row from which vectors are faster
_GRAIN = 1 << 14  # elements from which a second thread pays


def max_pool_forward(
    x: HostArray, y: HostArray, mask: HostArray | None, top_mask: HostArray | None, geometry: PoolGeometry
) -> None:
    """Compute y = the maximum of each window: the first one in row-major order, never a NaN.

    `mask` (for backward) and `top_mask` (of x's type, for users: the maximum's index in its plane) may be None.
    """
    g = geometry
    if mask is None:
        mask = np.empty(y.shape, place_dtype(g))
    wide = g.out_spatial[1] >= _WIDE
    _run(_max_wide if wide else _max_narrow, g, _planes(x, g), _planes(y, g), _planes(mask, g))
    if top_mask is not None:
        np.copyto(top_mask.reshape(-1), plane_indices(mask, g).reshape(-1), casting="unsafe")


def max_pool_backward(dy: HostArray, mask: HostArray, dx: HostArray, geometry: PoolGeometry) -> None:
    """Compute dx = for each input, the sum of dy over the windows whose maximum it was."""
    scatter(dy, mask, dx, geometry)


def average_pool_forward(x: HostArray, y: HostArray, geometry: PoolGeometry) -> None:
    """Compute y = the sum of each window's pixels / its size with padding (see PoolGeometry.divisors)."""
    g = geometry
    _run(_average_forward, g, _planes(x, g), _planes(y, g), _divisors(g, y.dtype))


def average_pool_backward(dy: HostArray, dx: HostArray, geometry: PoolGeometry) -> None:
    """Compute dx = for each input, the sum of dy / the window's size over the windows that hold it."""
    g = geometry
    _run(_average_backward, g, _planes(dy, g), _planes(dx, g), _divisors(g, dy.dtype))


def _run(function: Callable[..., None], g: PoolGeometry, *arrays: HostArray) -> None:
    sizes = g.in_spatial, g.out_spatial, g.kernel, g.stride, g.pad
    parallel(function, g.planes, *arrays, sizes, grain=_GRAIN // (g.in_spatial[0] * g.in_spatial[1]) + 1)


def _planes(array: HostArray, g: PoolGeometry) -> HostArray:
    return array.reshape(g.planes, array.size // g.planes if g.planes else 0)


def _divisors(g: PoolGeometry, dtype: np.dtype[Any]) -> HostArray:
    return np.outer(g.divisors(0), g.divisors(1)).astype(dtype)


@kernel
def _max_narrow(
    first: int,
    last: int,
    x: HostArray,
    y: HostArray,
    mask: HostArray,
    sizes: tuple[Ints, ...],
) -> None:
    """Find maxima output by output, in registers."""
    (height, width), (rows, columns), window, stride, pad = sizes
    for plane in range(first, last):
        pixels = x[plane]
        for i in range(rows):
            top = i * stride[0] - pad[0]
            begin, end = max(top, 0), min(top + window[0], height)
            for j in range(columns):
                left = j * stride[1] - pad[1]
                start, stop = max(left, 0), min(left + window[1], width)
                best, where = pixels.dtype.type(LEAST), -1
                for r in range(begin, end):
                    shift = (r - top) * window[1] - left - r * width
                    for at in range(r * width + start, r * width + stop):
                        more = pixels[at] > best
                        best = pixels[at] if more else best
                        where = at + shift if more else where
                y[plane, i * columns + j] = best
                mask[plane, i * columns + j] = where  # -1 becomes the number for no place


@kernel
def _max_wide(
    first: int,
    last: int,
    x: HostArray,
    y: HostArray,
    mask: HostArray,
    sizes: tuple[Ints, ...],
) -> None:
    """Find maxima tap by tap, a row of outputs as one vector."""
    (height, width), (rows, columns), window, stride, pad = sizes
    step = stride[1]
    where = np.empty(columns, np.int32)
    for plane in range(first, last):
        for i in range(rows):
            best = y[plane, i * columns : (i + 1) * columns]
            best[:] = LEAST
            where[:] = -1
            top = i * stride[0] - pad[0]
            for r in range(max(top, 0), min(top + window[0], height)):
                for b in range(window[1]):
                    offset = b - pad[1]
                    begin = max(0, -(offset // step))
                    n = min(columns, (width - 1 - offset) // step + 1) - begin
                    if n <= 0:
                        continue
                    start, place = r * width + begin * step + offset, np.int32((r - top) * window[1] + b)
                    pixels = x[plane, start : start + (n - 1) * step + 1]
                    values, places = best[begin : begin + n], where[begin : begin + n]
                    if step == 1:
                        for j in range(n):
                            more = pixels[j] > values[j]
                            places[j] = place if more else places[j]
                            values[j] = pixels[j] if more else values[j]
                    elif step == 2:
                        for j in range(n):
                            more = pixels[2 * j] > values[j]
                            places[j] = place if more else places[j]
                            values[j] = pixels[2 * j] if more else values[j]
                    else:
                        # without a loop of its own for other strides the two above are not vectorised
                        for j in range(n):
                            if pixels[j * step] > values[j]:
                                values[j] = pixels[j * step]
                                places[j] = place
            kept = mask[plane, i * columns : (i + 1) * columns]
            for j in range(columns):
                kept[j] = where[j]


@kernel
def _average_forward(
    first: int,
    last: int,
    x: HostArray,
    y: HostArray,
    divisors: HostArray,
    sizes: tuple[Ints, ...],
) -> None:
    (height, width), (rows, columns), window, stride, pad = sizes
    for plane in range(first, last):
        for i in range(rows):
            top = i * stride[0] - pad[0]
            for j in range(columns):
                left = j * stride[1] - pad[1]
                total = 0.0  # float64: a window may be a whole plane
                for r in range(max(top, 0), min(top + window[0], height)):
                    for c in range(max(left, 0), min(left + window[1], width)):
                        total += x[plane, r * width + c]
                y[plane, i * columns + j] = total / divisors[i, j]


@kernel
def _average_backward(
    first: int,
    last: int,
    dy: HostArray,
    dx: HostArray,
    divisors: HostArray,
    sizes: tuple[Ints, ...],
) -> None:
    (height, width), (rows, columns), window, stride, pad = sizes
    for plane in range(first, last):
        dx[plane, :] = 0
        for i in range(rows):
            top = i * stride[0] - pad[0]
            for j in range(columns):
                left = j * stride[1] - pad[1]
                share = dy[plane, i * columns + j] / divisors[i, j]
                for r in range(max(top, 0), min(top + window[0], height)):
                    for c in range(max(left, 0), min(left + window[1], width)):
                        dx[plane, r * width + c] += share
