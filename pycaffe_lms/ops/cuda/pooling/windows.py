"""Launch kernels of poolings over any number of axes, and write the CUDA C++ that they begin with."""

from __future__ import annotations

import functools
from typing import Any

from ....arrays import AnyArray
from ....backend import cuda
from ...geometry import C_TYPES, PoolGeometry, place_dtype

_NAMES = ("in", "out", "kernel", "stride", "pad")

_WALK = """
// calls visit(at) for every place first <= at < last, row by row
template <typename F> __device__ void each(const int* first, const int* last, F visit) {
  int at[AXES];
  #pragma unroll
  for (int a = 0; a < AXES; a++) {
    if (first[a] >= last[a]) return;
    at[a] = first[a];
  }
  for (bool more = true; more;) {
    visit(at);
    more = false;
    #pragma unroll
    for (int a = AXES - 1; a >= 0; a--)
      if (!more) {
        more = ++at[a] < last[a];
        if (!more) at[a] = first[a];
      }
  }
}

// the row-major index of a place
__device__ inline int flat(const int* at, const int* size) {
  int index = 0;
  #pragma unroll
  for (int a = 0; a < AXES; a++) index = index * size[a] + at[a];
  return index;
}

__device__ inline long long volume(const int* size) {
  long long n = 1;
  #pragma unroll
  for (int a = 0; a < AXES; a++) n *= size[a];
  return n;
}

// the place of element i of planes; returns its plane
__device__ inline long long locate(long long i, const int* size, int* at) {
  if (i >> 31) {
    #pragma unroll
    for (int a = AXES - 1; a >= 0; a--) {
      at[a] = (int)(i % size[a]);
      i /= size[a];
    }
    return i;
  }
  unsigned rest = (unsigned)i;  // 32 bits divide several times as fast
  #pragma unroll
  for (int a = AXES - 1; a >= 0; a--) {
    at[a] = (int)(rest % (unsigned)size[a]);
    rest /= (unsigned)size[a];
  }
  return rest;
}

// the row-major place, in the window of output `self`, of the element with this index in its plane
__device__ inline int place_of(int index, const int* self, const int* in, const int* kernel, const int* stride,
                               const int* pad) {
  int place = 0, size = 1;
  #pragma unroll
  for (int a = AXES - 1; a >= 0; a--) {
    place += (index % in[a] - self[a] * stride[a] + pad[a]) * size;
    index /= in[a];
    size *= kernel[a];
  }
  return place;
}

// the real pixels of output i's window: first <= at < last; returns the plane
__device__ inline long long window(long long i, const int* in, const int* out, const int* kernel, const int* stride,
                                   const int* pad, int* first, int* last) {
  int at[AXES];
  const long long plane = locate(i, out, at);
  #pragma unroll
  for (int a = 0; a < AXES; a++) {
    const int start = at[a] * stride[a] - pad[a], end = start + kernel[a];
    first[a] = start > 0 ? start : 0;
    last[a] = end < in[a] ? end : in[a];
  }
  return plane;
}

// the outputs whose windows hold pixel i: first <= at < last; returns the plane
__device__ inline long long cover(long long i, const int* in, const int* out, const int* kernel, const int* stride,
                                  const int* pad, int* first, int* last) {
  int at[AXES];
  const long long plane = locate(i, in, at);
  #pragma unroll
  for (int a = 0; a < AXES; a++) {
    const int place = at[a] + pad[a], end = place / stride[a] + 1;
    first[a] = place < kernel[a] ? 0 : (place - kernel[a]) / stride[a] + 1;
    last[a] = end < out[a] ? end : out[a];
  }
  return plane;
}
"""


def launch(
    g: PoolGeometry,
    kernels: str,
    name: str,
    result: AnyArray,
    *args: Any,
    mask: AnyArray | None = None,
    helpers: str = "",
) -> None:
    """Queue kernel `name` of `kernels`, one thread per element of `result`; `args` come before the sizes.

    The source is the type M of a mask (by default of one that holds the places of a window), INSIDE, `helpers`, the
    header and `kernels`.
    """
    places = C_TYPES[place_dtype(g) if mask is None else mask.dtype]
    numbers = (*g.in_spatial, *g.out_spatial, *g.kernel, *g.stride, *g.pad)
    source = _source(len(g.kernel), places, g.inside, helpers, kernels)
    cuda.launch(source, name, result.dtype, result.size, *args, result.size, *numbers)


@functools.cache
def _source(axes: int, places: str, inside: bool, helpers: str, kernels: str) -> str:
    return f"typedef {places} M;\n#define INSIDE {int(inside)}\n{helpers}{_header(axes)}{kernels}"


def _header(axes: int) -> str:
    """Define AXES, the parameters SHAPE of a kernel, NUMBERS that puts them into arrays, and functions on those."""
    params = ", ".join(f"long long {name}_{a}" for name in _NAMES for a in range(axes))
    arrays = " ".join(
        f"const int {name}[AXES] = {{{', '.join(f'(int){name}_{a}' for a in range(axes))}}};" for name in _NAMES
    )
    return f"#define AXES {axes}\n#define SHAPE {params}\n#define NUMBERS {arrays}\n{_WALK}"
