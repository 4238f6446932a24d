"""List the rules by which solvers update parameters: how many histories each keeps, and the numbers it works with.

With g = scale * diff + decay * (w, or its sign with l1), r = rate and h, h2 the histories, the update u is

    sgd        h = keep h + r g;               u = h
    nesterov   h' = keep h + r g;              u = (1 + keep) h' - keep h
    adagrad    h = h + g^2;                    u = r g / (sqrt(h) + delta)
    rmsprop    h = keep h + (1 - keep) g^2;    u = r g / (sqrt(h) + delta)
    adadelta   h = keep h + (1 - keep) g^2;    v = g sqrt((h2 + delta) / (h + delta));
               h2 = keep h2 + (1 - keep) v^2;  u = r v
    adam       h = keep h + (1 - keep) g;      h2 = keep2 h2 + (1 - keep2) g^2;  u = r h / (sqrt(h2) + delta)
    adamw      as adam, but g has no decay;    u = r h / (sqrt(h2) + delta) + pull decay * (w, or its sign with l1)
    lion       c = keep h + (1 - keep) g, and g has no decay;  h = keep2 h + (1 - keep2) g;
               u = r sign(c) + pull decay * (w, or its sign with l1)

and then diff = u, w = w - u.
"""

from __future__ import annotations

from typing import NamedTuple

HISTORIES = {"sgd": 1, "nesterov": 1, "adagrad": 1, "rmsprop": 1, "adadelta": 2, "adam": 2, "adamw": 2, "lion": 1}
DECOUPLED = ("adamw", "lion")  # decay is no part of the gradient


class UpdateNumbers(NamedTuple):
    """Hold the numbers of a rule that may change between iterations, for lr_mult and decay_mult 1.

    All are real, so that a device can hold them as one array of float64.
    """

    rate: float
    scale: float = 1.0
    decay: float = 0.0
    l1: float = 0.0  # not 0: decay by the sign
    keep: float = 0.0
    keep2: float = 0.0
    delta: float = 0.0
    pull: float = 0.0  # of `DECOUPLED`: the rate of the decay
