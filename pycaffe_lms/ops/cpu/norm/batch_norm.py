"""Normalise batches of arrays seen as (n, c, s): statistics per channel over n and s, a channel at a time.

Blocks of values are summed in the array's own type, their sums in float64.
"""

from __future__ import annotations

import numpy as np

from ....arrays import HostArray
from ...records import Affine, AffineGradients, BatchNorm, Grid, Moments, RunningSums
from ..channels import over_channels
from ..compiled import BLOCK, kernel, sums
from .scale import scale_forward

__all__ = [
    "batch_norm_apply",
    "batch_norm_train_forward",
    "batch_norm_global_forward",
    "batch_norm_backward",
    "batch_norm_global_backward",
    "batch_norm_scaled_apply",
    "batch_norm_scaled_backward",
    "batch_norm_scaled_global_forward",
    "batch_norm_scaled_train_forward",
    "sync_norm_gradient",
    "sync_norm_moments",
    "sync_norm_statistics",
    "sync_norm_sums",
]

PART = 64  # rows that are added up in the array's own type
_BLOCK = 4096  # values of a scaled gradient that are added up in the array's own type


def batch_norm_train_forward(
    x: HostArray,
    y: HostArray,
    moments: Moments,
    running: RunningSums,
    work: HostArray,
    norm: BatchNorm,
) -> None:
    """Compute y = (x - mean) / sqrt(var + eps) with the batch's own statistics; y may be x.

    Writes mean and inv_std = 1 / sqrt(var + eps), and updates the running sums: factor = momentum * factor + 1,
    running_mean = momentum * running_mean + mean, running_var likewise with the unbiased variance, var * m / (m - 1), m
    = outer * inner. An empty batch changes none of them. `work` holds the GPU's partial sums: 2 * channels *
    (parts + 1) elements.
    """
    (mean, inv_std), (running_mean, running_var, factor) = moments, running
    (n, c, s), momentum = norm.grid, norm.momentum
    m = n * s
    if m == 0:
        inv_std.fill(0)
        mean.fill(0)
        return
    var = np.empty(c, np.float64)
    over_channels(_normalise, norm.grid, x.reshape(n, c, s), y.reshape(n, c, s), mean, var, inv_std, norm.eps)
    factor *= momentum
    factor += 1
    running_mean *= momentum
    running_mean += mean
    running_var *= momentum
    running_var += (var * (m / (m - 1) if m > 1 else 1)).astype(running_var.dtype)


def batch_norm_apply(x: HostArray, y: HostArray, moments: Moments, grid: Grid) -> None:
    """Compute y = (x - mean) * inv_std, with the bits of `batch_norm_train_forward`."""
    if grid.outer * grid.inner:
        over_channels(_shift_scale, grid, x.reshape(grid), y.reshape(grid), *moments)


def batch_norm_global_forward(
    x: HostArray, y: HostArray, moments: Moments, running: RunningSums, norm: BatchNorm
) -> None:
    """Compute y = (x - mean) / sqrt(var + eps) with the running sums divided by their factor (both 0 if that is 0).

    Writes mean and inv_std; y may be x.
    """
    batch_norm_running(moments, running, norm)
    over_channels(_shift_scale, norm.grid, x.reshape(norm.grid), y.reshape(norm.grid), *moments)


def batch_norm_running(moments: Moments, running: RunningSums, norm: BatchNorm) -> None:
    """Write mean and inv_std = 1 / sqrt(var + eps) of the running sums over their factor (both 0 if that is 0).

    norm.outside: inv_std = 1 / (sqrt(var) + eps).
    """
    (mean, inv_std), (running_mean, running_var, factor) = moments, running
    weight = 0.0 if factor.reshape(-1)[0] == 0 else 1.0 / float(factor.reshape(-1)[0])
    np.multiply(running_mean, weight, out=mean)
    with np.errstate(divide="ignore", invalid="ignore"):
        var = running_var.astype(np.float64) * weight
        inv_std[...] = 1 / (np.sqrt(var) + norm.eps if norm.outside else np.sqrt(var + norm.eps))


def batch_norm_backward(
    y: HostArray, dy: HostArray, dx: HostArray, inv_std: HostArray, work: HostArray, grid: Grid
) -> None:
    """Compute dx = (dy - mean(dy) - mean(dy * y) * y) * inv_std; y is the normalised top, dx may be dy.

    `work` holds the GPU's partial sums: 2 * channels * (parts + 1) elements.
    """
    if grid.outer * grid.inner:
        over_channels(_backward, grid, y.reshape(grid), dy.reshape(grid), dx.reshape(grid), inv_std)


