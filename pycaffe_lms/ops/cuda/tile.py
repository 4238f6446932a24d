"""Repeating blocks: (outer, inner) to (outer, tiles, inner)."""

from __future__ import annotations

from ...backend.cuda import launch
from .source import DIVIDE, divider

__all__ = ["tile_forward", "tile_backward"]

_SOURCE = (
    DIVIDE
    + """
extern "C" __global__ void tile(const T* x, T* y, long long n, long long inner, long long i_magic, long long i_shift,
                                long long tiles, long long t_magic, long long t_shift) {
  LOOP(i, n) {
    long long block = quotient(i, inner, i_magic, i_shift);
    y[i] = x[quotient(block, tiles, t_magic, t_shift) * inner + i - block * inner];
  }
}
// y (outer, parts, inner) = sums over parts of the middle axis of x (outer, tiles, inner), in its order
extern "C" __global__ void sum_middle(const T* x, T* y, long long n, long long inner, long long i_magic,
                                      long long i_shift, long long parts, long long p_magic, long long p_shift,
                                      long long tiles) {
  long long share = (tiles + parts - 1) / parts;
  LOOP(i, n) {
    long long block = quotient(i, inner, i_magic, i_shift), o = quotient(block, parts, p_magic, p_shift);
    long long t = (block - o * parts) * share, end = t + share < tiles ? t + share : tiles;
    const T* at = x + (o * tiles + t) * inner + i - block * inner;
    A sum = 0;
    for (; t < end; ++t, at += inner) sum += *at;
    y[i] = sum;
  }
}
"""
)


def tile_forward(x, y, outer, tiles, inner):
    """y[o, t] = x[o] for every t."""
    n = outer * tiles * inner
    launch(_SOURCE, "tile", y.dtype, n, x, y, n, *divider(inner, n), *divider(tiles, n))


def tile_backward(dy, dx, work, parts, outer, tiles, inner):
    """dx[o] = sum of dy[o, t] over t. `work` is for the GPU's sums of `parts` parts: outer * parts * inner elements."""
    if parts > 1:
        _sum_middle(dy, work, outer, tiles, inner, parts)
        dy, tiles = work, parts
    _sum_middle(dy, dx, outer, tiles, inner, 1)


def _sum_middle(x, y, outer, tiles, inner, parts):
    n = outer * parts * inner
    launch(_SOURCE, "sum_middle", y.dtype, n, x, y, n, *divider(inner, n), *divider(parts, n), tiles)
