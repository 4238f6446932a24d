"""Update moving averages."""

from __future__ import annotations

from ....arrays import AnyArray
from ....backend.cuda import launch

__all__ = ["moving_average"]

_SOURCE = """
extern "C" __global__ void average(const T* x, T* average, double keep, double weight, long long n) {
  LOOP(i, n) average[i] = (T)keep * average[i] + (T)weight * x[i];
}
"""


def moving_average(x: AnyArray, average: AnyArray, keep: float, weight: float) -> None:
    """Compute average = keep * average + weight * x."""
    launch(_SOURCE, "average", average.dtype, average.size, x, average, float(keep), float(weight), average.size)
