"""Pool over any number of axes on the CPU: compiled kernels over planes, one row of outputs at a time.

`geometry` is a PoolGeometry; x and dx are (planes, *in_spatial), y and dy (planes, *out_spatial). A mask holds each
maximum's row-major place in its window (see `ops/geometry.py`). All axes but the last are treated as one: a table lists
the input rows that each row of outputs looks at.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Callable
from typing import Any

import numpy as np

from ....arrays import HostArray
from ...geometry import Ints, PoolGeometry, place_dtype
from ..compiled import kernel
from ..threads import parallel
from .window_places import LEAST, plane_indices, scatter

__all__ = ["average_pool_nd_backward", "average_pool_nd_forward", "max_pool_nd_backward", "max_pool_nd_forward"]

_GRAIN = 1 << 14  # elements from which a second thread pays


def max_pool_nd_forward(
    x: HostArray, y: HostArray, mask: HostArray | None, top_mask: HostArray | None, geometry: PoolGeometry
) -> None:
    """Compute y = the maximum of each window: the first one in row-major order, never a NaN.

    `mask` (for backward) and `top_mask` (of x's type, for users: the maximum's index in its plane) may be None.
    """
    g = geometry
    if mask is None:
        mask = np.empty(y.shape, place_dtype(g))
    _run(_max_forward, g, _inputs(x, g), _outputs(y, g), _outputs(mask, g), y.dtype.type(LEAST))
    if top_mask is not None:
        np.copyto(top_mask.reshape(-1), plane_indices(mask, g).reshape(-1), casting="unsafe")


def max_pool_nd_backward(dy: HostArray, mask: HostArray, dx: HostArray, geometry: PoolGeometry) -> None:
    """Compute dx = for each input, the sum of dy over the windows whose maximum it was."""
    scatter(dy, mask, dx, geometry)


def average_pool_nd_forward(x: HostArray, y: HostArray, geometry: PoolGeometry) -> None:
    """Compute y = the sum of each window's pixels / its size with padding (see PoolGeometry.divisors)."""
    g = geometry
    _run(_average_forward, g, _inputs(x, g), _outputs(y, g), _divisors(g, y.dtype))


def average_pool_nd_backward(dy: HostArray, dx: HostArray, geometry: PoolGeometry) -> None:
    """Compute dx = for each input, the sum of dy / the window's size over the windows that hold it."""
    g = geometry
    _run(_average_backward, g, _outputs(dy, g), _inputs(dx, g), _divisors(g, dy.dtype))


def _inputs(x: HostArray, g: PoolGeometry) -> HostArray:
    return x.reshape(g.planes, math.prod(g.in_spatial[:-1]), g.in_spatial[-1])


def _outputs(y: HostArray, g: PoolGeometry) -> HostArray:
    return y.reshape(g.planes, math.prod(g.out_spatial[:-1]), g.out_spatial[-1])


