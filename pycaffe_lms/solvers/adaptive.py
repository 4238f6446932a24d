"""The other solver types: SGD's loop with another rule. Rates, decay, clipping and iter_size are those of SGD.

Below g is the gradient after all that, r the rate times lr_mult, u what is taken off the weights.
Source: BVLC/caffe, src/caffe/solvers (formulas).
"""

from __future__ import annotations

from .rules import RULES
from .sgd import SGDSolver


class NesterovSolver(SGDSolver):
    """h' = momentum h + r g; u = (1 + momentum) h' - momentum h."""

    rule = RULES["Nesterov"]


class AdaGradSolver(SGDSolver):
    """h = h + g^2; u = r g / (sqrt(h) + delta). Raises SolverError for a momentum."""

    rule = RULES["AdaGrad"]


class RMSPropSolver(SGDSolver):
    """h = rms_decay h + (1 - rms_decay) g^2; u = r g / (sqrt(h) + delta). Raises SolverError for a momentum, and for
    an rms_decay outside [0, 1)."""

    rule = RULES["RMSProp"]


class AdaDeltaSolver(SGDSolver):
    """h = momentum h + (1 - momentum) g^2; v = g sqrt((h2 + delta) / (h + delta));
    h2 = momentum h2 + (1 - momentum) v^2; u = r v. Raises SolverError for a momentum outside [0, 1)."""

    rule = RULES["AdaDelta"]


class AdamSolver(SGDSolver):
    """m = b1 m + (1 - b1) g; v = b2 v + (1 - b2) g^2; u = r sqrt(1 - b2^t) / (1 - b1^t) m / (sqrt(v) + delta), where
    b1 is momentum, b2 momentum2 and t the number of this update, from 1 on.

    Raises SolverError for a momentum or momentum2 outside [0, 1)."""

    rule = RULES["Adam"]
