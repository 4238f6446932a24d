"""Reduce the rows of (rows, dim) to sums of x (SUM), |x| (ASUM) or x^2 (SUMSQ)."""

from __future__ import annotations

import numpy as np

from ....arrays import HostArray
from ..channels import row_slices

__all__ = ["reduction_forward", "reduction_backward"]

_TERM = {"SUM": lambda x: x, "ASUM": np.abs, "SUMSQ": np.square}


def reduction_forward(
    x: HostArray, y: HostArray, kind: str, coeff: float, work: HostArray, rows: int, dim: int
) -> None:
    """Compute y[row] = coeff * sum of f(x[row]). `work` holds the GPU's partial sums: rows * parts elements."""
    x, y = x.reshape(rows, dim), y.reshape(rows)
    for part in row_slices(rows, dim):
        np.multiply(_TERM[kind](x[part]).sum(axis=1), coeff, out=y[part])


def reduction_backward(
    x: HostArray | None, dy: HostArray, dx: HostArray, kind: str, coeff: float, rows: int, dim: int
) -> None:
    """Compute dx = coeff * dy[row] * f'(x); f' of ASUM is the sign of x. x is None for SUM."""
    dx, scale = dx.reshape(rows, dim), dy.reshape(rows, 1) * coeff
    if kind == "SUM":
        dx[...] = scale
    elif kind == "ASUM":
        np.multiply(np.sign(x.reshape(rows, dim), out=dx), scale, out=dx)
    else:
        np.multiply(x.reshape(rows, dim), 2 * scale, out=dx)
