"""Update parameters: one pass over a parameter, its gradient and its histories, for one parameter or for many.

See `update_rules.py` for the formulas, `update_table.py` for the table of many.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...arrays import AnyArray, HostArray
from ...backend.cuda import launch
from ..update_rules import DECOUPLED, HISTORIES, UpdateNumbers
from ..update_table import CHUNK, ROW, make_table, table_words
from .elementwise import QUADS, elementwise, run
from .rounded import ROUNDED

__all__ = ["solver_update", "solver_update_all", "solver_update_all_plan"]

# Every rounding is written out, so that all kernels that include this give the same bits: a compiler is free to join a
# plain product with the sum around it.
_ARITHMETIC = (
    ROUNDED
    + """
__device__ inline float fused(float a, float b, float c) { return __fmaf_rn(a, b, c); }
__device__ inline double fused(double a, double b, double c) { return __fma_rn(a, b, c); }
struct Numbers { T rate, decay, scale, keep, less, keep2, less2, delta, pull; bool l1; };
__device__ inline Numbers numbers_of(double rate, double decay, double scale, double l1, double keep, double keep2,
                                     double delta, double pull) {
  return {(T)rate,  (T)decay,         (T)scale, (T)keep, (T)(1.0 - keep),
          (T)keep2, (T)(1.0 - keep2), (T)delta, (T)pull, l1 != 0};
}
__device__ inline T pulled(const Numbers& n, T w) {
  const T by = n.l1 ? (T)((w > 0) - (w < 0)) : w;
  return n.decay == 0 ? (T)0 : times(n.decay, by);
}
__device__ inline T gradient(const Numbers& n, T w, T diff) {
  return fused(n.scale, diff, pulled(n, w));
}
"""
)

# rule -> statements that set the histories h (and h2) and return the update
_RULES = {
    "sgd": "return h = fused(n.keep, h, times(n.rate, g));",
    "nesterov": """
      const T old = h;
      h = fused(n.keep, old, times(n.rate, g));
      return fused(n.keep, h - old, h);""",
    "adagrad": """
      h = fused(g, g, h);
      return times(n.rate, g / (sqrt(h) + n.delta));""",
    "rmsprop": """
      h = fused(n.keep, h, times(n.less, times(g, g)));
      return times(n.rate, g / (sqrt(h) + n.delta));""",
    "adadelta": """
      h = fused(n.keep, h, times(n.less, times(g, g)));
      const T v = times(g, sqrt((h2 + n.delta) / (h + n.delta)));
      h2 = fused(n.keep, h2, times(n.less, times(v, v)));
      return times(n.rate, v);""",
    "adam": """
      h = fused(n.keep, h, times(n.less, g));
      h2 = fused(n.keep2, h2, times(n.less2, times(g, g)));
      return times(n.rate, h / (sqrt(h2) + n.delta));""",
    "adamw": """
      h = fused(n.keep, h, times(n.less, g));
      h2 = fused(n.keep2, h2, times(n.less2, times(g, g)));
      return fused(n.pull, pulled(n, w), times(n.rate, h / (sqrt(h2) + n.delta)));""",
    "lion": """
      const T c = fused(n.keep, h, times(n.less, g));
      h = fused(n.keep2, h, times(n.less2, g));
      return fused(n.pull, pulled(n, w), c > 0 ? n.rate : c < 0 ? -n.rate : c);""",
}


def step_source(rule: str) -> str:
    """Return CUDA C++ of `solver_step(n, w, diff, h, h2)`, which sets the histories and returns the update.

    Only rules of two histories use h2.
    """
    return f"""{_ARITHMETIC}
__device__ inline T solver_step(const Numbers& n, T w, T diff, T& h, T& h2) {{
  const T g = {"times(n.scale, diff)" if rule in DECOUPLED else "gradient(n, w, diff)"};
  {_RULES[rule]}
}}
"""


def numbers_source(numbers: str, lr_mult: str, decay_mult: str) -> str:
    """Return the CUDA C++ expression of what the rules use, from an `UpdateNumbers` as an array of doubles."""
    names = UpdateNumbers._fields
    at = {name: f"{numbers}[{names.index(name)}]" for name in names}
    return (
        f"numbers_of({at['rate']} * {lr_mult}, {at['decay']} * {decay_mult}, {at['scale']}, {at['l1']}, {at['keep']}, "
        f"{at['keep2']}, {at['delta']}, {at['pull']} * {lr_mult})"
    )


def _source(rule: str) -> str:
    two = HISTORIES[rule] == 2
    return elementwise(
        f"{rule}_update",
        f"""
          {"" if two else "T h2 = 0;"}
          const T step = solver_step(numbers, param, diff, h, h2);
          diff = step;
          param = param - step;
        """,
        updates="param, diff, h" + (", h2" if two else ""),
        params="const double* given, double lr_mult, double decay_mult",
        setup=f"const Numbers numbers = {numbers_source('given', 'lr_mult', 'decay_mult')};",
        helpers=step_source(rule),
    )


SOURCES = {rule: _source(rule) for rule in HISTORIES}


def solver_update(
    rule: str,
    param: AnyArray,
    diff: AnyArray,
    histories: Sequence[AnyArray],
    numbers: AnyArray,
    lr_mult: float,
    decay_mult: float,
) -> None:
    """Update a parameter by `rule`, a name of `update_rules.HISTORIES`; diff becomes the step that is subtracted."""
    run(SOURCES[rule], f"{rule}_update", (param, diff, *histories), numbers, float(lr_mult), float(decay_mult))


THREADS = 256


def _update_all_source(rule: str) -> str:
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


ALL_SOURCES = {rule: _update_all_source(rule) for rule in HISTORIES}


@dataclass(frozen=True)
class CudaUpdatePlan:
    """Hold the table (int64) that the kernel reads, and its sizes."""

    table: HostArray
    dtype: np.dtype[Any]
    rows: int
    blocks: int


def solver_update_all_plan(
    params: Sequence[AnyArray],
    diffs: Sequence[AnyArray],
    histories: Sequence[Sequence[AnyArray]],
    lr_mults: Sequence[float],
    decay_mults: Sequence[float],
    has_gradient: Sequence[bool],
) -> CudaUpdatePlan:
    """Plan updates of these arrays, valid while they stay where they are.

    Args:
        histories: one list, or two, of one array per parameter.
        has_gradient: per parameter; False where the gradient is zero, whatever the array holds.
    """
    addresses = [[a.data.ptr for a in arrays] for arrays in (params, diffs, *histories)]
    sizes = [p.size for p in params]
    table = make_table(addresses, sizes, lr_mults, decay_mults, has_gradient)
    dtype = params[0].dtype if params else np.dtype(np.float32)
    return CudaUpdatePlan(table, dtype, len(sizes), table_words(sizes) - ROW * len(sizes))


def solver_update_all(rule: str, plan: CudaUpdatePlan, table: AnyArray, numbers: AnyArray) -> None:
    """Update each parameter of the plan as `solver_update` does."""
    name = f"{rule}_update_all"
    launch(ALL_SOURCES[rule], name, plan.dtype, 0, table, numbers, plan.rows, block=THREADS, grid=plan.blocks)
