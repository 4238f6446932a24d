"""Copy, add and measure whole arrays."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from ...arrays import HostArray
from .channels import row_slices
from .threads import ELEMENTS, parallel

__all__ = ["fill", "copy", "kernels_plan", "scale_all", "scale_by", "sum_arrays", "sum_squares"]


def kernels_plan(rehearse: Callable[[], None]) -> None:
    """Compile the kernels that a device must compile, given operations on arrays without memory. None on a CPU."""


def fill(y: HostArray, value: float) -> None:
    """Set every element of y to `value`."""
    y.fill(value)


def copy(x: HostArray, y: HostArray) -> None:
    """Copy x to y element by element in memory order (shapes may differ); do nothing where they are the same memory."""
    if x.ctypes.data != y.ctypes.data:
        parallel(_copy, y.size, x.reshape(-1), y.reshape(-1), grain=ELEMENTS)


def scale_by(y: HostArray, factor: float) -> None:
    """Compute y = factor * y, with the factor rounded to y's type."""
    parallel(_scale, y.size, y.reshape(-1), y.dtype.type(factor), grain=ELEMENTS)


def scale_all(ys: Sequence[HostArray], factor: float) -> None:
    """Compute y = factor * y for arrays of one type, as `scale_by` does."""
    for y in ys:
        scale_by(y, factor)


def sum_arrays(xs: Sequence[HostArray], y: HostArray) -> None:
    """Compute y = ((xs[0] + xs[1]) + xs[2]) + ...; y may be any of them."""
    flat = [x.reshape(-1) for x in xs]
    if len(flat) == 1:
        copy(xs[0], y)
    elif len(flat) == 2:
        parallel(_add, y.size, *flat, y.reshape(-1), grain=ELEMENTS)
    else:
        total = flat[0] + flat[1]  # not into y: a later array may be y itself
        for x in flat[2:]:
            total += x
        np.copyto(y.reshape(-1), total)


def _copy(first: int, last: int, x: HostArray, y: HostArray) -> None:
    np.copyto(y[first:last], x[first:last])


def _scale(first: int, last: int, y: HostArray, factor: float) -> None:
    y[first:last] *= factor


def _add(first: int, last: int, a: HostArray, b: HostArray, y: HostArray) -> None:
    np.add(a[first:last], b[first:last], out=y[first:last])


def sum_squares(x: HostArray, out: HostArray, index: int, work: HostArray) -> None:
    """Compute out[index] = sum of x^2 in float64. `work` holds the GPU's partial sums: 1024 doubles."""
    flat = x.reshape(-1)
    parts = (flat[items].astype(np.float64) for items in row_slices(flat.size, 1))
    out[index] = sum(float(np.square(p, out=p).sum()) for p in parts)
