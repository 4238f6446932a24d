"""Solver updates: one pass over a parameter, its gradient and its history."""

from __future__ import annotations

import numpy as np

__all__ = ["sgd_update"]

_CHUNK = 1 << 16


def sgd_update(param, diff, history, rate, momentum, decay, l1, grad_scale):
    """g = grad_scale * diff + decay * (param, or its sign with l1); history = momentum * history + rate * g;
    diff = history; param -= history."""
    param, diff, history = param.reshape(-1), diff.reshape(-1), history.reshape(-1)
    for start in range(0, param.size, _CHUNK):
        p, d, h = (a[start : start + _CHUNK] for a in (param, diff, history))
        if grad_scale != 1:
            d *= grad_scale
        if decay != 0:
            d += decay * (np.sign(p) if l1 else p)
        d *= rate
        h *= momentum
        h += d
        np.copyto(d, h)
        p -= h
