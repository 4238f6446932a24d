"""Repeat blocks: (outer, inner) to (outer, tiles, inner)."""

from __future__ import annotations

from ....arrays import AnyArray
from ....backend.cuda import launch
from ..moves import move, moving, unit_of
from ..source import DIVIDE, divider

__all__ = ["tile_forward", "tile_backward"]

_TILE = moving(
    "tile",
    """
      const long long block = quotient(i, inner, i_magic, i_shift);
      from = quotient(block, tiles, t_magic, t_shift) * inner + i - block * inner;
    """,
    params="long long inner, long long i_magic, long long i_shift, long long tiles, long long t_magic, "
    "long long t_shift",
    helpers=DIVIDE,
)

_SUM = (
    DIVIDE
    + """
template <int N> struct alignas(N * sizeof(T) < 16 ? N * sizeof(T) : 16) Some { T v[N]; };

// y (outer, parts, inner) = sums over parts of the middle axis of x (outer, tiles, inner), in its order; a thread for N
// neighbouring elements; n and inner count groups of N
template <int N> __device__ void sum_groups(const T* x, T* y, long long n, long long inner, long long i_magic,
                                            long long i_shift, long long parts, long long p_magic, long long p_shift,
                                            long long tiles) {
  const long long share = (tiles + parts - 1) / parts;
  LOOP(i, n) {
    const long long block = quotient(i, inner, i_magic, i_shift), o = quotient(block, parts, p_magic, p_shift);
    long long t = (block - o * parts) * share;
    const long long end = t + share < tiles ? t + share : tiles;
    const Some<N>* at = (const Some<N>*)x + (o * tiles + t) * inner + i - block * inner;
    A sum[N];
    #pragma unroll
    for (int k = 0; k < N; ++k) sum[k] = 0;
    #pragma unroll 4
    for (; t < end; ++t, at += inner) {
      const Some<N> values = *at;
      #pragma unroll
      for (int k = 0; k < N; ++k) sum[k] += values.v[k];
    }
    Some<N> out;
    #pragma unroll
    for (int k = 0; k < N; ++k) out.v[k] = (T)sum[k];
    ((Some<N>*)y)[i] = out;
  }
}
#define SIZES long long n, long long inner, long long i_magic, long long i_shift, long long parts, long long p_magic, \\
    long long p_shift, long long tiles
extern "C" __global__ void sum_middle_1(const T* x, T* y, SIZES) {
  sum_groups<1>(x, y, n, inner, i_magic, i_shift, parts, p_magic, p_shift, tiles);
}
extern "C" __global__ void sum_middle_2(const T* x, T* y, SIZES) {
  sum_groups<2>(x, y, n, inner, i_magic, i_shift, parts, p_magic, p_shift, tiles);
}
extern "C" __global__ void sum_middle_4(const T* x, T* y, SIZES) {
  sum_groups<4>(x, y, n, inner, i_magic, i_shift, parts, p_magic, p_shift, tiles);
}
"""
)


def tile_forward(x: AnyArray, y: AnyArray, outer: int, tiles: int, inner: int) -> None:
    """Compute y[o, t] = x[o] for every t."""
    unit = unit_of(x, y, inner)
    n = outer * tiles * inner // unit
    move(_TILE, "tile", x, y, unit, n, *divider(inner // unit, n), *divider(tiles, n))


def tile_backward(dy: AnyArray, dx: AnyArray, work: AnyArray, parts: int, outer: int, tiles: int, inner: int) -> None:
    """Compute dx[o] = sum of dy[o, t] over t. `work`: outer * parts * inner elements for the GPU's partial sums."""
    if parts > 1:
        _sum_middle(dy, work, outer, tiles, inner, parts)
        dy, tiles = work, parts
    _sum_middle(dy, dx, outer, tiles, inner, 1)


def _sum_middle(x: AnyArray, y: AnyArray, outer: int, tiles: int, inner: int, parts: int) -> None:
    unit = unit_of(x, y, inner)
    n = outer * parts * inner // unit
    sizes = (*divider(inner // unit, n), *divider(parts, n), tiles)
    launch(_SUM, f"sum_middle_{unit}", y.dtype, n, x, y, n, *sizes)
