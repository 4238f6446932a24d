"""Reorder axes."""

from __future__ import annotations

import functools
from math import prod

from ....arrays import AnyArray
from ....backend.cuda import MAX_BLOCKS, launch
from ...geometry import Ints
from ..basic import copy
from ..moves import between, move, moving, unit_of
from ..source import DIVIDE, divider

__all__ = ["transpose"]

_TILE = 32
_NARROW = 8  # below this many elements along either axis most of a tile would be empty


def transpose(x: AnyArray, y: AnyArray, shape: Ints, order: Ints) -> None:
    """Copy x, seen as an array of `shape`, to y: axis order[i] of x is axis i of y. Types may differ as in `copy`."""
    n, last = prod(shape), len(shape) - 1
    if order == tuple(range(len(shape))) or n == 0:
        copy(x, y)
    elif order[-1] != last and min(shape[last], shape[order[-1]]) >= _NARROW:
        _tiled(x, y, shape, order)
    else:
        _plain(x, y, shape, order)


def _plain(x: AnyArray, y: AnyArray, shape: Ints, order: Ints) -> None:
    """Find each element of y in x axis by axis; where the last axis stays last, several elements at a time."""
    unit = unit_of(x, y, shape[-1]) if order[-1] == len(shape) - 1 else 1
    shape = (*shape[:-1], shape[-1] // unit)
    n, strides = prod(shape), _strides(shape)
    axes = [v for axis in order for v in (*divider(shape[axis], n), strides[axis])]
    move(_plain_source(len(shape)), "plain", x, y, unit, n, *axes)


def _strides(shape: Ints) -> list[int]:
    return [prod(shape[i + 1 :]) for i in range(len(shape))]


def _tiled(x: AnyArray, y: AnyArray, shape: Ints, order: Ints) -> None:
    """Copy tiles of the plane that the last axes of x and y span through shared memory: all addresses coalesce."""
    to = _strides([shape[axis] for axis in order])
    strides_in = _strides(shape)
    strides_out = [to[order.index(axis)] for axis in range(len(shape))]
    a, b = len(shape) - 1, order[-1]
    others = [axis for axis in order if axis not in (a, b)]
    tiles = prod((shape[axis] + _TILE - 1) // _TILE for axis in (a, b)) * prod(shape[axis] for axis in others)
    plane = (shape[a], shape[b], strides_in[b], strides_out[a])
    rest = [v for axis in reversed(others) for v in (shape[axis], strides_in[axis], strides_out[axis])]
    source, dtype = between(_tiled_source(len(others)), x.dtype, y.dtype)
    launch(source, "tiled", dtype, 0, x, y, tiles, *plane, *rest, block=256, grid=min(tiles, MAX_BLOCKS))


@functools.cache
def _plain_source(axes: int) -> str:
    names = ", ".join(f"long long n{i}, long long m{i}, long long s{i}, long long x{i}" for i in range(axes))
    steps = " ".join(
        f"q = quotient(left, n{i}, m{i}, s{i}); from += (left - q * n{i}) * x{i}; left = q;"
        for i in reversed(range(1, axes))
    )
    places = f"long long left = i, q; from = 0; (void)q; {steps} from += left * x0;"
    return moving("plain", places, params=names, helpers=DIVIDE)


@functools.cache
def _tiled_source(others: int) -> str:
    """Return the kernel of blocks of 32 x 8 threads, which take one tile of 32 x 32 after the other."""
    names = "".join(f", long long n{i}, long long x{i}, long long y{i}" for i in range(others))
    steps = " ".join(f"from += left % n{i} * x{i}; to += left % n{i} * y{i}; left /= n{i};" for i in range(others))
    return f"""
extern "C" __global__ void tiled(const FROM* x, TO* y, long long tiles, long long na, long long nb, long long xb,
                                 long long ya{names}) {{
  __shared__ FROM tile[32][33];
  int column = threadIdx.x % 32, row = threadIdx.x / 32;
  long long tiles_a = (na + 31) / 32, tiles_b = (nb + 31) / 32;
  for (long long t = blockIdx.x; t < tiles; t += gridDim.x) {{
    long long a = t % tiles_a * 32, left = t / tiles_a, b = left % tiles_b * 32, from = 0, to = 0;
    left /= tiles_b;
    {steps}
    for (int r = row; r < 32; r += 8)
      if (a + column < na && b + r < nb) tile[r][column] = x[from + (b + r) * xb + a + column];
    __syncthreads();
    for (int r = row; r < 32; r += 8)
      if (b + column < nb && a + r < na) y[to + (a + r) * ya + b + column] = tile[column][r];
    __syncthreads();
  }}
}}
"""
