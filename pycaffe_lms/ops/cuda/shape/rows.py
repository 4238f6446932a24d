"""Copy or add columns of one array to columns of another, for slabs of blobs and their halos."""

from __future__ import annotations

from ....arrays import AnyArray
from ....backend.cuda import launch
from ..elementwise import THREADS
from ..moves import move, moving, unit_of
from ..source import DIVIDE, divider

__all__ = ["add_columns", "copy_columns"]

_PARAMS = (
    "long long width, long long magic, long long shift, "
    "long long x_total, long long x_start, long long y_total, long long y_start"
)
_PLACES = """
      const long long row = quotient(i, width, magic, shift), column = i - row * width;
      from = row * x_total + x_start + column;
      to = row * y_total + y_start + column;
"""
_COPY = moving("copy_columns", _PLACES, params=_PARAMS, helpers=DIVIDE)
_ADD = f"""{DIVIDE}
extern "C" __global__ void __launch_bounds__({THREADS}) add_columns(const T* x, T* y, long long n, {_PARAMS}) {{
  const long long i = (long long)blockIdx.x * {THREADS} + threadIdx.x;
  if (i < n) {{
    long long from, to;
    {_PLACES}
    const C a = y[to], b = x[from];
    y[to] = a + b;
  }}
}}
"""


def copy_columns(
    x: AnyArray, y: AnyArray, outer: int, width: int, x_total: int, x_start: int, y_total: int, y_start: int
) -> None:
    """Copy columns [x_start, x_start + width) of x (outer, x_total) to those from y_start on of y (outer, y_total)."""
    unit = unit_of(x, y, width, x_total, x_start, y_total, y_start)
    n = outer * width // unit
    places = (number // unit for number in (x_total, x_start, y_total, y_start))
    move(_COPY, "copy_columns", x, y, unit, n, *divider(width // unit, n), *places)


def add_columns(
    x: AnyArray, y: AnyArray, outer: int, width: int, x_total: int, x_start: int, y_total: int, y_start: int
) -> None:
    """Add columns [x_start, x_start + width) of x (outer, x_total) to those from y_start on of y (outer, y_total)."""
    n = outer * width
    if n:
        places = *divider(width, n), x_total, x_start, y_total, y_start
        launch(_ADD, "add_columns", y.dtype, 0, x, y, n, *places, block=THREADS, grid=(n + THREADS - 1) // THREADS)
