"""Rows chosen by a selector, on the GPU. One block finds where rows go; the copies are one pass over memory."""

from __future__ import annotations

from ...backend.cuda import launch

__all__ = ["filter_backward", "filter_forward", "filter_positions"]

_THREADS = 256

_POSITIONS = r"""
extern "C" __global__ void filter_positions(const T* selector, int* positions, long long n) {
  __shared__ int before[256];
  const long long each = (n + 255) / 256, begin = threadIdx.x * each;
  const long long end = begin + each < n ? begin + each : n;
  int count = 0;
  for (long long i = begin; i < end; ++i) count += selector[i] != T(0);
  before[threadIdx.x] = count;
  __syncthreads();
  for (int step = 1; step < 256; step *= 2) {  // inclusive sums of the threads' counts
    const int add = threadIdx.x >= step ? before[threadIdx.x - step] : 0;
    __syncthreads();
    before[threadIdx.x] += add;
    __syncthreads();
  }
  int next = before[threadIdx.x] - count;
  for (long long i = begin; i < end; ++i) positions[i] = selector[i] != T(0) ? next++ : -1;
}
"""

_FORWARD = r"""
extern "C" __global__ void filter_forward(const T* x, const int* positions, T* y, long long row, long long n) {
  LOOP(i, n) {
    const int to = positions[i / row];
    if (to >= 0) y[to * row + i % row] = x[i];
  }
}
"""

_BACKWARD = r"""
extern "C" __global__ void filter_backward(const T* dy, const int* positions, T* dx, long long row, long long n) {
  LOOP(i, n) {
    const int from = positions[i / row];
    dx[i] = from >= 0 ? dy[from * row + i % row] : T(0);
  }
}
"""


def filter_positions(selector, positions) -> None:
    """As in ops/cpu/filter.py."""
    n = positions.size
    launch(_POSITIONS, "filter_positions", selector.dtype, n, selector, positions, n, block=_THREADS, grid=min(n, 1))


def filter_forward(x, positions, y) -> None:
    """As in ops/cpu/filter.py."""
    row = x.size // max(1, x.shape[0])
    launch(_FORWARD, "filter_forward", x.dtype, x.size, x, positions, y, row, x.size)


def filter_backward(dy, positions, dx) -> None:
    """As in ops/cpu/filter.py."""
    row = dx.size // max(1, dx.shape[0])
    launch(_BACKWARD, "filter_backward", dx.dtype, dx.size, dy, positions, dx, row, dx.size)
