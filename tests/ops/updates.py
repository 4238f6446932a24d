"""Solver updates in plain NumPy, float64: the rules as the literature has them, one statement after the other."""

from __future__ import annotations

import numpy as np

HISTORIES = {"sgd": 1, "nesterov": 1, "adagrad": 1, "rmsprop": 1, "adadelta": 2, "adam": 2, "adamw": 2, "lion": 1}
DECOUPLED = ("adamw", "lion")


def step(rule, w, g, h, *, rate, keep=0.0, keep2=0.0, delta=0.0, pull=0.0):
    """(new w, update, new histories) from the gradient g (decay and scale done) and the list of histories h."""
    if rule == "sgd":
        new = [keep * h[0] + rate * g]
        u = new[0]
    elif rule == "nesterov":
        new = [keep * h[0] + rate * g]
        u = (1 + keep) * new[0] - keep * h[0]
    elif rule == "adagrad":
        new = [h[0] + np.square(g)]
        u = rate * g / (np.sqrt(new[0]) + delta)
    elif rule == "rmsprop":
        new = [keep * h[0] + (1 - keep) * np.square(g)]
        u = rate * g / (np.sqrt(new[0]) + delta)
    elif rule == "adadelta":
        mean = keep * h[0] + (1 - keep) * np.square(g)
        v = g * np.sqrt((h[1] + delta) / (mean + delta))
        new = [mean, keep * h[1] + (1 - keep) * np.square(v)]
        u = rate * v
    elif rule == "lion":
        new = [keep2 * h[0] + (1 - keep2) * g]
        u = rate * np.sign(keep * h[0] + (1 - keep) * g)
    else:
        new = [keep * h[0] + (1 - keep) * g, keep2 * h[1] + (1 - keep2) * np.square(g)]
        u = rate * new[0] / (np.sqrt(new[1]) + delta)
    u = u + pull
    return w - u, u, new


def pull(rule, w, *, rate, decay, l1):
    """The part of an update that is decay alone."""
    return rate * decay * (np.sign(w) if l1 else w) if rule in DECOUPLED else 0.0


def gradient(w, diff, *, scale, decay, l1, rule=""):
    """What the rules call g."""
    return scale * diff + (rule not in DECOUPLED) * decay * (np.sign(w) if l1 else w)


def start(rule, shape, dtype, seed=1):
    """param, diff and histories of that shape; histories of squares are not negative."""
    rng = np.random.default_rng(seed)
    arrays = [np.asarray(rng.normal(size=shape), dtype) for _ in range(2 + HISTORIES[rule])]
    for k, a in enumerate(arrays[2:]):
        if rule not in ("sgd", "nesterov", "lion") and not (rule in ("adam", "adamw") and k == 0):
            np.abs(a, out=a)
    return arrays
