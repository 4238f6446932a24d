"""Update moving averages."""

from __future__ import annotations

import numpy as np

from ....arrays import HostArray

__all__ = ["moving_average"]


def moving_average(x: HostArray, average: HostArray, keep: float, weight: float) -> None:
    """Compute average = keep * average + weight * x."""
    average = average.reshape(-1)
    scalar = average.dtype.type
    np.add(average * scalar(keep), x.reshape(-1) * scalar(weight), out=average)
