"""Sums over the rows of a matrix (rows, channels), a part of the rows at a time: for channels behind the other axes.

A block of 256 threads walks down a part of the rows; a thread holds the sums of N neighbouring channels in registers
and takes every so many-th row, so that a warp reads neighbouring addresses, 16 bytes at a time where the number of
channels allows it. The threads' sums are added in a tree: its order depends on the sizes alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ...arrays import AnyArray
from ...backend.cuda import launch
from .packs import PACK, aligned, pack_size

WIDEST = 32  # threads side by side

WALK_DOWN = (
    PACK
    + """
__device__ inline Values load(const T* x, long long pack) {
#if WHOLE
  return ((const Values*)x)[pack];
#else  // a view that begins anywhere: the same elements in the same order, one by one
  Values values;
  for (int k = 0; k < N; k++) values.v[k] = x[pack * N + k];
  return values;
#endif
}
struct Column {  // what a thread visits: pack `pack` of rows at, at + rows, ... below end; idle: nothing
  int rows, row, lanes;
  long long pack, packs, at, end, part;
  bool idle;
  __device__ Column(long long outer, long long dim, long long parts, int lanes) : lanes(lanes) {
    rows = 256 / lanes;
    row = threadIdx.x / lanes;
    part = blockIdx.x % parts;
    packs = dim / N;
    pack = blockIdx.x / parts * lanes + threadIdx.x % lanes;
    idle = row >= rows || pack >= packs;
    const long long share = (outer + parts - 1) / parts;
    at = part * share + row;
    end = part * share + share < outer ? part * share + share : outer;
  }
  __device__ bool writes() const { return row == 0 && !idle; }
};
// visit(pack of the matrix) for every row in order, the loads of four rows at a time
template <typename F> __device__ inline void each_row(const Column& c, F visit) {
  if (c.idle) return;
  const long long step = c.rows * c.packs;
  long long o = c.at, pack = o * c.packs + c.pack;
  for (; o + 3 * c.rows < c.end; o += 4 * c.rows, pack += 4 * step) {
    #pragma unroll
    for (int u = 0; u < 4; u++) visit(pack + u * step);
  }
  for (; o < c.end; o += c.rows, pack += step) visit(pack);
}
// sums over the block's rows end in the threads of row 0; join(mine, other thread) adds another's sums to mine
template <typename F> __device__ inline void tree(const Column& c, F join) {
  int half = 1;
  while (half < c.rows) half *= 2;
  for (half /= 2; half > 0; half /= 2) {
    __syncthreads();
    if (c.row < half && c.row + half < c.rows) join(threadIdx.x, threadIdx.x + half * c.lanes);
  }
}
// term(pack of the matrix, sums): adds what a row gives
template <int SUMS, typename F> __device__ inline void column_sums(const Column& c, A (&sums)[SUMS][N], F term) {
  __shared__ A shared[SUMS * N][256];
  #pragma unroll
  for (int s = 0; s < SUMS * N; s++) sums[s / N][s % N] = 0;
  each_row(c, [&](long long pack) { term(pack, sums); });
  #pragma unroll
  for (int s = 0; s < SUMS * N; s++) shared[s][threadIdx.x] = sums[s / N][s % N];
  tree(c, [&](int mine, int other) {
    #pragma unroll
    for (int s = 0; s < SUMS * N; s++) shared[s][mine] += shared[s][other];
  });
  #pragma unroll
  for (int s = 0; s < SUMS * N; s++) sums[s / N][s % N] = shared[s][threadIdx.x];
}
"""
)


def launch_columns(
    source: str, name: str, v: AnyArray, outer: int, dim: int, parts: int, *args: Any, read: Sequence[AnyArray] = ()
) -> None:
    """Queue a kernel that sums columns: `parts` blocks for each group of channels. `source` is compiled with N and
    WHOLE, and the kernel gets args, then outer, dim, parts and lanes. read: the arrays it reads packs of."""
    n = pack_size(v.dtype, dim)
    packs = dim // n
    groups = -(-packs // WIDEST)
    lanes = max(1, -(-packs // max(1, groups)))
    head = f"#define N {n}\n#define WHOLE {aligned(*read)}\n"
    launch(head + source, name, v.dtype, 0, *args, outer, dim, parts, lanes, block=256, grid=groups * parts)
