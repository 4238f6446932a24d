"""Convolve on the CPU through Winograd's transforms: 3x3 kernels in tiles of 4x4 outputs.

A tile's inputs and the weights are transformed into 6 x 6 values, one product of matrices per point sums over channels,
and the sums are transformed into the tile's outputs. Results depend on the plan, never on threads or addresses.

Compared with float64, results in float32 of normally distributed values err by up to 4e-6 of the largest result; with
column matrices by 5e-7.
"""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np

from ....arrays import HostArray
from ...geometry import Ints
from ...winograd_plan import WinogradPlan
from .blas import spread


def forward(plan: WinogradPlan, x: HostArray, w: HostArray, y: HostArray, work: HostArray) -> None:
    """Compute y = w * x, of x (N, C, in_size), w (group, O / group, C / group, taps), y (N, O, out_size)."""
    g = plan.geometry
    sides = (x, g.group_channels, g.in_spatial), (y, g.group_outputs, g.out_spatial)
    _convolve(plan, *sides, "weights", w, g.pad, work)


def backward_data(plan: WinogradPlan, dy: HostArray, w: HostArray, dx: HostArray, work: HostArray) -> None:
    """Compute dx: the convolution of dy with the kernels rotated by 180 degrees."""
    g = plan.geometry
    pad = tuple(g.kernel[0] - 1 - p for p in g.pad)
    sides = (dy, g.group_outputs, g.out_spatial), (dx, g.group_channels, g.in_spatial)
    _convolve(plan, *sides, "weights_turned", w, pad, work)


def _convolve(
    plan: WinogradPlan,
    source: tuple[HostArray, int, Ints],
    target: tuple[HostArray, int, Ints],
    way: str,
    weights: HostArray,
    pad: Ints,
    work: HostArray,
) -> None:
    """Convolve chunk by chunk; source, target: (array, channels of a group, spatial size)."""
    from .winograd_tiles import restore, transform  # imports Numba, which only calls need

    (x, a, x_spatial), (y, b, y_spatial) = source, target
    g, form, tiles = plan.geometry, (plan.outputs, plan.geometry.kernel[0]), plan.tiles(y_spatial)
    for group in range(g.group):
        u = _weights(plan, 0, work, y.dtype)
        transform(way, *form, weights[group], g.kernel, (0, 0), (1, 1), u)
        for n0, n1 in plan.chunks():
            v, m = _values(plan, (n1 - n0) * prod(tiles), a, b, work, y.dtype)
            transform("inputs", *form, x[n0:n1, _part(group, a)], x_spatial, pad, tiles, v)
            _multiply(v, u.swapaxes(1, 2) if way == "weights" else u, m)
            restore("outputs", *form, m, y[n0:n1, _part(group, b)], y_spatial, tiles, False)


def backward_filter(
    plan: WinogradPlan, x: HostArray, dy: HostArray, dw: HostArray, work: HostArray, accumulate: bool
) -> None:
    """Write to dw, or add if `accumulate`, the gradient of the weights."""
    from .winograd_tiles import restore, transform  # imports Numba, which only calls need

    g, form, tiles = plan.geometry, (plan.outputs, plan.geometry.kernel[0]), plan.tiles(plan.geometry.out_spatial)
    a, b = g.group_channels, g.group_outputs
    for group in range(g.group):
        total, part = (_weights(plan, i, work, dw.dtype) for i in range(2))
        for n0, n1 in plan.chunks():
            v, m = _values(plan, (n1 - n0) * prod(tiles), a, b, work, dw.dtype)
            transform("inputs", *form, x[n0:n1, _part(group, a)], g.in_spatial, g.pad, tiles, v)
            transform("outputs_back", *form, dy[n0:n1, _part(group, b)], g.out_spatial, (0, 0), tiles, m)
            if n0 == 0:
                _multiply(m.swapaxes(1, 2), v, total)
            else:
                _multiply(m.swapaxes(1, 2), v, part, total)
        restore("weights_back", *form, total, dw[group], g.kernel, (1, 1), accumulate)


def _part(group: int, channels: int) -> slice:
    return slice(group * channels, (group + 1) * channels)


def _weights(plan: WinogradPlan, place: int, work: HostArray, dtype: np.dtype[Any]) -> HostArray:
    """Return array `place` (0 or 1) of transformed weights (points, outputs, channels), at the front of `work`."""
    a, b = plan.geometry.group_outputs, plan.geometry.group_channels
    return _room(plan, work, place * plan.plane(a * b), a, b, dtype)


def _values(
    plan: WinogradPlan, tiles: int, a: int, b: int, work: HostArray, dtype: np.dtype[Any]
) -> tuple[HostArray, HostArray]:
    """Return arrays for transformed inputs and outputs (points, tiles, channels), behind the weights in `work`."""
    at = 2 * plan.plane(a * b)
    return _room(plan, work, at, tiles, a, dtype), _room(plan, work, at + plan.plane(tiles * a), tiles, b, dtype)


def _room(plan: WinogradPlan, work: HostArray, at: int, rows: int, columns: int, dtype: np.dtype[Any]) -> HostArray:
    """Return (points, rows, columns) numbers of `work`, from number `at * points` on."""
    size, area = np.dtype(dtype).itemsize, plan.points**2
    whole = work[at * area * size : (at + plan.plane(rows * columns)) * area * size].view(dtype).reshape(area, -1)
    return whole[:, : rows * columns].reshape(area, rows, columns)


def _multiply(a: HostArray, b: HostArray, out: HostArray, total: HostArray | None = None) -> None:
    """Compute out = a b for every point; add it to `total` where that is given."""
    spread(_products, len(a), a, b, out, total)


def _products(first: int, last: int, a: HostArray, b: HostArray, out: HostArray, total: HostArray | None) -> None:
    np.matmul(a[first:last], b[first:last], out=out[first:last])
    if total is not None:
        total[first:last] += out[first:last]