def _run(function: Callable[..., None], g: PoolGeometry, *arrays: HostArray) -> None:
    window = g.kernel[-1], g.stride[-1], g.pad[-1]
    parallel(function, g.planes, *arrays, _rows(g), window, grain=_GRAIN // math.prod(g.in_spatial) + 1)


@functools.lru_cache(maxsize=64)
def _rows(g: PoolGeometry) -> tuple[HostArray, HostArray, HostArray]:
    """Return (rows, starts, places): which input rows, in row-major order, each row of outputs looks at.

    Output row r looks at rows[starts[r] : starts[r + 1]]; `places` holds the place in the window at which each begins.
    """
    per_axis = []  # for every axis but the last, for every output: the inputs inside its window
    for size, outputs, kernel_, stride, pad in list(
        zip(g.in_spatial, g.out_spatial, g.kernel, g.stride, g.pad, strict=True)
    )[:-1]:
        begins = (o * stride - pad for o in range(outputs))
        per_axis.append([(begin, range(max(begin, 0), min(begin + kernel_, size))) for begin in begins])
    rows, starts, places = [], [0], []
    for window in itertools.product(*per_axis):
        index, place = np.zeros(1, np.int64), np.zeros(1, np.int64)
        for (begin, inside), size, kernel_ in zip(window, g.in_spatial, g.kernel, strict=False):
            positions = np.array(inside, np.int64)
            index = (index[:, None] * size + positions).reshape(-1)
            place = (place[:, None] * kernel_ + positions - begin).reshape(-1)
        rows.append(index)
        places.append(place * g.kernel[-1])
        starts.append(starts[-1] + len(index))
    return np.concatenate(rows), np.array(starts), np.concatenate(places)


@functools.lru_cache(maxsize=64)
def _divisors(g: PoolGeometry, dtype: np.dtype[Any]) -> HostArray:
    per_axis = [np.array(g.divisors(axis)) for axis in range(len(g.kernel))]
    return functools.reduce(np.multiply.outer, per_axis).astype(dtype).reshape(-1, g.out_spatial[-1])


@kernel
def _inside(size: int, outputs: int, stride: int, offset: int) -> tuple[int, int]:
    """Return [first, last): the outputs o whose input o * stride + offset lies inside [0, size)."""
    first = max(0, -(offset // stride))
    return first, max(first, min(outputs, (size - 1 - offset) // stride + 1))


@kernel
def _max_forward(
    start: int,
    stop: int,
    x: HostArray,
    y: HostArray,
    mask: HostArray,
    least: float,
    seen: tuple[HostArray, HostArray, HostArray],
    window: Ints,
) -> None:
    (rows, starts, places), (width, stride, pad) = seen, window
    where = np.empty(y.shape[2], np.int32)
    for plane in range(start, stop):
        for r in range(y.shape[1]):
            best, kept = y[plane, r], mask[plane, r]
            best[:] = least
            where[:] = -1
            for j in range(starts[r], starts[r + 1]):
                row, place = x[plane, rows[j]], places[j]
                for e in range(width):
                    first, last = _inside(len(row), len(best), stride, e - pad)
                    if last > first:
                        begin = first * stride + e - pad
                        _larger(best[first:last], where[first:last], row[begin:], np.int32(place + e), stride)
            for i in range(len(kept)):
                kept[i] = where[i]  # -1 becomes the number for no place


@kernel
def _larger(best: HostArray, where: HostArray, row: HostArray, place: int, stride: int) -> None:
    """Set best[i] = row[i * stride] and where[i] = place wherever row[i * stride] > best[i]."""
    if stride == 1:
        for i in range(len(best)):
            better = row[i] > best[i]
            best[i] = row[i] if better else best[i]
            where[i] = place if better else where[i]
    else:
        for i in range(len(best)):
            better = row[i * stride] > best[i]
            best[i] = row[i * stride] if better else best[i]
            where[i] = place if better else where[i]


@kernel
def _add(to: HostArray, row: HostArray, stride: int) -> None:
    if stride == 1:
        for i in range(len(to)):
            to[i] += row[i]
    else:
        for i in range(len(to)):
            to[i] += row[i * stride]


@kernel
def _spread(to: HostArray, row: HostArray, stride: int) -> None:
    if stride == 1:
        for i in range(len(row)):
            to[i] += row[i]
    else:
        for i in range(len(row)):
            to[i * stride] += row[i]


@kernel
def _average_forward(
    start: int,
    stop: int,
    x: HostArray,
    y: HostArray,
    divisors: HostArray,
    seen: tuple[HostArray, HostArray, HostArray],
    window: Ints,
) -> None:
    (rows, starts, _), (width, stride, pad) = seen, window
    for plane in range(start, stop):
        for r in range(y.shape[1]):
            to, divisor = y[plane, r], divisors[r]
            to[:] = 0
            for j in range(starts[r], starts[r + 1]):
                row = x[plane, rows[j]]
                for e in range(width):
                    first, last = _inside(len(row), len(to), stride, e - pad)
                    if last > first:
                        _add(to[first:last], row[first * stride + e - pad :], stride)
            for i in range(len(to)):
                to[i] /= divisor[i]


@kernel
def _average_backward(
    start: int,
    stop: int,
    dy: HostArray,
    dx: HostArray,
    divisors: HostArray,
    seen: tuple[HostArray, HostArray, HostArray],
    window: Ints,
) -> None:
    (rows, starts, _), (width, stride, pad) = seen, window
    share = np.empty(dy.shape[2], dy.dtype)
    for plane in range(start, stop):
        dx[plane] = 0
        for r in range(dy.shape[1]):
            for i in range(len(share)):
                share[i] = dy[plane, r, i] / divisors[r, i]
            for j in range(starts[r], starts[r + 1]):
                to = dx[plane, rows[j]]
                for e in range(width):
                    first, last = _inside(len(to), len(share), stride, e - pad)
                    if last > first:
                        _spread(to[first * stride + e - pad :], share[first:last], stride)
