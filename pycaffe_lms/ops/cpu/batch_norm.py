"""Batch normalisation of arrays seen as (n, c, s): statistics per channel over n and s."""

from __future__ import annotations

import numpy as np

from .channels import channel_sum, row_slices

__all__ = [
    "batch_norm_train_forward",
    "batch_norm_global_forward",
    "batch_norm_backward",
    "batch_norm_global_backward",
]


def batch_norm_train_forward(x, y, inv_std, mean, running_mean, running_var, factor, momentum, eps, work, n, c, s):
    """y = (x - mean) / sqrt(var + eps) with the batch's own statistics; y may be x.

    Writes mean and inv_std = 1 / sqrt(var + eps), and moves the running sums: factor = momentum * factor + 1,
    mean likewise, variance with the unbiased m / (m - 1), m = n * s. An empty batch moves nothing.
    `work` is for the GPU's partial sums: 2 * c * (parts + 1) elements.
    """
    m = n * s
    if m == 0:
        inv_std.fill(0)
        mean.fill(0)
        return
    x, y = x.reshape(n, c, s), y.reshape(n, c, s)
    mean[...] = channel_sum(n, c, s, lambda rows: x[rows]) / m
    np.subtract(x, mean[:, None], out=y)
    var = channel_sum(n, c, s, lambda rows: np.square(y[rows])) / m
    with np.errstate(divide="ignore", invalid="ignore"):
        inv_std[...] = 1 / np.sqrt(var + eps)
        y *= inv_std[:, None]
    factor *= momentum
    factor += 1
    running_mean *= momentum
    running_mean += mean
    running_var *= momentum
    running_var += (var * (m / (m - 1) if m > 1 else 1)).astype(running_var.dtype)


def batch_norm_global_forward(x, y, inv_std, mean, running_mean, running_var, factor, eps, n, c, s):
    """y = (x - mean) / sqrt(var + eps) with the running sums over their factor (a zero factor: both are 0).

    Writes mean and inv_std; y may be x.
    """
    weight = 0.0 if factor.reshape(-1)[0] == 0 else 1.0 / float(factor.reshape(-1)[0])
    x, y = x.reshape(n, c, s), y.reshape(n, c, s)
    np.multiply(running_mean, weight, out=mean)
    with np.errstate(divide="ignore", invalid="ignore"):
        inv_std[...] = 1 / np.sqrt(running_var.astype(np.float64) * weight + eps)
        np.multiply(np.subtract(x, mean[:, None], out=y), inv_std[:, None], out=y)


def batch_norm_backward(y, dy, dx, inv_std, work, n, c, s):
    """dx = (dy - mean(dy) - mean(dy * y) * y) * inv_std; y is the normalised top, dx may be dy.

    `work` is for the GPU's partial sums: 2 * c * (parts + 1) elements.
    """
    m = n * s
    if m == 0:
        return
    y, dy, dx = y.reshape(n, c, s), dy.reshape(n, c, s), dx.reshape(n, c, s)
    mean_dy = (channel_sum(n, c, s, lambda rows: dy[rows]) / m).astype(dy.dtype)
    mean_dy_y = (channel_sum(n, c, s, lambda rows: dy[rows] * y[rows]) / m).astype(dy.dtype)
    for rows in row_slices(n, c * s):
        np.subtract(dy[rows], mean_dy[:, None] + mean_dy_y[:, None] * y[rows], out=dx[rows])
    dx *= inv_std[:, None]


def batch_norm_global_backward(dy, dx, inv_std, n, c, s):
    """dx = dy * inv_std; dx may be dy."""
    np.multiply(dy.reshape(n, c, s), inv_std[:, None], out=dx.reshape(n, c, s))