def batch_norm_global_backward(dy: HostArray, dx: HostArray, inv_std: HostArray, grid: Grid) -> None:
    """Compute dx = dy * inv_std; dx may be dy."""
    zeros = np.zeros(grid.channels, inv_std.dtype)
    over_channels(_shift_scale, grid, dy.reshape(grid), dx.reshape(grid), zeros, inv_std)


@sums
def _sum(x: HostArray) -> float:
    total = x.dtype.type(0)
    for i in range(x.size):
        total += x[i]
    return total


@sums
def _squares(x: HostArray, mean: float) -> float:
    total = x.dtype.type(0)
    for i in range(x.size):
        total += (x[i] - mean) * (x[i] - mean)
    return total


@sums
def _sum_and_dot(x: HostArray, y: HostArray) -> tuple[float, float]:
    total, dot = x.dtype.type(0), x.dtype.type(0)
    for i in range(x.size):
        total += x[i]
        dot += x[i] * y[i]
    return total, dot


@kernel
def _shift_scale(first: int, last: int, x: HostArray, y: HostArray, shift: HostArray, scale: HostArray) -> None:
    items, _, size = x.shape
    result = np.empty(BLOCK, x.dtype)
    for c in range(first, last):
        minus, factor = shift[c], scale[c]
        for i in range(items):
            for start in range(0, size, BLOCK):
                values = x[i, c, start : min(start + BLOCK, size)]
                for j in range(values.size):
                    result[j] = (values[j] - minus) * factor
                y[i, c, start : start + values.size] = result[: values.size]


@kernel
def moments(first: int, last: int, x: HostArray, mean: HostArray, var: HostArray) -> None:
    """Write mean and variance of the channels [first, last) of x (items, channels, size)."""
    items, _, size = x.shape
    for c in range(first, last):
        total, squares = 0.0, 0.0
        for i in range(items):
            for start in range(0, size, BLOCK):
                total += np.float64(_sum(x[i, c, start : min(start + BLOCK, size)]))
        mean[c] = total / (items * size)
        near = x.dtype.type(mean[c])
        for i in range(items):
            for start in range(0, size, BLOCK):
                squares += np.float64(_squares(x[i, c, start : min(start + BLOCK, size)], near))
        var[c] = squares / (items * size)


@kernel
def part_moments(first: int, last: int, x: HostArray, means: HostArray, squares: HostArray) -> None:
    """Write for each part of PART rows of x (rows, size) the mean, and the sum of squared distances from it.

    The second pass over a part finds it in the cache.
    """
    rows, size = x.shape
    for part in range(first, last):
        mean, square = means[part], squares[part]
        start, end = part * PART, min(part * PART + PART, rows)
        mean[:] = 0
        square[:] = 0
        for i in range(start, end):
            row = x[i]
            for j in range(size):
                mean[j] += row[j]
        for j in range(size):
            mean[j] /= end - start
        for i in range(start, end):
            row = x[i]
            for j in range(size):
                square[j] += (row[j] - mean[j]) * (row[j] - mean[j])


@kernel
def _normalise(
    first: int, last: int, x: HostArray, y: HostArray, mean: HostArray, var: HostArray, inv_std: HostArray, eps: float
) -> None:
    for c in range(first, last):
        moments(c, c + 1, x, mean, var)
        inv_std[c] = 1 / np.sqrt(var[c] + eps)
        _shift_scale(c, c + 1, x, y, mean, inv_std)


@kernel
def _backward(first: int, last: int, y: HostArray, dy: HostArray, dx: HostArray, inv_std: HostArray) -> None:
    items, _, size = y.shape
    result = np.empty(BLOCK, y.dtype)
    for c in range(first, last):
        total, dot, factor = 0.0, 0.0, inv_std[c]
        for i in range(items):
            for start in range(0, size, BLOCK):
                end = min(start + BLOCK, size)
                parts = _sum_and_dot(dy[i, c, start:end], y[i, c, start:end])
                total += np.float64(parts[0])
                dot += np.float64(parts[1])
        mean, slope = inv_std.dtype.type(total / (items * size)), inv_std.dtype.type(dot / (items * size))
        for i in range(items):
            for start in range(0, size, BLOCK):
                end = min(start + BLOCK, size)
                values, gradient = y[i, c, start:end], dy[i, c, start:end]
                for j in range(values.size):
                    result[j] = (gradient[j] - (mean + slope * values[j])) * factor
                dx[i, c, start:end] = result[: end - start]


