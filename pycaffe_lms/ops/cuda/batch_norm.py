"""Batch normalisation of arrays seen as (n, c, s): statistics per channel over n and s."""

from __future__ import annotations

from ...backend.cuda import launch
from ..parts import reduction_parts
from .basic import fill
from .channels import BOTH, WALK, stage_one, stage_two
from .source import BLOCK_SUM, DIVIDE, divider

__all__ = [
    "batch_norm_train_forward",
    "batch_norm_global_forward",
    "batch_norm_backward",
    "batch_norm_global_backward",
]

_STATISTICS = (
    BLOCK_SUM
    + WALK
    + """
// a part's mean, then its sum of squared distances from that mean (the second walk finds the part in the cache)
extern "C" __global__ void part_statistics(const T* x, T* work, long long n, long long c, long long s,
                                           long long parts) {
  long long channel = blockIdx.x / parts, part = blockIdx.x % parts, share = (n * s + parts - 1) / parts;
  long long size = n * s - part * share < share ? n * s - part * share : share;
  A sum = 0, squares = 0;
  for (Walk w(n, c, s, channel, part, parts); w.more(); w.next()) sum += x[w.index()];
  A mean = size > 0 ? block_sum(sum) / size : 0;
  for (Walk w(n, c, s, channel, part, parts); w.more(); w.next()) {
    A d = x[w.index()] - mean;
    squares += d * d;
  }
  squares = block_sum(squares);
  if (threadIdx.x == 0) {
    work[blockIdx.x] = mean;
    work[c * parts + blockIdx.x] = squares;
  }
}
// the parts put together, one warp for each channel
extern "C" __global__ void statistics(const T* work, T* inv_std, T* mean, T* running_mean, T* running_var, T* factor,
                                      double momentum, double eps, long long n, long long c, long long s,
                                      long long parts) {
  LOOP(i, c * 32) {
    long long channel = i / 32, items = n * s, share = (items + parts - 1) / parts;
    double sum = 0, squares = 0;
    for (long long p = i % 32; p < parts && p * share < items; p += 32) {
      double size = items - p * share < share ? items - p * share : share;
      sum += size * work[channel * parts + p];
    }
    double average = warp_sum(sum) / items;
    for (long long p = i % 32; p < parts && p * share < items; p += 32) {
      double size = items - p * share < share ? items - p * share : share;
      double d = work[channel * parts + p] - average;
      squares += work[(c + channel) * parts + p] + size * d * d;
    }
    double variance = warp_sum(squares) / items;
    if (i % 32 != 0) continue;
    mean[channel] = (T)average;
    inv_std[channel] = (T)(1 / sqrt(variance + eps));
    running_mean[channel] = (T)(momentum * running_mean[channel] + average);
    running_var[channel] = (T)(momentum * running_var[channel] + variance * (items > 1 ? items / (items - 1.0) : 1.0));
    if (channel == 0) factor[0] = (T)(momentum * factor[0] + 1);
  }
}
extern "C" __global__ void running_statistics(T* inv_std, T* mean, const T* running_mean, const T* running_var,
                                              const T* factor, double eps, long long c) {
  double weight = factor[0] == 0 ? 0.0 : 1.0 / factor[0];
  LOOP(i, c) {
    mean[i] = (T)(running_mean[i] * weight);
    inv_std[i] = (T)(1 / sqrt(running_var[i] * weight + eps));
  }
}
"""
)

