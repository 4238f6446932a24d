"""Solver updates: one pass over a parameter, its gradient and its histories (see `update_rules.py`)."""

from __future__ import annotations

from ..update_rules import HISTORIES, UpdateNumbers
from .elementwise import elementwise, run

__all__ = ["solver_update"]

# What is rounded where is written out, so that every kernel that includes this gives the same bits: a compiler may join
# a plain product with a sum around it, or may not.
_ARITHMETIC = """
__device__ inline float fused(float a, float b, float c) { return __fmaf_rn(a, b, c); }
__device__ inline double fused(double a, double b, double c) { return __fma_rn(a, b, c); }
__device__ inline float times(float a, float b) { return __fmul_rn(a, b); }
__device__ inline double times(double a, double b) { return __dmul_rn(a, b); }
struct Numbers { T rate, decay, scale, keep, less, keep2, less2, delta; bool l1; };
__device__ inline Numbers numbers_of(double rate, double decay, double scale, double l1, double keep, double keep2,
                                     double delta) {
  return {(T)rate, (T)decay, (T)scale, (T)keep, (T)(1.0 - keep), (T)keep2, (T)(1.0 - keep2), (T)delta, l1 != 0};
}
__device__ inline T gradient(const Numbers& n, T w, T diff) {
  const T pull = n.l1 ? (T)((w > 0) - (w < 0)) : w;
  return fused(n.scale, diff, n.decay == 0 ? (T)0 : times(n.decay, pull));
}
"""

# rule -> what sets the histories h (and h2) and returns the update
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
}


def step_source(rule: str) -> str:
    """CUDA C++ of `solver_step(n, w, diff, h, h2)`, which sets the histories and returns the update; h2 is used by
    rules of two histories only."""
    return f"""{_ARITHMETIC}
__device__ inline T solver_step(const Numbers& n, T w, T diff, T& h, T& h2) {{
  const T g = gradient(n, w, diff);
  {_RULES[rule]}
}}
"""


def numbers_source(numbers: str, lr_mult: str, decay_mult: str) -> str:
    """CUDA C++ of what the rules use: an expression, from an `UpdateNumbers` as an array of doubles."""
    names = UpdateNumbers._fields
    at = {name: f"{numbers}[{names.index(name)}]" for name in names}
    return (
        f"numbers_of({at['rate']} * {lr_mult}, {at['decay']} * {decay_mult}, {at['scale']}, {at['l1']}, {at['keep']}, "
        f"{at['keep2']}, {at['delta']})"
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


def solver_update(rule, param, diff, histories, numbers, lr_mult, decay_mult):
    """One update by `rule`, a name of `update_rules.HISTORIES`: diff becomes what is taken off param.
    numbers: an `UpdateNumbers` as an array of the device, float64; its rate and decay are multiplied by lr_mult and
    decay_mult."""
    run(SOURCES[rule], f"{rule}_update", (param, diff, *histories), numbers, float(lr_mult), float(decay_mult))
