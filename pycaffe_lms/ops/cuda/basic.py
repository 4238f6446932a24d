"""Copies, sums and norms of whole arrays."""

from __future__ import annotations

import functools

from ...backend.cuda import launch
from .source import BLOCK_SUM

__all__ = ["fill", "copy", "sum_arrays", "sum_squares"]

_PARTS = 1024

_SOURCE = """
extern "C" __global__ void fill(T* y, double value, long long n) { LOOP(i, n) y[i] = (T)value; }
extern "C" __global__ void copy(const T* x, T* y, long long n) { LOOP(i, n) y[i] = x[i]; }
"""

_SQUARES = (
    BLOCK_SUM
    + """
extern "C" __global__ void squares(const T* x, double* work, long long n) {
  double sum = 0;
  LOOP(i, n) sum += (double)x[i] * x[i];
  sum = block_sum(sum);
  if (threadIdx.x == 0) work[blockIdx.x] = sum;
}
extern "C" __global__ void total(const double* work, double* out, long long index, long long parts) {
  double sum = 0;
  for (long long i = threadIdx.x; i < parts; i += 256) sum += work[i];
  sum = block_sum(sum);
  if (threadIdx.x == 0) out[index] = sum;
}
"""
)


def fill(y, value):
    """y = value."""
    launch(_SOURCE, "fill", y.dtype, y.size, y, float(value), y.size)


def copy(x, y):
    """y = x, element by element in memory order (shapes may differ); nothing to do where they are the same memory."""
    if x.data.ptr != y.data.ptr:
        launch(_SOURCE, "copy", y.dtype, y.size, x, y, y.size)


@functools.cache
def _sum_source(n: int) -> str:
    pointers = ", ".join(f"const T* x{i}" for i in range(n))
    terms = " + ".join(f"x{i}[i]" for i in range(n))
    return f'extern "C" __global__ void sum_arrays({pointers}, T* y, long long n) {{ LOOP(i, n) y[i] = {terms}; }}'


def sum_arrays(xs, y):
    """y = ((xs[0] + xs[1]) + xs[2]) + ...; y may be any of them."""
    launch(_sum_source(len(xs)), "sum_arrays", y.dtype, y.size, *xs, y, y.size)


def sum_squares(x, out, index, work):
    """out[index] = sum of x^2 in float64. `work` (1024 doubles) is for the GPU's partial sums."""
    parts = min(_PARTS, max(1, (x.size + 4095) // 4096))
    launch(_SQUARES, "squares", x.dtype, x.size, x, work, x.size, block=256, grid=parts)
    launch(_SQUARES, "total", x.dtype, 256, work, out, index, parts, block=256, grid=1)
