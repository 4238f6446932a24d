"""Solver updates: one pass over a parameter, its gradient and its history."""

from __future__ import annotations

from .elementwise import elementwise, run

__all__ = ["sgd_update"]

_SOURCE = elementwise(
    "sgd_update",
    """
      const T pull = l1 ? (T)((param > 0) - (param < 0)) : param;
      const T step = (T)momentum * history + (T)rate * ((T)grad_scale * diff + (T)decay * pull);
      history = step;
      diff = step;
      param = param - step;
    """,
    updates="param, diff, history",
    params="double rate, double momentum, double decay, long long l1, double grad_scale",
)


def sgd_update(param, diff, history, rate, momentum, decay, l1, grad_scale):
    """g = grad_scale * diff + decay * (param, or its sign with l1); history = momentum * history + rate * g;
    diff = history; param -= history."""
    scalars = (float(rate), float(momentum), float(decay), int(l1), float(grad_scale))
    run(_SOURCE, "sgd_update", (param, diff, history), *scalars)
