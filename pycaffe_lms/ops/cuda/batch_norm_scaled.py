"""Batch normalisation with a scale and a bias per channel, of arrays seen as (n, c, s)."""

from __future__ import annotations

from ...backend.cuda import launch
from ..parts import reduction_parts
from .basic import fill
from .batch_norm import running_statistics, train_statistics
from .channels import WALK, stage_two
from .source import BLOCK_SUM, DIVIDE, divider

__all__ = [
    "batch_norm_scaled_backward",
    "batch_norm_scaled_global_forward",
    "batch_norm_scaled_train_forward",
]

_SOURCE = (
    BLOCK_SUM
    + WALK
    + DIVIDE
    + """
#define CHANNEL(i) long long plane = quotient(i, s, s_magic, s_shift), \\
                             channel = plane - quotient(plane, c, c_magic, c_shift) * c
#define DIVIDERS long long s, long long s_magic, long long s_shift, long long c, long long c_magic, long long c_shift

extern "C" __global__ void forward(const T* x, T* y, const T* mean, const T* inv_std, const T* scale, const T* bias,
                                   long long total, DIVIDERS) {
  LOOP(i, total) {
    CHANNEL(i);
    y[i] = (x[i] - mean[channel]) * inv_std[channel] * scale[channel] + bias[channel];
  }
}
// a part of a channel: sum of dy, and of dy * (x - mean) * inv_std
extern "C" __global__ void part_gradients(const T* x, const T* dy, const T* mean, const T* inv_std, T* work,
                                          long long n, long long c, long long s, long long parts) {
  const long long channel = blockIdx.x / parts;
  const A middle = mean[channel];
  A sum = 0, dot = 0;
  for (Walk w(n, c, s, channel, blockIdx.x % parts, parts); w.more(); w.next()) {
    const A value = dy[w.index()];
    sum += value;
    dot += value * (x[w.index()] - middle);
  }
  sum = block_sum(sum);
  dot = block_sum(dot);
  if (threadIdx.x == 0) {
    work[blockIdx.x] = sum;
    work[c * parts + blockIdx.x] = dot * inv_std[channel];
  }
}
extern "C" __global__ void backward(const T* x, const T* dy, T* dx, const T* mean, const T* inv_std, const T* scale,
                                    const T* means, long long total, DIVIDERS) {  // means: of dy, then of dy * v
  LOOP(i, total) {
    CHANNEL(i);
    const T v = (x[i] - mean[channel]) * inv_std[channel];
    dx[i] = (dy[i] - means[channel] - means[c + channel] * v) * (scale[channel] * inv_std[channel]);
  }
}
extern "C" __global__ void global_backward(const T* dy, T* dx, const T* inv_std, const T* scale, long long total,
                                           DIVIDERS) {
  LOOP(i, total) {
    CHANNEL(i);
    dx[i] = dy[i] * (scale[channel] * inv_std[channel]);
  }
}
"""
)


def _apply(name, *args, n, c, s):
    total = n * c * s
    launch(_SOURCE, name, args[0].dtype, total, *args, total, *divider(s, total), *divider(c, total))


def batch_norm_scaled_train_forward(
    x, y, inv_std, mean, running_mean, running_var, factor, scale, bias, momentum, eps, work, n, c, s
):
    """y = (x - mean) * inv_std * scale + bias; the rest as in `batch_norm_train_forward`."""
    train_statistics(x, inv_std, mean, running_mean, running_var, factor, momentum, eps, work, n, c, s)
    _apply("forward", x, y, mean, inv_std, scale, bias, n=n, c=c, s=s)


def batch_norm_scaled_global_forward(x, y, inv_std, mean, running_mean, running_var, factor, scale, bias, eps, n, c, s):
    """y = (x - mean) * inv_std * scale + bias; the rest as in `batch_norm_global_forward`."""
    running_statistics(inv_std, mean, running_mean, running_var, factor, eps, c)
    _apply("forward", x, y, mean, inv_std, scale, bias, n=n, c=c, s=s)


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
    parts = reduction_parts(n, c, s)
    reads = dscale is not None or (batch and dx is not None)
    if reads or dbias is not None:
        args = (x if reads else dy, dy, mean, inv_std, work, n, c, s, parts)
        launch(_SOURCE, "part_gradients", dy.dtype, 0, *args, block=256, grid=c * parts)
    for start, gradient, add in ((0, dbias, add_bias), (c * parts, dscale, add_scale)):
        if gradient is not None:
            stage_two(work, start, gradient, 0, 1.0, add, c, parts)
    if dx is not None and batch:
        means = work[2 * c * parts :]
        for which in (0, 1):
            stage_two(work, which * c * parts, means, which * c, 1 / (n * s), False, c, parts)
        _apply("backward", x, dy, dx, mean, inv_std, scale, means, n=n, c=c, s=s)
    elif dx is not None:
        _apply("global_backward", dy, dx, inv_std, scale, n=n, c=c, s=s)
