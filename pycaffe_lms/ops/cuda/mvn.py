"""Mean-variance normalisation of the rows of (rows, dim)."""

from __future__ import annotations

from ...backend.cuda import launch
from ..parts import reduction_parts
from .basic import fill
from .channels import BOTH, SUM, stage_one, stage_two
from .source import BLOCK_SUM, DIVIDE, divider

__all__ = ["mvn_forward", "mvn_backward"]

_SOURCE = (
    BLOCK_SUM
    + DIVIDE
    + """
// one block for each part of a row: its mean, and its sum of squared distances from that mean
extern "C" __global__ void part_statistics(const T* x, T* work, long long rows, long long dim, long long parts) {
  long long row = blockIdx.x / parts, share = (dim + parts - 1) / parts, at = blockIdx.x % parts * share;
  long long end = at + share < dim ? at + share : dim;
  A sum = 0, squares = 0;
  for (long long i = at + threadIdx.x; i < end; i += 256) sum += x[row * dim + i];
  sum = block_sum(sum);
  A mean = at < end ? sum / (end - at) : 0;
  for (long long i = at + threadIdx.x; i < end; i += 256) {
    A d = x[row * dim + i] - mean;
    squares += d * d;
  }
  squares = block_sum(squares);
  if (threadIdx.x == 0) {
    work[blockIdx.x] = mean;
    work[rows * parts + blockIdx.x] = squares;
  }
}
// the parts put together, one warp for each row
extern "C" __global__ void statistics(const T* work, T* mean, T* inv_std, long long variance, double eps,
                                      long long rows, long long dim, long long parts) {
  long long share = (dim + parts - 1) / parts;
  LOOP(i, rows * 32) {
    long long row = i / 32;
    double sum = 0, squares = 0;
    for (long long p = i % 32; p < parts && p * share < dim; p += 32) {
      double size = dim - p * share < share ? dim - p * share : share;
      sum += size * work[row * parts + p];
    }
    double average = warp_sum(sum) / dim;
    for (long long p = i % 32; p < parts && p * share < dim; p += 32) {
      double size = dim - p * share < share ? dim - p * share : share;
      double d = work[row * parts + p] - average;
      squares += work[(rows + row) * parts + p] + size * d * d;
    }
    squares = warp_sum(squares);
    if (i % 32 != 0) continue;
    mean[row] = (T)average;
    inv_std[row] = variance ? (T)(1 / (sqrt(squares / dim) + eps)) : (T)1;
  }
}
extern "C" __global__ void normalise(const T* x, T* y, const T* mean, const T* inv_std, long long n, long long dim,
                                     long long magic, long long shift) {
  LOOP(i, n) {
    long long row = quotient(i, dim, magic, shift);
    y[i] = (x[i] - mean[row]) * inv_std[row];
  }
}
extern "C" __global__ void backward(const T* y, const T* dy, T* dx, const T* inv_std, const T* means, long long rows,
                                    long long n, long long dim, long long magic, long long shift) {
  LOOP(i, n) {
    long long row = quotient(i, dim, magic, shift);
    dx[i] = (dy[i] - means[row] - means[rows + row] * y[i]) * inv_std[row];
  }
}
extern "C" __global__ void centre(const T* dy, T* dx, const T* mean, long long n, long long dim, long long magic,
                                  long long shift) {
  LOOP(i, n) dx[i] = dy[i] - mean[quotient(i, dim, magic, shift)];
}
"""
)


def mvn_forward(x, y, inv_std, work, variance, eps, rows, dim):
    """y = (x - mean) * inv_std, inv_std = 1 / (std + eps), or 1 where `variance` is False; y may be x.

    `work` is for the GPU's partial sums: 2 * rows * (parts + 1) elements.
    """
    if dim == 0:
        fill(inv_std, 1)
        return
    n, parts = rows * dim, reduction_parts(1, rows, dim)
    mean = work[2 * rows * parts :]
    launch(_SOURCE, "part_statistics", x.dtype, 0, x, work, rows, dim, parts, block=256, grid=rows * parts)
    args = (work, mean, inv_std, int(variance), float(eps), rows, dim, parts)
    launch(_SOURCE, "statistics", x.dtype, rows * 32, *args)
    launch(_SOURCE, "normalise", x.dtype, n, x, y, mean, inv_std, n, *divider(dim, n))


def mvn_backward(y, dy, dx, inv_std, work, rows, dim):
    """dx = (dy - mean(dy) - y * mean(dy * y)) * inv_std, or dy - mean(dy) where inv_std is None; dx may be dy."""
    n = rows * dim
    if n == 0:
        return
    variance = inv_std is not None
    parts = stage_one(BOTH if variance else SUM, y if variance else dy, dy, work, 1, rows, dim)
    means = work[2 * rows * parts :]
    stage_two(work, 0, means, 0, 1 / dim, False, rows, parts)
    if variance:
        stage_two(work, rows * parts, means, rows, 1 / dim, False, rows, parts)
        launch(_SOURCE, "backward", dy.dtype, n, y, dy, dx, inv_std, means, rows, n, *divider(dim, n))
    else:
        launch(_SOURCE, "centre", dy.dtype, n, dy, dx, means, n, *divider(dim, n))
