"""The solver's update of all parameters in one launch, by a table on the device (see `update_table.py`)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ...backend.cuda import launch
from ..update_table import CHUNK, ROW, make_table, table_words
from .elementwise import QUADS
from .update import SGD_STEP

__all__ = ["sgd_update_all", "sgd_update_all_plan"]

THREADS = 256

SOURCE = f"""{QUADS}{SGD_STEP}
extern "C" __global__ void __launch_bounds__({THREADS}) sgd_update_all(const long long* table, const double* numbers,
                                                                       double momentum, long long l1, long long rows) {{
  const long long place = table[rows * {ROW} + blockIdx.x];
  const long long* row = table + (place >> 32) * {ROW};
  T *param = (T*)row[0], *diff = (T*)row[1], *history = (T*)row[2];
  const long long n = row[3], start = (place & 0xffffffffLL) * {CHUNK};
  const long long end = start + {CHUNK} < n ? start + {CHUNK} : n;
  const T rate = (T)(numbers[0] * __longlong_as_double(row[4]));
  const T decay = (T)__longlong_as_double(row[5]), scale = (T)numbers[1];
  const bool has_gradient = row[6] != 0;
  const bool aligned = ((row[0] | row[1] | row[2]) & 15) == 0;
  for (long long first = start + 4 * threadIdx.x; first < end; first += 4 * {THREADS}) {{
    const bool whole = aligned && first + 4 <= n;
    Quad<T> w = quad_at(param, first, whole, n), d = quad_at(diff, first, whole, n);
    Quad<T> h = quad_at(history, first, whole, n);
    #pragma unroll
    for (int lane = 0; lane < 4; ++lane) {{
      const T g = has_gradient ? d.v[lane] : (T)0;
      const T step = sgd_step(w.v[lane], g, h.v[lane], rate, (T)momentum, decay, l1, scale);
      h.v[lane] = step;
      d.v[lane] = step;
      w.v[lane] = w.v[lane] - step;
    }}
    put_quad(param, first, whole, n, w);
    put_quad(diff, first, whole, n, d);
    put_quad(history, first, whole, n, h);
  }}
}}
"""


@dataclass(frozen=True)
class UpdatePlan:
    """`table` (int64) goes to where the kernel reads it."""

    table: np.ndarray
    dtype: np.dtype
    rows: int
    blocks: int


def sgd_update_all_plan(params, diffs, histories, lr_mults, decays, has_gradient):
    """A plan for these arrays, as long as they stay where they are. has_gradient: False where the gradient is zero,
    whatever the array holds."""
    addresses = [[a.data.ptr for a in arrays] for arrays in (params, diffs, histories)]
    sizes = [p.size for p in params]
    table = make_table(addresses, sizes, lr_mults, decays, has_gradient)
    dtype = params[0].dtype if params else np.dtype(np.float32)
    return UpdatePlan(table, dtype, len(sizes), table_words(sizes) - ROW * len(sizes))


def sgd_update_all(plan, table, numbers, momentum, l1):
    """`sgd_update` of each parameter, with the rate numbers[0] * its lr_mult, its decay and the scale numbers[1].
    `numbers` (float64) and `table` (the plan's) are arrays of the device."""
    args = (table, numbers, float(momentum), int(l1), plan.rows)
    launch(SOURCE, "sgd_update_all", plan.dtype, 0, *args, block=THREADS, grid=plan.blocks)
