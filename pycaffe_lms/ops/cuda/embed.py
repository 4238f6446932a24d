"""Rows of a table (k, n), chosen by m indices that are stored as real numbers."""

from __future__ import annotations

from ...backend.cuda import launch
from .source import DIVIDE, divider

__all__ = ["embed_forward", "embed_backward"]

_SOURCE = (
    DIVIDE
    + """
extern "C" __global__ void lookup(const T* index, const T* w, const T* b, T* y, long long has_bias, long long total,
                                  long long n, long long magic, long long shift, long long k) {
  LOOP(i, total) {
    long long place = quotient(i, n, magic, shift), column = i - place * n;
    T v = index[place];
    long long row = v > -1 && v < (T)9e18 ? (long long)v : -1;  // false for NaN
    y[i] = row >= 0 && row < k ? w[row * n + column] + (has_bias ? b[column] : (T)0) : (T)nan("");
  }
}
// One block for `columns` (a power of 2, at most 256) columns of one row of w. It looks through all indices, 256 at a
// time, lists in order those that name its row, and shares the listed ones among 256 / columns groups of threads; at
// last the groups' sums are added in a fixed tree. So the order of additions depends on the indices alone.
extern "C" __global__ void gather(const T* index, const T* dy, T* dw, long long accumulate, long long m, long long n,
                                  long long columns, long long chunks) {
  __shared__ A part[256];
  __shared__ long long list[256];
  __shared__ int found[8];
  int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  int group = threadIdx.x / columns, groups = 256 / columns;
  long long row = blockIdx.x / chunks, column = blockIdx.x % chunks * columns + threadIdx.x % columns;
  A sum = 0;
  for (long long start = 0; start < m; start += 256) {
    long long i = start + threadIdx.x;
    bool mine = i < m && index[i] > -1 && index[i] < (T)9e18 && (long long)index[i] == row;
    unsigned votes = __ballot_sync(0xffffffffu, mine);
    if (lane == 0) found[warp] = __popc(votes);
    int count = __syncthreads_count(mine);
    if (count == 0) continue;
    int at = __popc(votes & ((1u << lane) - 1));
    for (int other = 0; other < warp; ++other) at += found[other];
    if (mine) list[at] = i;
    __syncthreads();
    if (column < n)
      for (int j = group; j < count; j += groups) sum += dy[list[j] * n + column];
    __syncthreads();  // before the list is written again
  }
  part[threadIdx.x] = sum;
  __syncthreads();
  for (int half = 128; half >= columns; half >>= 1) {
    if (threadIdx.x < half) part[threadIdx.x] += part[threadIdx.x + half];
    __syncthreads();
  }
  if (threadIdx.x >= columns || column >= n) return;
  T* out = dw + row * n + column;
  *out = accumulate ? (T)(*out + part[threadIdx.x]) : (T)part[threadIdx.x];
}
"""
)


def embed_forward(index, w, b, y, m, n, k):
    """y[i] = w[int(index[i])] + b (None: no bias); NaN where the index is out of range."""
    has_bias = b is not None
    args = (index, w, b if has_bias else w, y, int(has_bias), m * n)
    launch(_SOURCE, "lookup", y.dtype, m * n, *args, *divider(n, m * n), k)


def embed_backward(index, dy, dw, accumulate, m, n, k):
    """dw[row] (+)= the sum of dy[i] over the i whose index is that row, in their order."""
    columns = min(256, 1 << max(0, n - 1).bit_length())
    chunks = (n + columns - 1) // columns
    args = (index, dy, dw, int(accumulate), m, n, columns, chunks)
    launch(_SOURCE, "gather", dw.dtype, 0, *args, block=256, grid=k * chunks)
