"""Names the solver types: the loop of `base.py` with the rules of `rules.py`.

Below g is the gradient, clipped and divided by iter_size, plus the decay: weight_decay * decay_mult times W (L2) or
sign(W) (L1). r is the rate times lr_mult, h and h2 are histories, u is subtracted from the weights W. Parameters with
lr_mult 0 do not change. Where their gradients are computed all the same, they count in the norm by which gradients are
clipped: under force_backward, in RNN and LSTM, and where a layer shares the parameter whose own lr_mult is not 0.
Source: BVLC/caffe, src/caffe/solvers (formulas).
"""

from __future__ import annotations

from .base import Solver
from .rules import RULES


class SGDSolver(Solver):
    """Train by stochastic gradient descent with momentum: h = momentum h + r g; u = h."""

    rule = RULES["SGD"]


class NesterovSolver(SGDSolver):
    """Train by h' = momentum h + r g; u = (1 + momentum) h' - momentum h."""

    rule = RULES["Nesterov"]


class AdaGradSolver(SGDSolver):
    """Train by h = h + g^2; u = r g / (sqrt(h) + delta). Raises SolverError for a momentum."""

    rule = RULES["AdaGrad"]


class RMSPropSolver(SGDSolver):
    """Train by h = rms_decay h + (1 - rms_decay) g^2; u = r g / (sqrt(h) + delta).

    Raises SolverError for a momentum, and for an rms_decay outside [0, 1)."""

    rule = RULES["RMSProp"]


class AdaDeltaSolver(SGDSolver):
    """Train by h = momentum h + (1 - momentum) g^2; v = g sqrt((h2 + delta) / (h + delta));
    h2 = momentum h2 + (1 - momentum) v^2; u = r v.

    Raises SolverError for a momentum outside [0, 1)."""

    rule = RULES["AdaDelta"]


class AdamSolver(SGDSolver):
    """Train by h = b1 h + (1 - b1) g; h2 = b2 h2 + (1 - b2) g^2;
    u = r sqrt(1 - b2^t) / (1 - b1^t) h / (sqrt(h2) + delta), where b1 is momentum, b2 momentum2 and t the number of
    this update, from 1 on.

    Raises SolverError for a momentum or momentum2 outside [0, 1)."""

    rule = RULES["Adam"]


class AdamWSolver(SGDSolver):
    """Train by Adam with decoupled weight decay: g has none; h = b1 h + (1 - b1) g; h2 = b2 h2 + (1 - b2) g^2;
    u = r sqrt(1 - b2^t) / (1 - b1^t) h / (sqrt(h2) + delta) + r weight_decay decay_mult w, with b1, b2 and t as for
    Adam. Source: Loshchilov and Hutter, Decoupled Weight Decay Regularization (2017).

    PyTorch adds its eps to sqrt(h2 / (1 - b2^t)): the same but for delta = eps sqrt(1 - b2^t).

    Raises SolverError for a momentum or momentum2 outside [0, 1)."""

    rule = RULES["AdamW"]


class LionSolver(SGDSolver):
    """Train by the sign of a mean of gradients, with decoupled weight decay and one history: c = b1 h + (1 - b1) g;
    h = b2 h + (1 - b2) g; u = r sign(c) + r weight_decay decay_mult w, where b1 is momentum and b2 momentum2.
    Source: Chen et al., Symbolic Discovery of Optimization Algorithms (2023), which has b1 = 0.9, b2 = 0.99, and rates
    3 to 10 times lower, decays 3 to 10 times higher than AdamW's.

    Raises SolverError for a momentum or momentum2 outside [0, 1)."""

    rule = RULES["Lion"]
