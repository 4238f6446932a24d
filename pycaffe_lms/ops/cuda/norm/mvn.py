"""Normalise mean and variance of the rows of (rows, dim).

A row that one block can take is one kernel's work: what a pass over the row has read, the next finds in the cache. The
threads of a warp share a short row, those of a block a longer one. The longest rows are cut into parts by the kernels
of batch normalisation, for which a row is a channel.
"""

from __future__ import annotations

import functools
from typing import Any

from ....arrays import AnyArray
from ....backend.cuda import launch
from ...records import Grid
from ...sum_parts import norm_parts
from ..basic import fill
from ..channel_walk import add_up, run_walk, walking
from ..packs import aligned, pack_size
from ..source import BLOCK_SUM
from .batch_norm import BACKWARD, NORMALISE, SUMS, means_of
from .norm_statistics import batch_moments

__all__ = ["mvn_forward", "mvn_backward"]

_SHORT = 1024  # elements of a row for a warp
_BLOCK = 256

# WARP: a row belongs to a warp, else to a block; N elements are a pack
_ROWS = (
    BLOCK_SUM
    + """
#if ALIGNED
struct __align__(N * sizeof(T)) Values { T v[N]; };
#else  // the same elements in the same order, one by one
struct Values { T v[N]; };
#endif
#define HELD 4  // packs under way together
#if WARP
#define LANES 32
#define ROW ((blockIdx.x * 256LL + threadIdx.x) / 32)
__device__ A all_of(A value) { return warp_sum(value); }
#else
#define LANES 256
#define ROW ((long long)blockIdx.x)
__device__ A all_of(A value) {  // the sums of eight warps, in order
  __shared__ A warps[8];
  value = warp_sum(value);
  __syncthreads();
  if (threadIdx.x % 32 == 0) warps[threadIdx.x / 32] = value;
  __syncthreads();
  A total = 0;
  for (int i = 0; i < 8; ++i) total += warps[i];
  return total;
}
#endif
// visit(values, packs) of this thread's packs of a row, HELD at a time
template <typename F> __device__ inline void each(int packs, F visit) {
  for (int k = threadIdx.x % LANES; k < packs; k += LANES * HELD) visit(k);
}
#define HELD_PACKS(u) _Pragma("unroll") for (int u = 0; u < HELD; ++u) if (k + u * LANES < packs)
#define VALUES(j) _Pragma("unroll") for (int j = 0; j < N; ++j)

extern "C" __global__ void __launch_bounds__(256) forward(const T* x, T* y, T* inv_std, long long variance, double eps,
                                                          long long rows, long long dim) {
  const long long row = ROW;
  if (row >= rows) return;  // whole warps, or whole blocks
  const int packs = (int)(dim / N);
  const Values* from = (const Values*)(x + row * dim);
  Values* to = (Values*)(y + row * dim);
  A sum = 0, squares = 0;
  each(packs, [&](int k) {
    Values v[HELD];
    HELD_PACKS(u) v[u] = from[k + u * LANES];
    HELD_PACKS(u) VALUES(j) sum += v[u].v[j];
  });
  const A mean = all_of(sum) / dim;
  A factor = 1;
  if (variance) {
    each(packs, [&](int k) {
      Values v[HELD];
      HELD_PACKS(u) v[u] = from[k + u * LANES];
      HELD_PACKS(u) VALUES(j) squares += (v[u].v[j] - mean) * (v[u].v[j] - mean);
    });
    factor = (A)(1 / (sqrt((double)all_of(squares) / dim) + eps));
  }
  if (threadIdx.x % LANES == 0) inv_std[row] = (T)factor;
  each(packs, [&](int k) {
    Values v[HELD];
    HELD_PACKS(u) v[u] = from[k + u * LANES];
    HELD_PACKS(u) {
      VALUES(j) v[u].v[j] = (T)((v[u].v[j] - mean) * factor);
      to[k + u * LANES] = v[u];
    }
  });
}
extern "C" __global__ void __launch_bounds__(256) backward(const T* y, const T* dy, T* dx, const T* inv_std,
                                                           long long variance, long long rows, long long dim) {
  const long long row = ROW;
  if (row >= rows) return;
  const int packs = (int)(dim / N);
  const Values *values = (const Values*)(y + row * dim), *slopes = (const Values*)(dy + row * dim);
  Values* to = (Values*)(dx + row * dim);
  A sum = 0, dot = 0;
  each(packs, [&](int k) {
    Values v[HELD], g[HELD];
    HELD_PACKS(u) g[u] = slopes[k + u * LANES];
    if (variance) HELD_PACKS(u) v[u] = values[k + u * LANES];
    HELD_PACKS(u) VALUES(j) {
      sum += g[u].v[j];
      if (variance) dot += g[u].v[j] * v[u].v[j];
    }
  });
  const A mean = all_of(sum) / dim, slope = variance ? all_of(dot) / dim : (A)0;
  const A factor = variance ? (A)inv_std[row] : (A)1;
  each(packs, [&](int k) {
    Values v[HELD], g[HELD];
    HELD_PACKS(u) g[u] = slopes[k + u * LANES];
    if (variance) HELD_PACKS(u) v[u] = values[k + u * LANES];
    HELD_PACKS(u) {
      VALUES(j) g[u].v[j] = (T)((g[u].v[j] - mean - (variance ? slope * v[u].v[j] : (A)0)) * factor);
      to[k + u * LANES] = g[u];
    }
  });
}
"""
)
_SUM = walking("sums", "sum0 += dy;", reads="dy", sums=1)
_CENTRE = walking("centre", "dx = dy - mean;", reads="dy", writes="dx", channel="mean", back=True)