_APPLY = (
    DIVIDE
    + """
#define CHANNEL(i) long long plane = quotient(i, s, s_magic, s_shift), \\
                             channel = plane - quotient(plane, c, c_magic, c_shift) * c
#define DIVIDERS long long s, long long s_magic, long long s_shift, long long c, long long c_magic, long long c_shift
extern "C" __global__ void normalise(const T* x, T* y, const T* mean, const T* inv_std, long long total, DIVIDERS) {
  LOOP(i, total) {
    CHANNEL(i);
    y[i] = (x[i] - mean[channel]) * inv_std[channel];
  }
}
extern "C" __global__ void backward(const T* y, const T* dy, T* dx, const T* inv_std, const T* means, long long total,
                                    DIVIDERS) {  // means: of dy, then of dy * y
  LOOP(i, total) {
    CHANNEL(i);
    dx[i] = (dy[i] - means[channel] - means[c + channel] * y[i]) * inv_std[channel];
  }
}
extern "C" __global__ void global_backward(const T* dy, T* dx, const T* inv_std, long long total, DIVIDERS) {
  LOOP(i, total) {
    CHANNEL(i);
    dx[i] = dy[i] * inv_std[channel];
  }
}
"""
)


def _apply(name, *args, n, c, s):
    total = n * c * s
    dtype = args[0].dtype
    launch(_APPLY, name, dtype, total, *args, total, *divider(s, total), *divider(c, total))


def train_statistics(x, inv_std, mean, running_mean, running_var, factor, momentum, eps, work, n, c, s):
    """mean and inv_std of a batch, and the running sums moved; of an empty one zeros, and nothing moved."""
    if x.size == 0:
        fill(inv_std, 0)
        fill(mean, 0)
        return
    parts = reduction_parts(n, c, s)
    launch(_STATISTICS, "part_statistics", x.dtype, 0, x, work, n, c, s, parts, block=256, grid=c * parts)
    running = (running_mean, running_var, factor, float(momentum), float(eps))
    launch(_STATISTICS, "statistics", x.dtype, c * 32, work, inv_std, mean, *running, n, c, s, parts)


def running_statistics(inv_std, mean, running_mean, running_var, factor, eps, c):
    """mean and inv_std from the running sums."""
    args = (inv_std, mean, running_mean, running_var, factor, float(eps), c)
    launch(_STATISTICS, "running_statistics", inv_std.dtype, c, *args)


def batch_norm_train_forward(x, y, inv_std, mean, running_mean, running_var, factor, momentum, eps, work, n, c, s):
    """y = (x - mean) / sqrt(var + eps) with the batch's own statistics; y may be x.

    Writes mean and inv_std = 1 / sqrt(var + eps), and moves the running sums: factor = momentum * factor + 1,
    mean likewise, variance with the unbiased m / (m - 1), m = n * s. An empty batch moves nothing.
    `work` is for the GPU's partial sums: 2 * c * (parts + 1) elements.
    """
    train_statistics(x, inv_std, mean, running_mean, running_var, factor, momentum, eps, work, n, c, s)
    _apply("normalise", x, y, mean, inv_std, n=n, c=c, s=s)


def batch_norm_global_forward(x, y, inv_std, mean, running_mean, running_var, factor, eps, n, c, s):
    """y = (x - mean) / sqrt(var + eps) with the running sums over their factor (a zero factor: both are 0).

    Writes mean and inv_std; y may be x.
    """
    running_statistics(inv_std, mean, running_mean, running_var, factor, eps, c)
    _apply("normalise", x, y, mean, inv_std, n=n, c=c, s=s)


def batch_norm_backward(y, dy, dx, inv_std, work, n, c, s):
    """dx = (dy - mean(dy) - mean(dy * y) * y) * inv_std; y is the normalised top, dx may be dy.

    `work` is for the GPU's partial sums: 2 * c * (parts + 1) elements.
    """
    if y.size == 0:
        return
    parts = stage_one(BOTH, y, dy, work, n, c, s)
    means = work[2 * c * parts :]
    for which in (0, 1):
        stage_two(work, which * c * parts, means, which * c, 1 / (n * s), False, c, parts)
    _apply("backward", y, dy, dx, inv_std, means, n=n, c=c, s=s)


def batch_norm_global_backward(dy, dx, inv_std, n, c, s):
    """dx = dy * inv_std; dx may be dy."""
    _apply("global_backward", dy, dx, inv_std, n=n, c=c, s=s)
