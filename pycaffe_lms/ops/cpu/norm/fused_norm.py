"""Normalise, scale, shift, add and rectify batches in single passes, of arrays seen as (n, c, s).

NCHW arrays have s = H * W, channels-last ones n = N * H * W and s = 1. With s > 1 a thread takes a channel and its n
rows of s values, all with the same constants. With s = 1 it takes several of the n rows at a time, each of c values
with constants of their own, which are repeated for every row. Values are summed in the array's own type over a block or
a part, which sizes alone decide, these sums in float64.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ....arrays import HostArray
from ...records import Affine, BatchNorm, FusedNormGradients, Grid, Moments, Rectified, RunningSums
from ..activation.bits import positive_bits, values_of
from ..channels import over_channels
from ..compiled import BLOCK, kernel, sums
from ..threads import parallel
from .batch_norm import PART, batch_norm_running, moments, part_moments, write_statistics

__all__ = ["batch_norm_statistics", "batch_norm_running", "fused_norm_forward", "fused_norm_backward"]

_BLOCKS = 32  # blocks of rows whose values are added up in the array's own type


def batch_norm_statistics(
    x: HostArray, moments: Moments, running: RunningSums, work: HostArray, norm: BatchNorm
) -> None:
    """Write mean and inv_std = 1 / sqrt(var + eps) of a batch, and update the running sums.

    The running sums are updated as in `batch_norm_train_forward`. For an empty batch mean and inv_std become 0, and the
    sums stay. `work`: fused_norm_work(n, c, s) elements.
    """
    n, c, s = norm.grid
    if n * s == 0:
        moments.inv_std.fill(0)
        moments.mean.fill(0)
        return
    with np.errstate(all="ignore"):  # no warnings of NaN and infinity, as on a GPU
        average, var = _row_moments(x, n, c) if s == 1 else _plane_moments(x, norm.grid)
        write_statistics(average, var, n * s, moments, running, norm)


def fused_norm_forward(
    x: HostArray,
    r: HostArray | None,
    y: HostArray,
    moments: Moments,
    affine: Affine,
    relu: bool,
    grid: Grid,
    bits: HostArray | None = None,
) -> None:
    """Compute y = (x - mean) * inv_std * gamma + beta + r, then max(y, 0) if `relu`.

    `bits`, where given, receives where y > 0 (see `activation/bits.py`). r, gamma and beta may be None; y may be x
    or r.
    """
    constants = _affine(moments, affine, grid)
    arrays = _view(grid, x, x if r is None else r, y)
    _over(grid, _forward_planes, _forward_rows, *arrays, constants, r is not None, bool(relu))
    if bits is not None:
        positive_bits(y, bits)


def fused_norm_backward(
    x: HostArray | None,
    dy: HostArray,
    gradients: FusedNormGradients,
    rectified: Rectified | None,
    moments: Moments,
    affine: Affine,
    work: HostArray,
    norm: BatchNorm,
) -> None:
    """Compute the gradients of `fused_norm_forward`.

    With g = dy where the ReLU was active (everywhere if `rectified` is None: no ReLU) and xhat = (x - mean) * inv_std:
    dr = g, dbeta = sum(g), dgamma = sum(g * xhat), dx = gamma * inv_std * (g - mean(g) - xhat * mean(g * xhat)), or
    gamma * inv_std * g with `use_global`. Each of the four may be None.

    Without y and bits (see `activation/bits.py`) the sign of the ReLU's input is computed again from x, which is
    right only if forward had no r. dx or dr (not both) may be dy. `work`: fused_norm_work(n, c, s) elements.
    """
    (dx, dr, (dgamma, dbeta, add_gamma, add_beta)), (n, c, s) = gradients, norm.grid
    y, bits = rectified or (None, None)
    if bits is not None:
        y = values_of(bits, dy)
    mask = 0 if rectified is None else 2 if y is None else 1
    batch = dx is not None and not norm.use_global
    constants = _affine(moments, affine, norm.grid)
    total, (shift, slope) = np.zeros((2, c)), np.zeros((2, c), dy.dtype)
    if batch or dgamma is not None or dbeta is not None:
        summed = _view(norm.grid, dy if x is None else x, y if mask == 1 else dy, dy)
        _add_up(*summed, constants, mask, x is not None, total, norm.grid)
    with np.errstate(all="ignore"):
        total[1] *= moments.inv_std
        for gradient, add, value in ((dgamma, add_gamma, total[1]), (dbeta, add_beta, total[0])):
            if gradient is not None:
                gradient[...] = gradient + value if add else value
        if batch and n * s:
            shift[...] = total[0] / (n * s)
            slope[...] = total[1] / (n * s) * moments.inv_std
    if dx is None and dr is None:
        return
    arrays = dy if x is None else x, y if mask == 1 else dy, dy, dy if dr is None else dr, dy if dx is None else dx
    wanted = dr is not None, dx is not None, batch
    arguments = *_view(norm.grid, *arrays), constants, mask, *_constants(norm.grid, shift, slope), wanted
    _over(norm.grid, _apply_planes, _apply_rows, *arguments)


def _plane_moments(x: HostArray, grid: Grid) -> tuple[HostArray, HostArray]:
    mean, var = np.empty(grid.channels), np.empty(grid.channels)
    over_channels(moments, grid, x.reshape(grid), mean, var)
    return mean, var


def _row_moments(x: HostArray, n: int, c: int) -> tuple[HostArray, HostArray]:
    parts = -(-n // PART)
    means, squares = np.empty((2, parts, c), x.dtype)
    parallel(part_moments, parts, x.reshape(n, c), means, squares)
    sizes = np.minimum(PART, n - PART * np.arange(parts)).astype(np.float64)[:, None]
    mean = (means * sizes).sum(0) / n
    return mean, (squares + sizes * (means - mean) ** 2).sum(0) / n


def _view(grid: Grid, *arrays: HostArray) -> list[HostArray]:
    return [a.reshape(-1 if grid.inner == 1 else grid) for a in arrays]


def _at_once(c: int) -> int:
    """Return how many rows of c values are worked on as one."""
    return max(1, BLOCK // max(1, c))


def _constants(grid: Grid, *arrays: HostArray) -> tuple[HostArray, ...]:
    _, c, s = grid
    return tuple(np.tile(a.reshape(-1), _at_once(c)) if s == 1 else a.reshape(-1) for a in arrays)


def _affine(moments: Moments, affine: Affine, grid: Grid) -> tuple[HostArray, ...]:
    (mean, inv_std), (gamma, beta) = moments, affine
    gamma = np.ones_like(mean) if gamma is None else gamma
    return _constants(grid, mean, inv_std, gamma, np.zeros_like(mean) if beta is None else beta)


def _over(grid: Grid, planes: Callable[..., None], rows: Callable[..., None], *args: Any) -> None:
    n, c, s = grid
    if s == 1:
        parallel(rows, -(-n // _at_once(c)), *args, grain=4)
    else:
        over_channels(planes, grid, *args)


def _add_up(
    x: HostArray,
    y: HostArray,
    dy: HostArray,
    affine: tuple[HostArray, ...],
    mask: int,
    dot: bool,
    total: HostArray,
    grid: Grid,
) -> None:
    n, c, s = grid
    if s != 1:
        over_channels(_sums_planes, grid, x, y, dy, affine, mask, dot, total)
    elif n:
        found = np.zeros((2, -(-n // (_at_once(c) * _BLOCKS)), affine[0].size), dy.dtype)
        parallel(_sums_rows, found.shape[1], x, y, dy, affine, mask, dot, found[0], found[1])
        found.reshape(2, -1, c).sum(1, dtype=np.float64, out=total)


@kernel
def _value(x: float, mean: float, inv_std: float, gamma: float, beta: float) -> float:
    return (x - mean) * inv_std * gamma + beta


@kernel
def _same(affine: tuple[HostArray, ...], c: int, size: int) -> tuple[HostArray, HostArray, HostArray, HostArray]:
    """Return the constants of channel c, each repeated `size` times."""
    return (
        np.full(size, affine[0][c]),
        np.full(size, affine[1][c]),
        np.full(size, affine[2][c]),
        np.full(size, affine[3][c]),
    )


@kernel
def _forward(
    x: HostArray, r: HostArray, affine: tuple[HostArray, ...], add: bool, relu: bool, result: HostArray
) -> None:
    mean, inv_std, gamma, beta = affine
    zero = x.dtype.type(0)
    for i in range(x.size):
        result[i] = _value(x[i], mean[i], inv_std[i], gamma[i], beta[i])
    if add:
        for i in range(x.size):
            result[i] += r[i]
    if relu:
        for i in range(x.size):  # NaN stays NaN, -inf becomes NaN, as in the ReLU layer
            low = zero + zero * result[i]
            result[i] = result[i] if result[i] > zero else low


@kernel
def _forward_planes(
    first: int,
    last: int,
    x: HostArray,
    r: HostArray,
    y: HostArray,
    affine: tuple[HostArray, ...],
    add: bool,
    relu: bool,
) -> None:
    items, _, size = x.shape
    result = np.empty(BLOCK, x.dtype)
    for c in range(first, last):
        constants = _same(affine, c, min(size, BLOCK))
        for i in range(items):
            for start in range(0, size, BLOCK):
                end = min(start + BLOCK, size)
                _forward(x[i, c, start:end], r[i, c, start:end], constants, add, relu, result)
                y[i, c, start:end] = result[: end - start]


@kernel
def _forward_rows(
    first: int,
    last: int,
    x: HostArray,
    r: HostArray,
    y: HostArray,
    affine: tuple[HostArray, ...],
    add: bool,
    relu: bool,
) -> None:
    size = affine[0].size
    result = np.empty(size, x.dtype)
    for block in range(first, last):
        start, end = block * size, min(block * size + size, x.size)
        _forward(x[start:end], r[start:end], affine, add, relu, result)
        y[start:end] = result[: end - start]


@kernel
def _gradient(
    x: HostArray, y: HostArray, dy: HostArray, affine: tuple[HostArray, ...], mask: int, g: HostArray
) -> None:
    """Compute g = dy where the ReLU was active, else dy * 0."""
    zero, one = dy.dtype.type(0), dy.dtype.type(1)
    if mask == 0:
        g[: dy.size] = dy
    elif mask == 1:
        for i in range(dy.size):
            g[i] = dy[i] * (one if y[i] > zero else zero)
    else:
        mean, inv_std, gamma, beta = affine
        for i in range(dy.size):
            value = _value(x[i], mean[i], inv_std[i], gamma[i], beta[i])
            g[i] = dy[i] * (one if value > zero else zero)


@sums
def _sum_and_dot(g: HostArray, x: HostArray, mean: float) -> tuple[float, float]:
    total, dot = g.dtype.type(0), g.dtype.type(0)
    for i in range(x.size):
        total += g[i]
        dot += g[i] * (x[i] - mean)
    return total, dot


@kernel
def _sums_planes(
    first: int,
    last: int,
    x: HostArray,
    y: HostArray,
    dy: HostArray,
    affine: tuple[HostArray, ...],
    mask: int,
    dot: bool,
    total: HostArray,
) -> None:
    items, _, size = x.shape
    g = np.empty(BLOCK, dy.dtype)
    for c in range(first, last):
        constants = _same(affine, c, min(size, BLOCK))
        one, two = 0.0, 0.0
        for i in range(items):
            for start in range(0, size, BLOCK):
                end = min(start + BLOCK, size)
                xs = x[i, c, start:end]
                _gradient(xs, y[i, c, start:end], dy[i, c, start:end], constants, mask, g)
                parts = _sum_and_dot(g, xs, affine[0][c])
                one += np.float64(parts[0])
                two += np.float64(parts[1])
        total[0, c] = one
        total[1, c] = two if dot else 0.0


@kernel
def _sums_rows(
    first: int,
    last: int,
    x: HostArray,
    y: HostArray,
    dy: HostArray,
    affine: tuple[HostArray, ...],
    mask: int,
    dot: bool,
    ones: HostArray,
    twos: HostArray,
) -> None:
    mean = affine[0]
    size = mean.size
    g = np.empty(size, dy.dtype)
    for part in range(first, last):
        one, two = ones[part], twos[part]
        for start in range(part * _BLOCKS * size, min((part + 1) * _BLOCKS * size, x.size), size):
            end = min(start + size, x.size)
            xs = x[start:end]
            _gradient(xs, y[start:end], dy[start:end], affine, mask, g)
            for j in range(xs.size):
                one[j] += g[j]
            if dot:
                for j in range(xs.size):
                    two[j] += g[j] * (xs[j] - mean[j])


@kernel
def _apply(
    x: HostArray, affine: tuple[HostArray, ...], shift: HostArray, slope: HostArray, batch: bool, g: HostArray
) -> None:
    """Turn g into dx, in place."""
    mean, inv_std, gamma, _ = affine
    if batch:
        for i in range(x.size):
            g[i] -= shift[i] + (x[i] - mean[i]) * slope[i]
    for i in range(x.size):
        g[i] *= gamma[i] * inv_std[i]


@kernel
def _apply_planes(
    first: int,
    last: int,
    x: HostArray,
    y: HostArray,
    dy: HostArray,
    dr: HostArray,
    dx: HostArray,
    affine: tuple[HostArray, ...],
    mask: int,
    shift: HostArray,
    slope: HostArray,
    wanted: tuple[bool, bool, bool],
) -> None:
    items, _, size = x.shape
    g = np.empty(BLOCK, dy.dtype)
    for c in range(first, last):
        width = min(size, BLOCK)
        constants, shifts, slopes = _same(affine, c, width), np.full(width, shift[c]), np.full(width, slope[c])
        for i in range(items):
            for start in range(0, size, BLOCK):
                end = min(start + BLOCK, size)
                xs = x[i, c, start:end]
                _gradient(xs, y[i, c, start:end], dy[i, c, start:end], constants, mask, g)
                if wanted[0]:
                    dr[i, c, start:end] = g[: end - start]
                if wanted[1]:
                    _apply(xs, constants, shifts, slopes, wanted[2], g)
                    dx[i, c, start:end] = g[: end - start]


@kernel
def _apply_rows(
    first: int,
    last: int,
    x: HostArray,
    y: HostArray,
    dy: HostArray,
    dr: HostArray,
    dx: HostArray,
    affine: tuple[HostArray, ...],
    mask: int,
    shift: HostArray,
    slope: HostArray,
    wanted: tuple[bool, bool, bool],
) -> None:
    size = shift.size
    g = np.empty(size, dy.dtype)
    for block in range(first, last):
        start, end = block * size, min(block * size + size, x.size)
        xs = x[start:end]
        _gradient(xs, y[start:end], dy[start:end], affine, mask, g)
        if wanted[0]:
            dr[start:end] = g[: end - start]
        if wanted[1]:
            _apply(xs, affine, shift, slope, wanted[2], g)
            dx[start:end] = g[: end - start]
