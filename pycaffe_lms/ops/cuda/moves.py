"""Generate kernels that copy elements from one place to another, up to 16 bytes at a time, from the places.

A thread copies several units. A unit is one element or, where sizes are multiples of two or four and arrays start at
multiples of 16 bytes, two or four: the same index arithmetic then serves all of them. Units 256 apart belong to one
thread, so that neighbouring threads touch neighbouring addresses; all of a thread's loads come before its stores. One
of x and y may be of bfloat16 and the other of float32.
"""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

from ...arrays import AnyArray
from ...backend.bfloat16 import BFLOAT16
from ...backend.cuda import launch
from .elementwise import THREADS
from .packs import aligned

_UNITS = {1: 8, 2: 8, 4: 4}  # units per thread, by elements per unit


def moving(name: str, places: str, *, params: str = "", helpers: str = "", missing: str = "0") -> str:
    """Return the source for `move`: for every i < n, y[to] = x[from]; all places count units.

    `places` assigns `from` and `to`, both i at first. A negative `from` stands for the value `missing`; a negative `to`
    drops the unit. Parameters: x, y, n, then `params`.
    """
    passed = "".join(", " + part.split()[-1].lstrip("*") for part in params.split(",") if part.strip())
    declared = ", " + params if params else ""
    kernels = "".join(
        f"""
extern "C" __global__ void __launch_bounds__({THREADS}) {name}_{unit}(const FROM* x, TO* y, long long n{declared}) {{
  move_units<{unit}, {units}>((const Unit<FROM, {unit}>*)x, (Unit<TO, {unit}>*)y, n{passed});
}}
"""
        for unit, units in _UNITS.items()
    )
    return f"""{helpers}
template <typename E, int N> struct alignas(N * sizeof(E) < 16 ? N * sizeof(E) : 16) Unit {{ E v[N]; }};
template <int N> __device__ inline void set_to(Unit<FROM, N>& unit, FROM value) {{
  #pragma unroll
  for (int k = 0; k < N; ++k) unit.v[k] = value;
}}
template <int N, int UNITS>
__device__ inline void move_units(const Unit<FROM, N>* x, Unit<TO, N>* y, long long n{declared}) {{
  const long long first = (long long)blockIdx.x * ({THREADS} * UNITS) + threadIdx.x;
  Unit<FROM, N> values[UNITS];
  long long targets[UNITS];
  #pragma unroll
  for (int u = 0; u < UNITS; ++u) {{
    const long long i = first + {THREADS} * u;
    long long from = i, to = i;
    if (i < n) {{
      {places}
      if (to < 0) {{}}
      else if (from >= 0) values[u] = x[from];
      else set_to(values[u], (FROM)({missing}));
    }} else to = -1;
    targets[u] = to;
  }}
  #pragma unroll
  for (int u = 0; u < UNITS; ++u)
    if (targets[u] >= 0) {{
      Unit<TO, N> value;
      #pragma unroll
      for (int k = 0; k < N; ++k) value.v[k] = values[u].v[k];
      y[targets[u]] = value;
    }}
}}
{kernels}"""


def unit_of(x: AnyArray, y: AnyArray, *counts: int) -> int:
    """Return how many elements of x and y to move at a time: 4 or 2 where all `counts` are multiples of it, else 1."""
    if not aligned(x, y):
        return 1
    return next(unit for unit in (4, 2, 1) if not any(count % unit for count in counts))


def move(source: str, name: str, x: AnyArray, y: AnyArray, unit: int, n: int, *args: Any) -> None:
    """Queue a kernel of `moving` for n units of `unit` elements; `args` are its other parameters, in units."""
    if n:
        span = THREADS * _UNITS[unit]
        source, dtype = between(source, x.dtype, y.dtype)
        launch(source, f"{name}_{unit}", dtype, 0, x, y, n, *args, block=THREADS, grid=(n + span - 1) // span)


@functools.cache
def between(source: str, source_type: np.dtype[Any], target_type: np.dtype[Any]) -> tuple[str, np.dtype[Any]]:
    """Return (a source whose arrays are of types FROM and TO, the type to compile it with)."""
    if source_type == target_type:
        return f"#define FROM T\n#define TO T\n{source}", target_type
    types = ("T", "C") if source_type == BFLOAT16 else ("C", "T")
    return f"#define FROM {types[0]}\n#define TO {types[1]}\n{source}", BFLOAT16
