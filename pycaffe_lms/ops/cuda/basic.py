"""Copies, sums and norms of whole arrays."""

from __future__ import annotations

import functools

from ...backend.cuda import launch
from .source import BLOCK_SUM

__all__ = ["fill", "copy", "axpy", "scale_by", "add", "sum_arrays", "sum_squares", "asum"]

_PARTS = 1024

_SOURCE = """
extern "C" __global__ void fill(T* y, double value, long long n) { LOOP(i, n) y[i] = (T)value; }
extern "C" __global__ void copy(const T* x, T* y, long long n) { LOOP(i, n) y[i] = x[i]; }
extern "C" __global__ void axpy(double alpha, const T* x, T* y, long long n) { LOOP(i, n) y[i] += (T)alpha * x[i]; }
extern "C" __global__ void scale_by(double alpha, T* x, long long n) { LOOP(i, n) x[i] *= (T)alpha; }
"""

_NORM = (
    BLOCK_SUM
    + """
template <bool squares> __device__ void norm(const T* x, double* work, long long n) {
  double sum = 0;
  LOOP(i, n) sum += squares ? (double)x[i] * x[i] : fabs((double)x[i]);
  sum = block_sum(sum);
  if (threadIdx.x == 0) work[blockIdx.x] = sum;
}
extern "C" __global__ void squares(const T* x, double* work, long long n) { norm<true>(x, work, n); }
extern "C" __global__ void absolutes(const T* x, double* work, long long n) { norm<false>(x, work, n); }
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


def axpy(alpha, x, y):
    """y += alpha * x."""
    launch(_SOURCE, "axpy", y.dtype, y.size, float(alpha), x, y, y.size)


def scale_by(alpha, x):
    """x *= alpha."""
    launch(_SOURCE, "scale_by", x.dtype, x.size, float(alpha), x, x.size)


def add(x0, x1, y):
    """y = x0 + x1."""
    sum_arrays([x0, x1], y)


@functools.cache
def _sum_source(n: int) -> str:
    pointers = ", ".join(f"const T* x{i}" for i in range(n))
    terms = " + ".join(f"x{i}[i]" for i in range(n))
    return f'extern "C" __global__ void sum_arrays({pointers}, T* y, long long n) {{ LOOP(i, n) y[i] = {terms}; }}'


def sum_arrays(xs, y):
    """y = ((xs[0] + xs[1]) + xs[2]) + ...; y may be any of them."""
    launch(_sum_source(len(xs)), "sum_arrays", y.dtype, y.size, *xs, y, y.size)


def _norm(name, x, out, index, work):
    parts = min(_PARTS, max(1, (x.size + 4095) // 4096))
    launch(_NORM, name, x.dtype, x.size, x, work, x.size, block=256, grid=parts)
    launch(_NORM, "total", x.dtype, 256, work, out, index, parts, block=256, grid=1)


def sum_squares(x, out, index, work):
    """out[index] = sum of x^2 in float64. `work` (1024 doubles) is for the GPU's partial sums."""
    _norm("squares", x, out, index, work)


def asum(x, out, index, work):
    """out[index] = sum of |x| in float64. `work` (1024 doubles) is for the GPU's partial sums."""
    _norm("absolutes", x, out, index, work)
