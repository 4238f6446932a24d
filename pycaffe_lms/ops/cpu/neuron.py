"""Element-wise activations."""

from __future__ import annotations

import numpy as np

__all__ = ["relu_forward", "relu_backward"]


def relu_forward(x, y, slope):
    """y = max(x, 0) + slope * min(x, 0); NaN stays NaN, and -inf with slope 0 gives NaN, as in Caffe."""
    if slope == 0 and (x.size == 0 or x.min() > -np.inf):  # the usual case: one pass without temporaries
        np.maximum(x, 0, out=y)
        return
    with np.errstate(invalid="ignore"):
        below = np.minimum(x, 0) * slope
    np.add(np.maximum(x, 0, out=y), below, out=y)


def relu_backward(y_or_x, dy, dx, slope):
    """dx = dy * (1 where v > 0, slope where v <= 0, 0 where v is NaN)."""
    if slope == 0:
        np.multiply(dy, y_or_x > 0, out=dx)
        return
    factor = (y_or_x <= 0).astype(dy.dtype)
    factor *= slope
    factor += y_or_x > 0
    np.multiply(dy, factor, out=dx)
