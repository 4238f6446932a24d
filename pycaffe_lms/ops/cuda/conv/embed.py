"""Look up rows of a table (k, n) by m indices that are stored as real numbers."""

from __future__ import annotations

import numpy as np

from ....arrays import AnyArray, HostArray
from ....backend.cuda import launch, require
from ....backend.cuda.pinned import pinned_bytes
from ..elementwise import elementwise, run
from ..moves import move, moving, unit_of
from ..source import DIVIDE, divider

__all__ = ["embed_forward", "embed_backward", "find_outside", "outside_plan"]

_ROW = """
      const long long place = quotient(i, width, magic, shift), column = i - place * width;
      const T v = index[place];
      const bool there = v > -1 && v < (T)9e18 && (long long)v < k;  // false for NaN
"""
_PARAMS = "const T* index, long long width, long long magic, long long shift, long long k"
_ROWS = moving(
    "rows",
    _ROW + "from = there ? (long long)v * width + column : -1;",
    params=_PARAMS,
    helpers=DIVIDE,
    missing='nan("")',
)
_COMPUTED = {  # by whether there is a bias; w may be of another type than y
    bias: elementwise(
        "computed",
        _ROW + f'y = there ? w[(long long)v * width + column]{" + b[column]" * bias} : (T)nan("");',
        writes="y",
        params="const T* w, " + "const T* b, " * bias + _PARAMS,
        helpers=DIVIDE,
    )
    for bias in (False, True)
}

_SOURCE = """
// One block for COLUMNS columns of one row of w, EACH for a thread; COLUMNS / EACH is a power of 2, at most 256. It
// looks through all indices, 256 at a time, lists in order those that name its row, and shares the listed ones among
// groups of threads; at last the groups' sums are added in a fixed tree. So the order of additions depends on the
// indices alone.
extern "C" __global__ void gather(const C* index, const T* dy, C* dw, long long accumulate, long long m, long long n,
                                  long long chunks) {
  const int ACROSS = COLUMNS / EACH, GROUPS = 256 / ACROSS;
  __shared__ A part[256];
  __shared__ long long list[256];
  __shared__ int found[8];
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, group = threadIdx.x / ACROSS;
  const long long row = blockIdx.x / chunks, column = blockIdx.x % chunks * COLUMNS + threadIdx.x % ACROSS;
  A sum[EACH];
  #pragma unroll
  for (int e = 0; e < EACH; ++e) sum[e] = 0;
  for (long long start = 0; start < m; start += 256) {
    long long i = start + threadIdx.x;
    bool mine = i < m && index[i] > -1 && index[i] < (C)9e18 && (long long)index[i] == row;
    unsigned votes = __ballot_sync(0xffffffffu, mine);
    if (lane == 0) found[warp] = __popc(votes);
    int count = __syncthreads_count(mine);
    if (count == 0) continue;
    int at = __popc(votes & ((1u << lane) - 1));
    for (int other = 0; other < warp; ++other) at += found[other];
    if (mine) list[at] = i;
    __syncthreads();
    for (int j = group; j < count; j += GROUPS) {
      const T* from = dy + list[j] * n + column;
      #pragma unroll
      for (int e = 0; e < EACH; ++e)
        if (column + e * ACROSS < n) sum[e] += from[e * ACROSS];
    }
    __syncthreads();  // before the list is written again
  }
  if (GROUPS > 1) {  // then EACH is 1
    part[threadIdx.x] = sum[0];
    __syncthreads();
    for (int half = 128; half >= ACROSS; half >>= 1) {
      if (threadIdx.x < half) part[threadIdx.x] += part[threadIdx.x + half];
      __syncthreads();
    }
    if (group > 0) return;
    sum[0] = part[threadIdx.x];
  }
  #pragma unroll
  for (int e = 0; e < EACH; ++e) {
    if (column + e * ACROSS >= n) return;
    C* out = dw + row * n + column + e * ACROSS;
    *out = accumulate ? (C)(*out + sum[e]) : (C)sum[e];
  }
}
"""
_OUTSIDE = """
// found lies on the host, where the kernel writes only if something is wrong
extern "C" __global__ void outside(const T* index, long long found, long long m, long long k) {
  LOOP(i, m) {
    const T v = index[i];
    if (v > -1 && v < (T)9e18 && (long long)v < k) continue;
    volatile double* out = (volatile double*)found;
    out[1] = (double)i;
    out[2] = (double)v;
    __threadfence_system();
    out[0] = 1;
  }
}
"""
_EACH = 8  # columns per thread where there are enough


def outside_plan() -> HostArray:
    """Return the array that `find_outside` writes to: three zeros, float64, of the host."""
    found = pinned_bytes(24, require().cuda.runtime).view(np.float64)
    found.fill(0)
    return found


def find_outside(index: AnyArray, found: HostArray, m: int, k: int) -> None:
    """Write (1, i, index[i]) to `found` for one i whose index is out of range; write nothing where all are in range."""
    launch(_OUTSIDE, "outside", index.dtype, m, index, found.ctypes.data, m, k)


def embed_forward(index: AnyArray, w: AnyArray, b: AnyArray | None, y: AnyArray, m: int, n: int, k: int) -> None:
    """Compute y[i] = w[int(index[i])] + b (no bias where b is None); NaN where the index is out of range."""
    if b is None and w.dtype == y.dtype:
        unit = unit_of(w, y, n)
        total = m * n // unit
        move(_ROWS, "rows", w, y, unit, total, index, *divider(n // unit, total), k)
    else:
        tables = (w,) if b is None else (w, b)
        run(_COMPUTED[b is not None], "computed", (y,), *tables, index, *divider(n, m * n), k)


def embed_backward(index: AnyArray, dy: AnyArray, dw: AnyArray, accumulate: bool, m: int, n: int, k: int) -> None:
    """Write to dw[row], or add if `accumulate`, the sum of dy[i] over the i whose index is that row, in their order."""
    each = _EACH if n >= 256 * _EACH else 1
    columns = min(256, 1 << max(0, n - 1).bit_length()) * each
    chunks = (n + columns - 1) // columns
    source = f"#define COLUMNS {columns}\n#define EACH {each}\n" + _SOURCE
    launch(source, "gather", dy.dtype, 0, index, dy, dw, int(accumulate), m, n, chunks, block=256, grid=k * chunks)
