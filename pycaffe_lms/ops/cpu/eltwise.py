"""Sum, product and maximum of several arrays of one shape."""

from __future__ import annotations

import numpy as np

__all__ = [
    "eltwise_sum",
    "eltwise_sum_backward",
    "eltwise_prod",
    "eltwise_prod_backward",
    "eltwise_prod_backward_unstable",
    "eltwise_max",
    "eltwise_max_backward",
]


def eltwise_sum(xs, coeffs, y):
    """y = sum of coeffs[i] * xs[i], added from the first to the last; y is none of them."""
    np.multiply(xs[0], coeffs[0], out=y)
    for x, coeff in zip(xs[1:], coeffs[1:], strict=True):
        y += x if coeff == 1 else x * coeff


def eltwise_sum_backward(dy, dxs, coeffs):
    """dxs[i] = coeffs[i] * dy, for every array of the list."""
    for dx, coeff in zip(dxs, coeffs, strict=True):
        np.multiply(dy, coeff, out=dx)


def eltwise_prod(xs, y):
    """y = product of all xs, from the first to the last; y is none of them."""
    np.multiply(xs[0], xs[1], out=y)
    for x in xs[2:]:
        y *= x


def eltwise_prod_backward(others, dy, dx):
    """dx = dy * product of the other inputs."""
    np.copyto(dx, others[0])
    for x in others[1:]:
        dx *= x
    dx *= dy


def eltwise_prod_backward_unstable(x, y, dy, dx):
    """dx = y / x * dy: no number where x is 0."""
    with np.errstate(divide="ignore", invalid="ignore"):
        np.divide(y, x, out=dx)
        dx *= dy


def eltwise_max(xs, y, mask):
    """y = maximum; mask (int32, or None) = the input it came from.

    A tie of inputs 0 and 1 goes to 1; a later input must be strictly greater.
    """
    first = xs[0] > xs[1]
    np.copyto(y, xs[1])
    np.copyto(y, xs[0], where=first)
    if mask is not None:
        np.copyto(mask, np.where(first, 0, 1))
    for i, x in enumerate(xs[2:], start=2):
        greater = x > y
        np.copyto(y, x, where=greater)
        if mask is not None:
            mask[greater] = i


def eltwise_max_backward(dy, mask, index, dx):
    """dx = dy where the maximum came from input `index`, else 0."""
    dx.fill(0)
    np.copyto(dx, dy, where=mask == index)