def batch_norm_scaled_train_forward(
    x: HostArray,
    y: HostArray,
    moments: Moments,
    running: RunningSums,
    affine: Affine,
    work: HostArray,
    norm: BatchNorm,
) -> None:
    """Compute y = (x - mean) * inv_std * scale + bias; the rest as in `batch_norm_train_forward`."""
    batch_norm_train_forward(x, y, moments, running, work, norm)
    scale_forward(y, affine, y, norm.grid)


def batch_norm_scaled_apply(x: HostArray, y: HostArray, moments: Moments, affine: Affine, grid: Grid) -> None:
    """Compute y = (x - mean) * inv_std * scale + bias, with the bits of `batch_norm_scaled_train_forward`."""
    batch_norm_apply(x, y, moments, grid)
    scale_forward(y, affine, y, grid)


def batch_norm_scaled_global_forward(
    x: HostArray, y: HostArray, moments: Moments, running: RunningSums, affine: Affine, norm: BatchNorm
) -> None:
    """Compute y = (x - mean) * inv_std * scale + bias; the rest as in `batch_norm_global_forward`."""
    batch_norm_global_forward(x, y, moments, running, norm)
    scale_forward(y, affine, y, norm.grid)


def batch_norm_scaled_backward(
    x: HostArray | None,
    dy: HostArray,
    dx: HostArray | None,
    moments: Moments,
    scale: HostArray | None,
    gradients: AffineGradients,
    work: HostArray,
    norm: BatchNorm,
) -> None:
    """Compute dbias = sum(dy), dscale = sum(dy * v) and dx, where v = (x - mean) * inv_std.

    dx = dy * scale * inv_std with `use_global`, else (dy - mean(dy) - mean(dy * v) * v) * scale * inv_std. Each of dx
    (which may be dy), dscale and dbias may be None. x is read for dscale, and for dx without `use_global`. `work` holds
    the GPU's partial sums: 2 * channels * (parts + 1) elements.
    """
    (mean, inv_std), (dscale, dbias, add_scale, add_bias) = moments, gradients
    grid, batch = norm.grid, not norm.use_global
    n, c, s = grid
    reads = dscale is not None or (batch and dx is not None)
    sums_of = np.zeros((2, c), np.float64)
    parts = [a.reshape(grid) for a in (x if reads else dy, dy)]
    if n * s and (reads or dbias is not None):
        over_channels(_add_up, grid, *parts, mean, inv_std, sums_of)
    for gradient, total, add in ((dbias, sums_of[0], add_bias), (dscale, sums_of[1], add_scale)):
        if gradient is not None:
            gradient[...] = gradient + total if add else total
    if dx is None or n * s == 0:
        return
    if batch:
        means = (sums_of / (n * s)).astype(dy.dtype)
        over_channels(_data, grid, *parts, dx.reshape(grid), mean, inv_std, scale, means)
    else:
        scale_forward(dy, Affine(scale * inv_std, None), dx, grid)


@sums
def _scaled_sum_and_dot(x: HostArray, dy: HostArray, mean: float) -> tuple[float, float]:
    total, dot = x.dtype.type(0), x.dtype.type(0)
    for i in range(x.size):
        total += dy[i]
        dot += dy[i] * (x[i] - mean)
    return total, dot


@kernel
def _add_up(
    first: int, last: int, x: HostArray, dy: HostArray, mean: HostArray, inv_std: HostArray, sums_of: HostArray
) -> None:
    items, _, size = x.shape
    for c in range(first, last):
        total, dot = 0.0, 0.0
        for i in range(items):
            for start in range(0, size, _BLOCK):
                end = min(start + _BLOCK, size)
                part = _scaled_sum_and_dot(x[i, c, start:end], dy[i, c, start:end], mean[c])
                total += np.float64(part[0])
                dot += np.float64(part[1])
        sums_of[0, c] = total
        sums_of[1, c] = dot * inv_std[c]


