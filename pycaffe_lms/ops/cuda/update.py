"""Solver updates: one pass over a parameter, its gradient and its history."""

from __future__ import annotations

from ...backend.cuda import launch

__all__ = ["sgd_update"]

_SOURCE = """
extern "C" __global__ void sgd_update(T* param, T* diff, T* history, double rate, double momentum, double decay,
                                      long long l1, double grad_scale, long long n) {
  LOOP(i, n) {
    T p = param[i], pull = l1 ? (T)((p > 0) - (p < 0)) : p;
    T step = (T)momentum * history[i] + (T)rate * ((T)grad_scale * diff[i] + (T)decay * pull);
    history[i] = step;
    diff[i] = step;
    param[i] = p - step;
  }
}
"""


def sgd_update(param, diff, history, rate, momentum, decay, l1, grad_scale):
    """g = grad_scale * diff + decay * (param, or its sign with l1); history = momentum * history + rate * g;
    diff = history; param -= history."""
    scalars = (float(rate), float(momentum), float(decay), int(l1), float(grad_scale))
    launch(_SOURCE, "sgd_update", param.dtype, param.size, param, diff, history, *scalars, param.size)