@functools.cache
def _rows_source(n: int, warp: int, whole: int) -> str:
    return f"#define N {n}\n#define WARP {warp}\n#define ALIGNED {whole}\n{_ROWS}"


def _whole_rows(name: str, arrays: tuple[AnyArray, ...], rows: int, dim: int, *args: Any) -> None:
    """Queue a kernel for rows that lie in one part each."""
    warp = int(dim <= _SHORT)
    grid = -(-rows * 32 // _BLOCK) if warp else rows
    source = _rows_source(pack_size(arrays[0].dtype, dim), warp, aligned(*arrays))
    launch(source, name, arrays[0].dtype, 0, *arrays, *args, rows, dim, block=_BLOCK, grid=grid)


def mvn_forward(
    x: AnyArray, y: AnyArray, inv_std: AnyArray, work: AnyArray, variance: bool, eps: float, rows: int, dim: int
) -> None:
    """Compute y = (x - mean) * inv_std, inv_std = 1 / (std + eps), or 1 without `variance`; y may be x."""
    grid = Grid(1, rows, dim)
    if dim == 0:
        fill(inv_std, 1)
    elif norm_parts(*grid) == 1:
        _whole_rows("forward", (x, y), rows, dim, inv_std, int(variance), float(eps))
    else:
        mean = batch_moments(x, inv_std, work, variance, eps, grid)
        run_walk(NORMALISE, "normalise", (x, y), (mean, inv_std), grid)


def mvn_backward(
    y: AnyArray | None, dy: AnyArray, dx: AnyArray, inv_std: AnyArray | None, work: AnyArray, rows: int, dim: int
) -> None:
    """Compute dx = (dy - mean(dy) - y * mean(dy * y)) * inv_std, or dy - mean(dy) without inv_std; dx may be dy."""
    variance = inv_std is not None
    if rows * dim == 0:
        return
    grid = Grid(1, rows, dim)
    if norm_parts(*grid) == 1:
        arrays = (y if variance else dy, dy, dx)
        _whole_rows("backward", arrays, rows, dim, inv_std if variance else dy, int(variance))
    elif variance:
        parts = run_walk(SUMS, "sums", (y, dy), (), grid, work)
        channel = inv_std, *means_of(work, grid, parts)
        run_walk(BACKWARD, "backward", (y, dy, dx), channel, grid)
    else:
        parts = run_walk(_SUM, "sums", (dy,), (), grid, work)
        mean = work[rows * parts :]
        add_up(work, 0, mean, False, rows, parts, 1 / dim)
        run_walk(_CENTRE, "centre", (dy, dx), (mean,), grid)
