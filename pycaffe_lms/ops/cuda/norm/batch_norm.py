"""Normalise batches of arrays seen as (n, c, s): statistics per channel over n and s."""

from __future__ import annotations

import functools

from ....arrays import AnyArray
from ...records import Affine, AffineGradients, BatchNorm, Grid, Moments, RunningSums
from ..basic import fill
from ..channel_walk import add_up, run_walk, walking
from ..per_channel import per_channel, run_per_channel
from .norm_statistics import (
    batch_norm_running,
    batch_norm_statistics,
    divide_by,
    rank_moments,
    sync_norm_statistics,
)

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

_VALUE = "y = (x - mean) * inv_std;"
# backwards: after the statistics the end of x is still in the cache
NORMALISE = walking("normalise", _VALUE, reads="x", writes="y", channel="mean, inv_std", back=True)
_GLOBAL = per_channel("normalise", _VALUE, reads="x", writes="y", channel="mean, inv_std")
SUMS = walking("sums", "sum0 += dy; sum1 += dy * y;", reads="y, dy", sums=2)
BACKWARD = walking(
    "backward",
    "dx = (dy - mean - slope * y) * inv_std;",
    reads="y, dy",
    writes="dx",
    channel="inv_std, mean, slope",
    back=True,
)
_GLOBAL_BACKWARD = per_channel("backward", "dx = dy * inv_std;", reads="dy", writes="dx", channel="inv_std")


def batch_norm_train_forward(
    x: AnyArray,
    y: AnyArray,
    moments: Moments,
    running: RunningSums,
    work: AnyArray,
    norm: BatchNorm,
) -> None:
    """Compute y = (x - mean) / sqrt(var + eps) with the batch's own statistics; y may be x."""
    batch_norm_statistics(x, moments, running, work, norm)
    batch_norm_apply(x, y, moments, norm.grid)


def batch_norm_apply(x: AnyArray, y: AnyArray, moments: Moments, grid: Grid) -> None:
    """Compute y = (x - mean) * inv_std, with the bits of `batch_norm_train_forward`."""
    run_walk(NORMALISE, "normalise", (x, y), moments, grid)


def batch_norm_global_forward(
    x: AnyArray, y: AnyArray, moments: Moments, running: RunningSums, norm: BatchNorm
) -> None:
    """Compute y = (x - mean) / sqrt(var + eps) with the running sums divided by their factor (both 0 if that is 0)."""
    batch_norm_running(moments, running, norm)
    run_per_channel(_GLOBAL, "normalise", (x, y), moments, norm.grid)


def batch_norm_backward(y: AnyArray, dy: AnyArray, dx: AnyArray, inv_std: AnyArray, work: AnyArray, grid: Grid) -> None:
    """Compute dx = (dy - mean(dy) - mean(dy * y) * y) * inv_std; y is the normalised top, dx may be dy."""
    if y.size == 0:
        return
    parts = run_walk(SUMS, "sums", (y, dy), (), grid, work)
    mean, slope = means_of(work, grid, parts)
    run_walk(BACKWARD, "backward", (y, dy, dx), (inv_std, mean, slope), grid)


def batch_norm_global_backward(dy: AnyArray, dx: AnyArray, inv_std: AnyArray, grid: Grid) -> None:
    """Compute dx = dy * inv_std; dx may be dy."""
    run_per_channel(_GLOBAL_BACKWARD, "backward", (dy, dx), (inv_std,), grid)


def means_of(work: AnyArray, grid: Grid, parts: int) -> tuple[AnyArray, AnyArray]:
    """Write the means of both sums of `run_walk` behind the parts in `work`; return views of them."""
    n, c, s = grid
    means = work[2 * c * parts :]
    for which in (0, 1):
        add_up(work, which, means, False, c, parts, 1 / (n * s), which * c)
    return means, means[c:]


_FORWARD = {
    "body": "y = (x - mean) * inv_std * scale + bias;",
    "reads": "x",
    "writes": "y",
    "channel": "mean, inv_std, scale, bias",
}
# backwards: after the statistics the end of x is still in the cache
_TRAIN_FORWARD = walking("forward", **_FORWARD, back=True)
_GLOBAL_FORWARD = per_channel("forward", **_FORWARD)
_BACKWARD = walking(
    "backward",
    "dx = (dy - average - slope * ((x - mean) * inv_std)) * (scale * inv_std);",
    reads="x, dy",
    writes="dx",
    channel="mean, inv_std, scale, average, slope",
    back=True,
)
_DATA = "dx = dy * (scale * inv_std);"
_SCALED_GLOBAL_BACKWARD = per_channel("backward", _DATA, reads="dy", writes="dx", channel="inv_std, scale")


@functools.cache
def _sums(reads_x: bool, data: bool) -> str:
    """Return the kernel for sums of dy and, with `reads_x`, of dy * (x - mean) * inv_std.

    With `data` it writes dx for fixed statistics too.
    """
    return walking(
        "sums",
        "sum0 += dy;" + " sum1 += dy * ((x - mean) * inv_std);" * reads_x + _DATA * data,
        reads="x, dy" if reads_x else "dy",
        writes="dx" * data,
        channel=", ".join(["mean"] * reads_x + ["inv_std"] * (reads_x or data) + ["scale"] * data),
        sums=1 + reads_x,
    )


