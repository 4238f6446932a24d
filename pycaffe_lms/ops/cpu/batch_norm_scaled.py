"""Batch normalisation with a scale and a bias per channel, of arrays seen as (n, c, s)."""

from __future__ import annotations

import numpy as np

from .batch_norm import batch_norm_apply, batch_norm_global_forward, batch_norm_train_forward
from .channels import over_channels
from .compiled import kernel, sums
from .scale import scale_forward

__all__ = [
    "batch_norm_scaled_apply",
    "batch_norm_scaled_backward",
    "batch_norm_scaled_global_forward",
    "batch_norm_scaled_train_forward",
]

_BLOCK = 4096  # values summed in the array's own type, the rest in float64


def batch_norm_scaled_train_forward(
    x, y, inv_std, mean, running_mean, running_var, factor, scale, bias, momentum, eps, work, n, c, s
):
    """y = (x - mean) * inv_std * scale + bias; the rest as in `batch_norm_train_forward`."""
    running = (running_mean, running_var, factor)
    batch_norm_train_forward(x, y, inv_std, mean, *running, momentum, eps, work, n, c, s)
    scale_forward(y, scale, bias, y, n, c, s)


def batch_norm_scaled_apply(x, y, inv_std, mean, scale, bias, n, c, s):
    """y = (x - mean) * inv_std * scale + bias, with the bits of `batch_norm_scaled_train_forward`."""
    batch_norm_apply(x, y, inv_std, mean, n, c, s)
    scale_forward(y, scale, bias, y, n, c, s)


def batch_norm_scaled_global_forward(x, y, inv_std, mean, running_mean, running_var, factor, scale, bias, eps, n, c, s):
    """y = (x - mean) * inv_std * scale + bias; the rest as in `batch_norm_global_forward`."""
    batch_norm_global_forward(x, y, inv_std, mean, running_mean, running_var, factor, eps, n, c, s)
    scale_forward(y, scale, bias, y, n, c, s)


def batch_norm_scaled_backward(
    x, dy, dx, mean, inv_std, scale, dscale, dbias, add_scale, add_bias, batch, work, n, c, s
):
    """dbias (+)= sum(dy), dscale (+)= sum(dy * v) where v = (x - mean) * inv_std, and dx = dy * scale * inv_std, or for
    the batch's own statistics (`batch`) (dy - mean(dy) - mean(dy * v) * v) * scale * inv_std.

    Each of dx (which may be dy), dscale and dbias may be None. x is read for dscale, and for dx with `batch`.
    `work` is for the GPU's partial sums: 2 * c * (parts + 1) elements.
    """
    reads = dscale is not None or (batch and dx is not None)
    sums_of = np.zeros((2, c), np.float64)
    parts = [a.reshape(n, c, s) for a in (x if reads else dy, dy)]
    if n * s and (reads or dbias is not None):
        over_channels(_add_up, n, c, s, *parts, mean, inv_std, sums_of)
    for gradient, total, add in ((dbias, sums_of[0], add_bias), (dscale, sums_of[1], add_scale)):
        if gradient is not None:
            gradient[...] = gradient + total if add else total
    if dx is None or n * s == 0:
        return
    if batch:
        means = (sums_of / (n * s)).astype(dy.dtype)
        over_channels(_data, n, c, s, *parts, dx.reshape(n, c, s), mean, inv_std, scale, means)
    else:
        scale_forward(dy, scale * inv_std, None, dx, n, c, s)


@sums
def _sum_and_dot(x, dy, mean):
    total, dot = x.dtype.type(0), x.dtype.type(0)
    for i in range(x.size):
        total += dy[i]
        dot += dy[i] * (x[i] - mean)
    return total, dot


@kernel
def _add_up(first, last, x, dy, mean, inv_std, sums_of):
    items, _, size = x.shape
    for c in range(first, last):
        total, dot = 0.0, 0.0
        for i in range(items):
            for start in range(0, size, _BLOCK):
                end = min(start + _BLOCK, size)
                part = _sum_and_dot(x[i, c, start:end], dy[i, c, start:end], mean[c])
                total += np.float64(part[0])
                dot += np.float64(part[1])
        sums_of[0, c] = total
        sums_of[1, c] = dot * inv_std[c]


@kernel
def _data(first, last, x, dy, dx, mean, inv_std, scale, means):
    items, _, size = x.shape
    for c in range(first, last):
        slope, factor = means[1, c] * inv_std[c], scale[c] * inv_std[c]
        for i in range(items):
            values, gradient, result = x[i, c], dy[i, c], dx[i, c]
            for j in range(size):
                result[j] = (gradient[j] - means[0, c] - slope * (values[j] - mean[c])) * factor
