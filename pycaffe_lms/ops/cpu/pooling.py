"""Pooling on the CPU: one vectorised step per kernel tap, a few planes at a time.

`geometry` is a PoolGeometry; x and dx are (planes, *in_spatial), y and dy (planes, *out_spatial). A mask holds the
index of the maximum inside its input plane, -1 where the window had none.
"""

from __future__ import annotations

import numpy as np

from ..geometry import PoolGeometry, tap_range

__all__ = [
    "average_pool_backward",
    "average_pool_forward",
    "max_pool_backward",
    "max_pool_forward",
]

_LEAST = -float(np.finfo(np.float32).max)  # Caffe's start of a maximum, in every float type
_CHUNK = 1 << 18  # input elements worked on at a time: they stay in the cache


def max_pool_forward(x, y, mask, top_mask, geometry) -> None:
    """y = the maximum of each window: the first one in row-major order, never a NaN.

    `mask` (int32, for backward) and `top_mask` (of x's type, for the user) may each be None.
    """
    g = geometry
    for planes in _chunks(g):
        x_part, y_part = _part(x, g.in_spatial, planes, g), _part(y, g.out_spatial, planes, g)
        y_part[...] = _LEAST
        for _, out, pixels in _taps(g):
            np.fmax(y_part[out], x_part[pixels], out=y_part[out])
        if mask is None and top_mask is None:
            continue
        where = _first_maximum(g, x_part, y_part)
        for result in (mask, top_mask):
            if result is not None:
                np.copyto(_part(result, g.out_spatial, planes, g), where, casting="unsafe")


def max_pool_backward(dy, mask, dx, geometry) -> None:
    """dx = for each input, the sum of dy over the windows whose maximum it was."""
    g = geometry
    size = g.in_spatial[0] * g.in_spatial[1]
    for planes in _chunks(g):
        gradient, where = _part(dy, g.out_spatial, planes, g), _part(mask, g.out_spatial, planes, g)
        target = _part(dx, g.in_spatial, planes, g)
        first = np.arange(len(target), dtype=np.int64).reshape(-1, 1, 1) * size
        some = where >= 0
        total = np.bincount((where + first)[some], weights=gradient[some], minlength=target.size)
        np.copyto(target, total.reshape(target.shape), casting="same_kind")


def average_pool_forward(x, y, geometry) -> None:
    """y = the sum of each window's pixels / its size with padding (see PoolGeometry.divisors)."""
    g = geometry
    divisors = _divisors(g, y.dtype)
    for planes in _chunks(g):
        x_part, y_part = _part(x, g.in_spatial, planes, g), _part(y, g.out_spatial, planes, g)
        if g.out_spatial == (1, 1) and g.kernel == g.in_spatial and not any(g.pad):
            np.sum(x_part, axis=(1, 2), keepdims=True, out=y_part)
        else:
            y_part[...] = 0
            for _, out, pixels in _taps(g):
                y_part[out] += x_part[pixels]
        y_part /= divisors


def average_pool_backward(dy, dx, geometry) -> None:
    """dx = for each input, the sum of dy / the window's size over the windows it was in."""
    g = geometry
    divisors = _divisors(g, dy.dtype)
    for planes in _chunks(g):
        share, target = _part(dy, g.out_spatial, planes, g) / divisors, _part(dx, g.in_spatial, planes, g)
        target[...] = 0
        for _, out, pixels in _taps(g):
            target[pixels] += share[out]


def _first_maximum(g: PoolGeometry, x, y):
    """The index of each window's first maximum inside its plane; -1 where nothing is above the start."""
    taps = list(_taps(g))
    missing = np.ones(y.shape, bool)
    # counting the taps before the first hit takes small integers only: far faster than writing indices under a mask
    before = np.zeros(y.shape, np.min_scalar_type(len(taps)))
    for _, out, pixels in taps:
        missing[out] &= x[pixels] != y[out]
        before += missing
    width = g.in_spatial[1]
    offsets = np.array([(i - g.pad[0]) * width + j - g.pad[1] for (i, j), _, _ in taps] + [0], np.int32)
    where = offsets[before]
    where += np.arange(g.out_spatial[0], dtype=np.int32)[:, None] * (g.stride[0] * width)
    where += np.arange(g.out_spatial[1], dtype=np.int32) * g.stride[1]
    where[missing | (y == _LEAST)] = -1
    return where


def _chunks(g: PoolGeometry):
    step = max(1, _CHUNK // (g.in_spatial[0] * g.in_spatial[1]))
    for first in range(0, g.planes, step):
        yield slice(first, first + step)


def _part(array, spatial, planes: slice, g: PoolGeometry):
    return array.reshape(g.planes, *spatial)[planes]


def _taps(g: PoolGeometry):
    """For every tap, row by row: (tap, index of the outputs for which it is a real pixel, index of those pixels)."""
    for tap in np.ndindex(*g.kernel):
        out, pixels = [slice(None)], [slice(None)]
        for a, t in enumerate(tap):
            offset = t - g.pad[a]
            first, last = tap_range(g.in_spatial[a], g.out_spatial[a], g.stride[a], offset)
            start = first * g.stride[a] + offset
            out.append(slice(first, last))
            pixels.append(slice(start, start + (last - first) * g.stride[a], g.stride[a]) if last > first else slice(0))
        if all(p != slice(0) for p in pixels):
            yield tap, tuple(out), tuple(pixels)


def _divisors(g: PoolGeometry, dtype):
    return np.outer(g.divisors(0), g.divisors(1)).astype(dtype)