@kernel
def _data(
    first: int,
    last: int,
    x: HostArray,
    dy: HostArray,
    dx: HostArray,
    mean: HostArray,
    inv_std: HostArray,
    scale: HostArray,
    means: HostArray,
) -> None:
    items, _, size = x.shape
    for c in range(first, last):
        slope, factor = means[1, c] * inv_std[c], scale[c] * inv_std[c]
        for i in range(items):
            values, gradient, result = x[i, c], dy[i, c], dx[i, c]
            for j in range(size):
                result[j] = (gradient[j] - means[0, c] - slope * (values[j] - mean[c])) * factor


def sync_norm_moments(x: HostArray, own: HostArray, work: HostArray, grid: Grid) -> None:
    """Write what `sync_norm_statistics` needs of this rank's batch to `own`: the mean of each channel, the variance of
    each, and the number of values in each, 2 * channels + 1 elements.

    `work` holds the GPU's partial sums: 2 * channels * (parts + 1) elements.
    """
    n, c, s = grid
    own.fill(0)
    if n * s:
        found = np.empty((2, c), np.float64)
        over_channels(moments, grid, x.reshape(grid), found[0], found[1])
        own[:-1] = found.reshape(-1)
        own[-1] = n * s


def sync_norm_statistics(
    gathered: HostArray, moments: Moments, items: HostArray, running: RunningSums, norm: BatchNorm
) -> None:
    """Write mean and inv_std = 1 / sqrt(var + eps) of the batches of all ranks together, and to `items` (1) the number
    of values per channel in them; update the running sums as `batch_norm_train_forward` does.

    gathered: what `sync_norm_moments` wrote, one rank after the other. If all batches are empty, all results are 0 and
    the running sums stay.
    """
    c = norm.grid.channels
    ranks = gathered.reshape(-1, 2 * c + 1).astype(np.float64)
    means, variances, sizes = ranks[:, :c], ranks[:, c:-1], ranks[:, -1:]
    m = sizes.sum()
    items[0] = m
    if m == 0:
        moments.mean.fill(0)
        moments.inv_std.fill(0)
        return
    with np.errstate(all="ignore"):  # no warnings of NaN and infinity, as on a GPU
        average = (sizes * means).sum(axis=0) / m
        variance = (sizes * (variances + (means - average) ** 2)).sum(axis=0) / m
        write_statistics(average, variance, m, moments, running, norm)


def write_statistics(
    average: HostArray, variance: HostArray, items: float, moments: Moments, running: RunningSums, norm: BatchNorm
) -> None:
    """Write mean and inv_std from the moments (channels) of a batch of `items` values per channel, and update the
    running sums."""
    (mean, inv_std), (running_mean, running_var, factor) = moments, running
    mean[...] = average
    inv_std[...] = 1 / np.sqrt(variance + norm.eps)
    factor *= norm.momentum
    factor += 1
    running_mean[...] = norm.momentum * running_mean + average
    running_var[...] = norm.momentum * running_var + variance * (items / (items - 1) if items > 1 else 1)


def sync_norm_sums(
    x: HostArray, dy: HostArray, moments: Moments, sums_of: HostArray, work: HostArray, grid: Grid
) -> None:
    """Write to `sums_of`, (2 * channels), the sums of dy and of dy * v for each channel of this rank's batch, where
    v = (x - mean) * inv_std.

    `work` holds the GPU's partial sums: 2 * channels * (parts + 1) elements.
    """
    found = np.zeros((2, grid.channels), np.float64)
    if grid.outer * grid.inner:
        over_channels(_add_up, grid, x.reshape(grid), dy.reshape(grid), *moments, found)
    sums_of[...] = found.reshape(-1)


def sync_norm_gradient(
    x: HostArray,
    dy: HostArray,
    dx: HostArray,
    moments: Moments,
    scale: HostArray | None,
    sums_of: HostArray,
    items: HostArray,
    grid: Grid,
) -> None:
    """Compute dx = (dy - a - b * v) * scale * inv_std, where v = (x - mean) * inv_std; a and b are the sums of dy and
    of dy * v over all ranks, in `sums_of`, divided by `items` (1). scale None: 1. dx may be dy; `sums_of` is changed.
    """
    if grid.outer * grid.inner == 0:
        return
    sums_of /= items
    factors = np.ones(grid.channels, sums_of.dtype) if scale is None else scale
    arrays = (a.reshape(grid) for a in (x, dy, dx))
    over_channels(_data, grid, *arrays, *moments, factors, sums_of.reshape(2, grid.channels))
