"""Moving averages."""

from __future__ import annotations

import numpy as np

__all__ = ["moving_average"]


def moving_average(x, average, keep, weight):
    """average = keep * average + weight * x."""
    average = average.reshape(-1)
    scalar = average.dtype.type
    np.add(average * scalar(keep), x.reshape(-1) * scalar(weight), out=average)
