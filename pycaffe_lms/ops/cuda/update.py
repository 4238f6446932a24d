"""Solver updates: one pass over a parameter, its gradient and its history."""

from __future__ import annotations

from .elementwise import elementwise, run

__all__ = ["sgd_update"]

# What is rounded where is written out, so that every kernel that includes this gives the same bits.
SGD_STEP = """
__device__ inline float fused(float a, float b, float c) { return __fmaf_rn(a, b, c); }
__device__ inline double fused(double a, double b, double c) { return __fma_rn(a, b, c); }
__device__ inline T sgd_step(T param, T diff, T history, T rate, T momentum, T decay, long long l1, T scale) {
  const T pull = l1 ? (T)((param > 0) - (param < 0)) : param;
  return fused(momentum, history, rate * fused(scale, diff, decay * pull));
}
"""

_SOURCE = elementwise(
    "sgd_update",
    """
      const T step = sgd_step(param, diff, history, (T)rate, (T)momentum, (T)decay, l1, (T)grad_scale);
      history = step;
      diff = step;
      param = param - step;
    """,
    updates="param, diff, history",
    params="double rate, double momentum, double decay, long long l1, double grad_scale",
    helpers=SGD_STEP,
)


def sgd_update(param, diff, history, rate, momentum, decay, l1, grad_scale):
    """g = grad_scale * diff + decay * (param, or its sign with l1); history = momentum * history + rate * g;
    diff = history; param -= history."""
    scalars = (float(rate), float(momentum), float(decay), int(l1), float(grad_scale))
    run(_SOURCE, "sgd_update", (param, diff, history), *scalars)