def batch_norm_scaled_train_forward(
    x: AnyArray,
    y: AnyArray,
    moments: Moments,
    running: RunningSums,
    affine: Affine,
    work: AnyArray,
    norm: BatchNorm,
) -> None:
    """Compute y = (x - mean) * inv_std * scale + bias; the rest as in `batch_norm_train_forward`."""
    batch_norm_statistics(x, moments, running, work, norm)
    batch_norm_scaled_apply(x, y, moments, affine, norm.grid)


def batch_norm_scaled_apply(x: AnyArray, y: AnyArray, moments: Moments, affine: Affine, grid: Grid) -> None:
    """Compute y = (x - mean) * inv_std * scale + bias, with the bits of `batch_norm_scaled_train_forward`."""
    run_walk(_TRAIN_FORWARD, "forward", (x, y), (*moments, *affine), grid)


def batch_norm_scaled_global_forward(
    x: AnyArray, y: AnyArray, moments: Moments, running: RunningSums, affine: Affine, norm: BatchNorm
) -> None:
    """Compute y = (x - mean) * inv_std * scale + bias; the rest as in `batch_norm_global_forward`."""
    batch_norm_running(moments, running, norm)
    run_per_channel(_GLOBAL_FORWARD, "forward", (x, y), (*moments, *affine), norm.grid)


def batch_norm_scaled_backward(
    x: AnyArray | None,
    dy: AnyArray,
    dx: AnyArray | None,
    moments: Moments,
    scale: AnyArray | None,
    gradients: AffineGradients,
    work: AnyArray,
    norm: BatchNorm,
) -> None:
    """Compute dbias = sum(dy), dscale = sum(dy * v) and dx, where v = (x - mean) * inv_std."""
    (mean, inv_std), (dscale, dbias, add_scale, add_bias) = moments, gradients
    grid, batch = norm.grid, not norm.use_global
    n, c, s = grid
    if n * s == 0:  # sums of no elements are 0
        for gradient, add in ((dscale, add_scale), (dbias, add_bias)):
            if gradient is not None and not add:
                fill(gradient, 0)
        return
    reads_x = dscale is not None or (batch and dx is not None)
    data = dx is not None and not batch
    if reads_x or dbias is not None:
        arrays = ([x] if reads_x else []) + [dy] + ([dx] if data else [])
        channel = [mean] * reads_x + [inv_std] * (reads_x or data) + [scale] * data
        parts = run_walk(_sums(reads_x, data), "sums", arrays, channel, grid, work)
        for which, gradient, add in ((0, dbias, add_bias), (1, dscale, add_scale)):
            if gradient is not None:
                add_up(work, which, gradient, add, c, parts)
        if dx is not None and batch:
            channel = (mean, inv_std, scale, *means_of(work, grid, parts))
            run_walk(_BACKWARD, "backward", (x, dy, dx), channel, grid)
    elif data:
        run_per_channel(_SCALED_GLOBAL_BACKWARD, "backward", (dy, dx), (inv_std, scale), grid)


_SYNC_BACKWARD = walking(
    "backward",
    "dx = (dy - average - slope * ((x - mean) * inv_std)) * inv_std;",
    reads="x, dy",
    writes="dx",
    channel="mean, inv_std, average, slope",
    back=True,
)


def sync_norm_moments(x: AnyArray, own: AnyArray, work: AnyArray, grid: Grid) -> None:
    """Write what `sync_norm_statistics` needs of this rank's batch to `own`: the mean of each channel, the variance of
    each, and the number of values in each, 2 * channels + 1 elements."""
    if x.size == 0:
        fill(own, 0)
    else:
        rank_moments(x, own, work, grid)


def sync_norm_sums(x: AnyArray, dy: AnyArray, moments: Moments, sums_of: AnyArray, work: AnyArray, grid: Grid) -> None:
    """Write to `sums_of`, (2 * channels), the sums of dy and of dy * v for each channel of this rank's batch, where
    v = (x - mean) * inv_std."""
    if x.size == 0:
        fill(sums_of, 0)
        return
    parts = run_walk(_sums(True, False), "sums", (x, dy), moments, grid, work)
    for which in (0, 1):
        add_up(work, which, sums_of, False, grid.channels, parts, 1.0, which * grid.channels)


def sync_norm_gradient(
    x: AnyArray,
    dy: AnyArray,
    dx: AnyArray,
    moments: Moments,
    scale: AnyArray | None,
    sums_of: AnyArray,
    items: AnyArray,
    grid: Grid,
) -> None:
    """Compute dx = (dy - a - b * v) * scale * inv_std, where v = (x - mean) * inv_std; a and b are the sums of dy and
    of dy * v over all ranks, in `sums_of`, divided by `items` (1). scale None: 1. dx may be dy; `sums_of` is changed.
    """
    if x.size == 0:
        return
    divide_by(sums_of, items)
    means = sums_of[: grid.channels], sums_of[grid.channels :]
    if scale is None:
        run_walk(_SYNC_BACKWARD, "backward", (x, dy, dx), (*moments, *means), grid)
    else:
        run_walk(_BACKWARD, "backward", (x, dy, dx), (*moments, scale, *means), grid)
