"""Sums over the rows of (rows, dim), of x (SUM), |x| (ASUM) or x^2 (SUMSQ)."""

from __future__ import annotations

from ...backend.cuda import launch
from ..parts import reduction_parts
from .channels import stage_two
from .source import BLOCK_SUM, DIVIDE, divider

__all__ = ["reduction_forward", "reduction_backward"]

_SHORT = 1024  # rows up to this length are a warp's work each
_KINDS = {"SUM": 0, "ASUM": 1, "SUMSQ": 2}

_SOURCE = (
    BLOCK_SUM
    + DIVIDE
    + """
__device__ A term(A v, long long kind) { return kind == 0 ? v : kind == 1 ? fabs(v) : v * v; }
// one block for each part of a row
extern "C" __global__ void long_rows(const T* x, T* work, long long kind, long long dim, long long parts) {
  long long share = (dim + parts - 1) / parts, at = blockIdx.x % parts * share;
  long long end = at + share < dim ? at + share : dim;
  x += blockIdx.x / parts * dim;
  A sum = 0;
  for (long long i = at + threadIdx.x; i < end; i += 256) sum += term(x[i], kind);
  sum = block_sum(sum);
  if (threadIdx.x == 0) work[blockIdx.x] = sum;
}
// one warp for each row
extern "C" __global__ void short_rows(const T* x, T* y, long long kind, double coeff, long long rows, long long dim) {
  LOOP(i, rows * 32) {
    long long row = i / 32;
    A sum = 0;
    for (long long k = i % 32; k < dim; k += 32) sum += term(x[row * dim + k], kind);
    sum = warp_sum(sum);
    if (i % 32 == 0) y[row] = (T)(sum * coeff);
  }
}
extern "C" __global__ void backward(const T* x, const T* dy, T* dx, long long kind, double coeff, long long n,
                                    long long dim, long long magic, long long shift) {
  LOOP(i, n) {
    T g = (T)(dy[quotient(i, dim, magic, shift)] * coeff);
    if (kind == 1) g = x[i] > 0 ? g : x[i] < 0 ? -g : x[i] * g;  // 0 at 0, NaN at NaN
    if (kind == 2) g *= 2 * x[i];
    dx[i] = g;
  }
}
"""
)


def reduction_forward(x, y, kind, coeff, work, rows, dim):
    """y[row] = coeff * sum of f(x[row]); `work` is for the GPU's partial sums: rows * parts elements."""
    if dim <= _SHORT:
        launch(_SOURCE, "short_rows", x.dtype, rows * 32, x, y, _KINDS[kind], float(coeff), rows, dim)
        return
    parts = reduction_parts(1, rows, dim)
    args = (x, work, _KINDS[kind], dim, parts)
    launch(_SOURCE, "long_rows", x.dtype, 0, *args, block=256, grid=rows * parts)
    stage_two(work, 0, y, 0, coeff, False, rows, parts)


def reduction_backward(x, dy, dx, kind, coeff, rows, dim):
    """dx = coeff * dy[row] * f'(x); f' of ASUM is the sign of x. x is None for SUM."""
    n = rows * dim
    args = (dy if x is None else x, dy, dx, _KINDS[kind], float(coeff), n)  # for SUM the kernel does not look at x
    launch(_SOURCE, "backward", dx.dtype, n, *args, *divider(dim, n))
