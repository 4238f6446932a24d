"""The solver's update of all parameters in one launch, by a table on the device (see `update_table.py`)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ...backend.cuda import launch
from ..update_rules import HISTORIES
from ..update_table import CHUNK, ROW, make_table, table_words
from .elementwise import QUADS
from .update import numbers_source, step_source

__all__ = ["solver_update_all", "solver_update_all_plan"]

THREADS = 256


def _source(rule: str) -> str:
    two = HISTORIES[rule] == 2

    def second(text: str) -> str:
        return text if two else ""

    return f"""{QUADS}{step_source(rule)}
extern "C" __global__ void __launch_bounds__({THREADS}) {rule}_update_all(const long long* table,
                                                                          const double* numbers, long long rows) {{
  const long long place = table[rows * {ROW} + blockIdx.x];
  const long long* row = table + (place >> 32) * {ROW};
  T *param = (T*)row[0], *diff = (T*)row[1], *history = (T*)row[2];
  {second("T* history2 = (T*)row[7];")}
  const long long size = row[3], start = (place & 0xffffffffLL) * {CHUNK};
  const long long end = start + {CHUNK} < size ? start + {CHUNK} : size;
  const Numbers n = {numbers_source("numbers", "__longlong_as_double(row[4])", "__longlong_as_double(row[5])")};
  const bool has_gradient = row[6] != 0;
  const bool aligned = ((row[0] | row[1] | row[2] {second("| row[7]")}) & 15) == 0;
  for (long long first = start + 4 * threadIdx.x; first < end; first += 4 * {THREADS}) {{
    const bool whole = aligned && first + 4 <= size;
    Quad<T> w = quad_at(param, first, whole, size), d = quad_at(diff, first, whole, size);
    Quad<T> h = quad_at(history, first, whole, size){second(", h2 = quad_at(history2, first, whole, size)")};
    #pragma unroll
    for (int lane = 0; lane < 4; ++lane) {{
      {second("T& second = h2.v[lane];") or "T second = 0;"}
      const T step = solver_step(n, w.v[lane], has_gradient ? d.v[lane] : (T)0, h.v[lane], second);
      d.v[lane] = step;
      w.v[lane] = w.v[lane] - step;
    }}
    put_quad(param, first, whole, size, w);
    put_quad(diff, first, whole, size, d);
    put_quad(history, first, whole, size, h);
    {second("put_quad(history2, first, whole, size, h2);")}
  }}
}}
"""


SOURCES = {rule: _source(rule) for rule in HISTORIES}


@dataclass(frozen=True)
class UpdatePlan:
    """`table` (int64) goes to where the kernel reads it."""

    table: np.ndarray
    dtype: np.dtype
    rows: int
    blocks: int


def solver_update_all_plan(params, diffs, histories, lr_mults, decay_mults, has_gradient):
    """A plan for these arrays, as long as they stay where they are. histories: one list, or two, of an array for each
    parameter. has_gradient: False where the gradient is zero, whatever the array holds."""
    addresses = [[a.data.ptr for a in arrays] for arrays in (params, diffs, *histories)]
    sizes = [p.size for p in params]
    table = make_table(addresses, sizes, lr_mults, decay_mults, has_gradient)
    dtype = params[0].dtype if params else np.dtype(np.float32)
    return UpdatePlan(table, dtype, len(sizes), table_words(sizes) - ROW * len(sizes))


def solver_update_all(rule, plan, table, numbers):
    """`solver_update` of each parameter. `numbers` (float64, an `UpdateNumbers`) and `table` (the plan's) are arrays of
    the device."""
    name = f"{rule}_update_all"
    launch(SOURCES[rule], name, plan.dtype, 0, table, numbers, plan.rows, block=THREADS, grid=plan.blocks)
