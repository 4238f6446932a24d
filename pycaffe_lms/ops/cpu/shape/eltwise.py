"""Combine several arrays of one shape: sum, product and maximum."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ....arrays import HostArray
from ..compiled import kernel
from ..threads import ELEMENTS, parallel

__all__ = [
    "eltwise_sum",
    "eltwise_sum_backward",
    "eltwise_prod",
    "eltwise_prod_backward",
    "eltwise_prod_backward_unstable",
    "eltwise_max",
    "eltwise_max_backward",
]


def eltwise_sum(xs: Sequence[HostArray], coeffs: Sequence[float], y: HostArray) -> None:
    """Compute y = sum of coeffs[i] * xs[i], added from the first to the last; y is none of them."""
    total, factor = xs[0], coeffs[0]
    for x, coeff in zip(xs[1:], coeffs[1:], strict=True):
        flat = total.reshape(-1), x.reshape(-1), y.reshape(-1)
        parallel(_weighted_sum, y.size, *flat, y.dtype.type(factor), y.dtype.type(coeff), grain=ELEMENTS)
        total, factor = y, 1.0


def eltwise_sum_backward(dy: HostArray, dxs: Sequence[HostArray], coeffs: Sequence[float]) -> None:
    """Compute dxs[i] = coeffs[i] * dy for every array of the list; where coeffs[i] is 1, dxs[i] may be dy."""
    for dx, coeff in zip(dxs, coeffs, strict=True):
        if coeff == 1 and dx.ctypes.data == dy.ctypes.data:
            continue
        flat = dy.reshape(-1), dx.reshape(-1)
        parallel(_multiple, dx.size, *flat, dx.dtype.type(coeff), grain=ELEMENTS)


@kernel
def _weighted_sum(first: int, last: int, a: HostArray, b: HostArray, y: HostArray, u: float, v: float) -> None:
    a, b, y = a[first:last], b[first:last], y[first:last]
    for i in range(y.size):
        y[i] = u * a[i] + v * b[i]


@kernel
def _multiple(first: int, last: int, x: HostArray, y: HostArray, factor: float) -> None:
    x, y = x[first:last], y[first:last]
    for i in range(y.size):
        y[i] = factor * x[i]


def eltwise_prod(xs: Sequence[HostArray], y: HostArray) -> None:
    """Compute y = product of all xs, from the first to the last; y is none of them."""
    np.multiply(xs[0], xs[1], out=y)
    for x in xs[2:]:
        y *= x


def eltwise_prod_backward(others: Sequence[HostArray], dy: HostArray, dx: HostArray) -> None:
    """Compute dx = dy * product of the other inputs."""
    np.copyto(dx, others[0])
    for x in others[1:]:
        dx *= x
    dx *= dy


def eltwise_prod_backward_unstable(x: HostArray, y: HostArray, dy: HostArray, dx: HostArray) -> None:
    """Compute dx = y / x * dy, which is NaN or infinite where x is 0."""
    with np.errstate(divide="ignore", invalid="ignore"):
        np.divide(y, x, out=dx)
        dx *= dy


def eltwise_max(xs: Sequence[HostArray], y: HostArray, mask: HostArray | None) -> None:
    """Compute y = maximum; `mask` (an integer type, or None) receives the number of the input it came from.

    A tie of inputs 0 and 1 goes to 1; a later input must be strictly greater.
    """
    first = xs[0] > xs[1]
    np.copyto(y, xs[1])
    np.copyto(y, xs[0], where=first)
    if mask is not None:
        np.copyto(mask, ~first, casting="unsafe")
    for i, x in enumerate(xs[2:], start=2):
        greater = x > y
        np.copyto(y, x, where=greater)
        if mask is not None:
            mask[greater] = i


def eltwise_max_backward(dy: HostArray, mask: HostArray, indices: Sequence[int], dxs: Sequence[HostArray]) -> None:
    """Compute dxs[i] = dy where the maximum came from input indices[i], else 0, for every array of the list."""
    for index, dx in zip(indices, dxs, strict=True):
        dx.fill(0)
        np.copyto(dx, dy, where=mask == index)
