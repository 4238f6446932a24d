"""Batch normalisation with a scale and a bias per channel, of arrays seen as (n, c, s)."""

from __future__ import annotations

import functools

from .basic import fill
from .batch_norm import means_of
from .channel_walk import add_up, run_walk, walking
from .norm_statistics import batch_statistics, running_statistics
from .per_channel import per_channel, run_per_channel

__all__ = [
    "batch_norm_scaled_apply",
    "batch_norm_scaled_backward",
    "batch_norm_scaled_global_forward",
    "batch_norm_scaled_train_forward",
]

_FORWARD = {
    "body": "y = (x - mean) * inv_std * scale + bias;",
    "reads": "x",
    "writes": "y",
    "channel": "mean, inv_std, scale, bias",
}
# after the statistics of x, whose end is still in the cache
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
_GLOBAL_BACKWARD = per_channel("backward", _DATA, reads="dy", writes="dx", channel="inv_std, scale")


@functools.cache
def _sums(reads_x: bool, data: bool) -> str:
    """Sums of dy and, reading x, of dy * (x - mean) * inv_std; with `data` the gradient for fixed statistics too."""
    return walking(
        "sums",
        "sum0 += dy;" + " sum1 += dy * ((x - mean) * inv_std);" * reads_x + _DATA * data,
        reads="x, dy" if reads_x else "dy",
        writes="dx" * data,
        channel=", ".join(["mean"] * reads_x + ["inv_std"] * (reads_x or data) + ["scale"] * data),
        sums=1 + reads_x,
    )


def batch_norm_scaled_train_forward(
    x, y, inv_std, mean, running_mean, running_var, factor, scale, bias, momentum, eps, work, n, c, s
):
    """y = (x - mean) * inv_std * scale + bias; the rest as in `batch_norm_train_forward`."""
    batch_statistics(x, inv_std, mean, running_mean, running_var, factor, momentum, eps, work, n, c, s)
    batch_norm_scaled_apply(x, y, inv_std, mean, scale, bias, n, c, s)


def batch_norm_scaled_apply(x, y, inv_std, mean, scale, bias, n, c, s):
    """y = (x - mean) * inv_std * scale + bias, with the bits of `batch_norm_scaled_train_forward`."""
    run_walk(_TRAIN_FORWARD, "forward", (x, y), (mean, inv_std, scale, bias), n, c, s)


def batch_norm_scaled_global_forward(x, y, inv_std, mean, running_mean, running_var, factor, scale, bias, eps, n, c, s):
    """y = (x - mean) * inv_std * scale + bias; the rest as in `batch_norm_global_forward`."""
    running_statistics(inv_std, mean, running_mean, running_var, factor, eps, c)
    run_per_channel(_GLOBAL_FORWARD, "forward", (x, y), (mean, inv_std, scale, bias), c, s)


def batch_norm_scaled_backward(
    x, dy, dx, mean, inv_std, scale, dscale, dbias, add_scale, add_bias, batch, work, n, c, s
):
    """dbias (+)= sum(dy), dscale (+)= sum(dy * v) where v = (x - mean) * inv_std, and dx = dy * scale * inv_std, or for
    the batch's own statistics (`batch`) (dy - mean(dy) - mean(dy * v) * v) * scale * inv_std.

    Each of dx (which may be dy), dscale and dbias may be None. x is read for dscale, and for dx with `batch`.
    `work` is for the GPU's partial sums: 2 * c * (parts + 1) elements.
    """
    if n * s == 0:  # sums of nothing are zero
        for gradient, add in ((dscale, add_scale), (dbias, add_bias)):
            if gradient is not None and not add:
                fill(gradient, 0)
        return
    reads_x = dscale is not None or (batch and dx is not None)
    data = dx is not None and not batch
    if reads_x or dbias is not None:
        arrays = ([x] if reads_x else []) + [dy] + ([dx] if data else [])
        channel = [mean] * reads_x + [inv_std] * (reads_x or data) + [scale] * data
        parts = run_walk(_sums(reads_x, data), "sums", arrays, channel, n, c, s, work)
        for which, gradient, add in ((0, dbias, add_bias), (1, dscale, add_scale)):
            if gradient is not None:
                add_up(work, which, gradient, add, c, parts)
        if dx is not None and batch:
            channel = (mean, inv_std, scale, *means_of(work, n, c, s, parts))
            run_walk(_BACKWARD, "backward", (x, dy, dx), channel, n, c, s)
    elif data:
        run_per_channel(_GLOBAL_BACKWARD, "backward", (dy, dx), (inv_std, scale), c, s)
