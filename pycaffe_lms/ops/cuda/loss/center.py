"""Compute how class centres shall move towards the features of their classes."""

from __future__ import annotations

from ....arrays import AnyArray
from ....backend.cuda import launch
from ..source import BLOCK_SUM

__all__ = ["center_moves"]

_SOURCE = (
    BLOCK_SUM
    + """
// one block of 256 threads for each row, which first counts the rows of its class
extern "C" __global__ void moves(const T* index, const T* x, const T* centers, T* out, long long m, long long n) {
  const long long row = blockIdx.x;
  const T mine = (T)trunc((double)index[row]);
  long long count = 0;
  for (long long i = threadIdx.x; i < m; i += 256) count += (T)trunc((double)index[i]) == mine;
  const T divisor = (T)(block_sum(count) + 1);
  for (long long k = row * n + threadIdx.x; k < (row + 1) * n; k += 256) out[k] = (centers[k] - x[k]) / divisor;
}
"""
)


def center_moves(index: AnyArray, x: AnyArray, centers: AnyArray, moves: AnyArray, m: int, n: int) -> None:
    """Write to moves (m, n) centers - x, each row divided by 1 + the number of rows with the same index."""
    if m:
        launch(_SOURCE, "moves", x.dtype, 0, index, x, centers, moves, m, n, block=256, grid=m)
