"""Run kernels over the rows of (rows, dim), each row the work of one warp, or of one block where it is longer.

What a pass over a row has read, the next finds in the cache.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

from ....arrays import AnyArray
from ....backend.cuda import launch
from ..packs import aligned, pack_size
from ..source import BLOCK_SUM

_SHORT = 1024, 256  # elements, or packs, of a row for a warp
_BLOCK = 256

# WARP: a row belongs to a warp, else to a block; N elements are a pack
_FRAME = (
    BLOCK_SUM
    + """
#if ALIGNED
struct __align__(N * sizeof(T)) Values { T v[N]; };
struct __align__(N > 1 ? 16 : sizeof(C)) Columns { C v[N]; };  // of a factor or shift: 16 bytes at a time
#else  // the same elements in the same order, one by one
struct Values { T v[N]; };
struct Columns { C v[N]; };
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
"""
)


@functools.cache
def _source(kernels: str, **switches: int) -> str:
    return "".join(f"#define {name} {value}\n" for name, value in switches.items()) + _FRAME + kernels


def run_rows(
    kernels: str,
    name: str,
    arrays: Sequence[AnyArray],
    size: tuple[int, int],
    *args: Any,
    columns: Sequence[AnyArray] = (),
    **switches: int,
) -> None:
    """Queue a kernel whose parameters are arrays of `size` (rows, dim), then `args`, then rows and dim.

    Args:
        kernels: CUDA C++ that walks with ROW, LANES, `each`, HELD_PACKS and VALUES.
        columns: those of `args` that have a value for each column, and are read as `Columns`.
        switches: macros of the kernels.
    """
    rows, dim = size
    n, dtype = pack_size(arrays[0].dtype, dim), arrays[0].dtype
    warp = int(dim <= _SHORT[0] or dim <= _SHORT[1] * n)
    grid = -(-rows * 32 // _BLOCK) if warp else rows
    source = _source(kernels, N=n, WARP=warp, ALIGNED=aligned(*arrays, *columns), **switches)
    launch(source, name, dtype, 0, *arrays, *args, rows, dim, block=_BLOCK, grid=grid)
