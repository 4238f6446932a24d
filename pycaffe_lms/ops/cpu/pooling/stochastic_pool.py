"""Pool stochastically on the CPU over any number of axes: one vectorised step per kernel tap, a few planes at a time.

`geometry` is a PoolGeometry without padding; x and dx are (planes, *in_spatial), the others (planes, *out_spatial).
Random numbers are Philox's, as in `cpu/activation/dropout.py` with its `key`: output i takes lane i % 4 of block key[2]
+ i // 4. Running sums are added in the arrays' type in row-major order, on every device, so that all choose the same
elements.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np

from ....arrays import HostArray
from ...geometry import Ints, PoolGeometry, tap_range
from ..activation.dropout import words_of
from ..channels import row_slices

__all__ = ["stochastic_pool_forward", "stochastic_pool_mean_backward", "stochastic_pool_mean_forward"]


def stochastic_pool_forward(
    x: HostArray, y: HostArray, mask: HostArray | None, key: HostArray, geometry: PoolGeometry
) -> None:
    """Compute y = the first element of each window at which the running sum reaches a random share of the whole sum.

    The share is in (0, 1]. y is the last element where none reaches it (a NaN, or negative values), and 0 for an empty
    window. `mask` (or None) receives the element's place in its window (see `ops/geometry.py`), as max_pool_backward
    reads it.
    """
    g = geometry
    numbers = [int(word) for word in key]
    for planes in row_slices(g.planes, math.prod(g.in_spatial)):
        x_part, y_part = _part(x, g.in_spatial, planes, g), _part(y, g.out_spatial, planes, g)
        level = _sum(g, x_part)
        level *= _shares(g, planes, level.dtype, *numbers).reshape(level.shape)
        running, where = np.zeros_like(level), np.full(level.shape, -1, np.int32)
        missing = np.ones(level.shape, bool)
        y_part[...] = 0
        for out, pixels, place in _taps(g):
            running[out] += x_part[pixels]
            # until its element is found, a window holds the last one looked at
            np.copyto(y_part[out], x_part[pixels], where=missing[out])
            np.copyto(where[out], place, where=missing[out])
            missing[out] &= ~(running[out] >= level[out])
        if mask is not None:
            _part(mask, g.out_spatial, planes, g)[...] = where


def stochastic_pool_mean_forward(x: HostArray, y: HostArray, total: HostArray | None, geometry: PoolGeometry) -> None:
    """Compute y = the sum of each window's squares / its sum, 0 where that is not positive; `total` gets the sum."""
    g = geometry
    for planes in row_slices(g.planes, math.prod(g.in_spatial)):
        x_part, y_part = _part(x, g.in_spatial, planes, g), _part(y, g.out_spatial, planes, g)
        sums = _sum(g, x_part)
        squares = np.zeros_like(sums)
        for out, pixels, _ in _taps(g):
            squares[out] += np.square(x_part[pixels])
        y_part[...] = 0
        np.divide(squares, sums, out=y_part, where=sums > 0)
        if total is not None:
            _part(total, g.out_spatial, planes, g)[...] = sums


def stochastic_pool_mean_backward(
    dy: HostArray, x: HostArray, y: HostArray, total: HostArray, dx: HostArray, geometry: PoolGeometry
) -> None:
    """Compute dx = for each input, the sum of dy (2 x - y) / total over the windows that hold it and have total > 0."""
    g = geometry
    for planes in row_slices(g.planes, math.prod(g.in_spatial)):
        gradient, y_part = _part(dy, g.out_spatial, planes, g), _part(y, g.out_spatial, planes, g)
        sums = _part(total, g.out_spatial, planes, g)
        x_part, target = _part(x, g.in_spatial, planes, g), _part(dx, g.in_spatial, planes, g)
        share = np.zeros_like(gradient)
        np.divide(gradient, sums, out=share, where=sums > 0)
        target[...] = 0
        for out, pixels, _ in _taps(g):
            target[pixels] += share[out] * (2 * x_part[pixels] - y_part[out])


def _sum(g: PoolGeometry, x: HostArray) -> HostArray:
    total = np.zeros((len(x), *g.out_spatial), x.dtype)
    for out, pixels, _ in _taps(g):
        total[out] += x[pixels]
    return total


def _shares(g: PoolGeometry, planes: slice, dtype: np.dtype[Any], seed: int, offset: int, start: int) -> HostArray:
    """Return one random number in (0, 1] for each output of some planes, a multiple of 2^-24."""
    size = math.prod(g.out_spatial)
    first, last = planes.start * size, planes.stop * size
    block = np.arange(start + first // 4, start + (last + 3) // 4, dtype=np.uint64)
    bits = words_of(block, seed, offset).reshape(-1)[first - 4 * (first // 4) :][: last - first]
    return ((bits >> np.uint32(8)) + np.uint32(1)).astype(dtype) * dtype.type(2.0**-24)


def _part(array: HostArray, spatial: Ints, planes: slice, g: PoolGeometry) -> HostArray:
    """Return some planes of an array, reshaped to (planes, *spatial)."""
    return array.reshape(g.planes, *spatial)[planes]


def _taps(g: PoolGeometry) -> Iterator[tuple[tuple[slice, ...], tuple[slice, ...], np.int32]]:
    """Yield (outputs, pixels, place) of every tap that meets a real pixel, in row-major order.

    `outputs` and `pixels` are indices of the outputs for which the tap does and of those pixels; `place` is the tap's
    place in the window.
    """
    for place, tap in enumerate(np.ndindex(*g.kernel)):
        out, pixels, real = [slice(None)], [slice(None)], True
        for a, t in enumerate(tap):
            offset = t - g.pad[a]
            first, last = tap_range(g.in_spatial[a], g.out_spatial[a], g.stride[a], offset)
            start = first * g.stride[a] + offset
            end = start + (last - first) * g.stride[a]
            out.append(slice(first, last))
            pixels.append(slice(start, end, g.stride[a]))
            real = real and last > first
        if real:
            yield tuple(out), tuple(pixels), np.int32(place)
