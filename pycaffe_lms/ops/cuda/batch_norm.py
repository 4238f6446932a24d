"""Batch normalisation of arrays seen as (n, c, s): statistics per channel over n and s."""

from __future__ import annotations

from .channel_walk import add_up, run_walk, walking
from .norm_statistics import batch_statistics, running_statistics
from .per_channel import per_channel, run_per_channel

__all__ = [
    "batch_norm_apply",
    "batch_norm_train_forward",
    "batch_norm_global_forward",
    "batch_norm_backward",
    "batch_norm_global_backward",
]

_VALUE = "y = (x - mean) * inv_std;"
# after the statistics of x, whose end is still in the cache
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


def batch_norm_train_forward(x, y, inv_std, mean, running_mean, running_var, factor, momentum, eps, work, n, c, s):
    """y = (x - mean) / sqrt(var + eps) with the batch's own statistics; y may be x.

    Writes mean and inv_std = 1 / sqrt(var + eps), and moves the running sums: factor = momentum * factor + 1,
    mean likewise, variance with the unbiased m / (m - 1), m = n * s. An empty batch moves nothing.
    `work` is for the GPU's partial sums: 2 * c * (parts + 1) elements.
    """
    batch_statistics(x, inv_std, mean, running_mean, running_var, factor, momentum, eps, work, n, c, s)
    batch_norm_apply(x, y, inv_std, mean, n, c, s)


def batch_norm_apply(x, y, inv_std, mean, n, c, s):
    """y = (x - mean) * inv_std, with the bits of `batch_norm_train_forward`."""
    run_walk(NORMALISE, "normalise", (x, y), (mean, inv_std), n, c, s)


def batch_norm_global_forward(x, y, inv_std, mean, running_mean, running_var, factor, eps, n, c, s):
    """y = (x - mean) / sqrt(var + eps) with the running sums over their factor (a zero factor: both are 0).

    Writes mean and inv_std; y may be x.
    """
    running_statistics(inv_std, mean, running_mean, running_var, factor, eps, c)
    run_per_channel(_GLOBAL, "normalise", (x, y), (mean, inv_std), c, s)


def batch_norm_backward(y, dy, dx, inv_std, work, n, c, s):
    """dx = (dy - mean(dy) - mean(dy * y) * y) * inv_std; y is the normalised top, dx may be dy.

    `work` is for the GPU's partial sums: 2 * c * (parts + 1) elements.
    """
    if y.size == 0:
        return
    parts = run_walk(SUMS, "sums", (y, dy), (), n, c, s, work)
    mean, slope = means_of(work, n, c, s, parts)
    run_walk(BACKWARD, "backward", (y, dy, dx), (inv_std, mean, slope), n, c, s)


def batch_norm_global_backward(dy, dx, inv_std, n, c, s):
    """dx = dy * inv_std; dx may be dy."""
    run_per_channel(_GLOBAL_BACKWARD, "backward", (dy, dx), (inv_std,), c, s)


def means_of(work, n, c, s, parts):
    """The means of both sums of `run_walk`, which go behind the parts in `work`."""
    means = work[2 * c * parts :]
    for which in (0, 1):
        add_up(work, which, means, False, c, parts, 1 / (n * s), which * c)
    return means, means[c:]
