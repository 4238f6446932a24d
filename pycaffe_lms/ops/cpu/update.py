"""Solver updates: one pass over a parameter, its gradient and its histories (see `update_rules.py`)."""

from __future__ import annotations

import numpy as np

from ..update_rules import UpdateNumbers
from .compiled import kernel
from .threads import ELEMENTS, parallel

__all__ = ["solver_update"]


def solver_update(rule, param, diff, histories, numbers, lr_mult, decay_mult):
    """One update by `rule`, a name of `update_rules.HISTORIES`: diff becomes what is taken off param.
    numbers: an `UpdateNumbers` as an array of the device, float64; its rate and decay are multiplied by lr_mult and
    decay_mult."""
    n = UpdateNumbers(*map(float, numbers))
    given = (n.rate * lr_mult, n.decay * decay_mult, n.scale, n.keep, 1 - n.keep, n.keep2, 1 - n.keep2, n.delta)
    scalars = tuple(map(param.dtype.type, given))
    arrays = [a.reshape(-1) for a in (param, diff, *histories)]
    parallel(_KERNELS[rule], param.size, *arrays, bool(n.l1), scalars, grain=ELEMENTS)


@kernel
def _gradient(w, g, l1, decay, scale):
    g = scale * g
    if decay != 0:
        g += decay * (np.sign(w) if l1 else w)
    return g


@kernel
def _sgd(first, last, w, d, h, l1, scalars):
    rate, decay, scale, keep, _, _, _, _ = scalars
    for i in range(first, last):
        g = _gradient(w[i], d[i], l1, decay, scale)
        h[i] = keep * h[i] + rate * g
        d[i] = h[i]
        w[i] -= d[i]


@kernel
def _nesterov(first, last, w, d, h, l1, scalars):
    rate, decay, scale, keep, _, _, _, _ = scalars
    for i in range(first, last):
        g = _gradient(w[i], d[i], l1, decay, scale)
        old = h[i]
        h[i] = keep * old + rate * g
        d[i] = h[i] + keep * (h[i] - old)
        w[i] -= d[i]


@kernel
def _adagrad(first, last, w, d, h, l1, scalars):
    rate, decay, scale, _, _, _, _, delta = scalars
    for i in range(first, last):
        g = _gradient(w[i], d[i], l1, decay, scale)
        h[i] += g * g
        d[i] = rate * (g / (np.sqrt(h[i]) + delta))
        w[i] -= d[i]


@kernel
def _rmsprop(first, last, w, d, h, l1, scalars):
    rate, decay, scale, keep, less, _, _, delta = scalars
    for i in range(first, last):
        g = _gradient(w[i], d[i], l1, decay, scale)
        h[i] = keep * h[i] + less * (g * g)
        d[i] = rate * (g / (np.sqrt(h[i]) + delta))
        w[i] -= d[i]


@kernel
def _adadelta(first, last, w, d, h, h2, l1, scalars):
    rate, decay, scale, keep, less, _, _, delta = scalars
    for i in range(first, last):
        g = _gradient(w[i], d[i], l1, decay, scale)
        h[i] = keep * h[i] + less * (g * g)
        v = g * np.sqrt((h2[i] + delta) / (h[i] + delta))
        h2[i] = keep * h2[i] + less * (v * v)
        d[i] = rate * v
        w[i] -= d[i]


@kernel
def _adam(first, last, w, d, h, h2, l1, scalars):
    rate, decay, scale, keep, less, keep2, less2, delta = scalars
    for i in range(first, last):
        g = _gradient(w[i], d[i], l1, decay, scale)
        h[i] = keep * h[i] + less * g
        h2[i] = keep2 * h2[i] + less2 * (g * g)
        d[i] = rate * (h[i] / (np.sqrt(h2[i]) + delta))
        w[i] -= d[i]


_KERNELS = {
    "sgd": _sgd,
    "nesterov": _nesterov,
    "adagrad": _adagrad,
    "rmsprop": _rmsprop,
    "adadelta": _adadelta,
    "adam": _adam,
}
