"""Compute the logistic function, which Sigmoid, Swish, BNLL's gradient, LSTMs and a loss share."""

from __future__ import annotations

import numpy as np

from ...arrays import HostArray


def sigmoid(x: HostArray, out: HostArray | None = None) -> HostArray:
    """Return 1 / (1 + e^-x) within 4 units in the last place, below x = -87 too; `out` may be x.

    It is computed as e^x / (e^x + 1): no small result is a difference of large numbers. From x = 50 on it is 1.
    """
    e = np.minimum(x, 50, out=out)
    np.exp(e, out=e)
    return np.divide(e, e + 1, out=e)
