"""Divide by the L2 norm: arrays seen as (n, c, s), one norm for each (n, s), or one for each n (`across`).

`squares` holds the sums of x^2, (n, s) or (n); `scale` has c elements, or 1 for all channels.
"""

from __future__ import annotations

import numpy as np

from ....arrays import HostArray
from ..channels import row_slices

__all__ = ["normalize_forward", "normalize_backward_data", "normalize_backward_scale"]


def _sums(term: HostArray, across: bool) -> HostArray:
    """Return float64 sums of (rows, c, s) over c, or over c and s if `across`; summed axes stay, with size 1."""
    if across:
        return term.sum(axis=(1, 2), dtype=np.float64, keepdims=True)
    return term.sum(axis=1, dtype=np.float64, keepdims=True)


def _factor(squares: HostArray, rows: slice, eps: float, s: int, across: bool) -> HostArray:
    """Return 1 / sqrt(squares + eps), shaped to broadcast against (rows, c, s)."""
    with np.errstate(divide="ignore", invalid="ignore"):
        return 1 / np.sqrt(squares.reshape(-1, 1, 1 if across else s)[rows] + squares.dtype.type(eps))


def normalize_forward(
    x: HostArray,
    scale: HostArray,
    y: HostArray,
    squares: HostArray,
    work: HostArray,
    eps: float,
    n: int,
    c: int,
    s: int,
    across: bool,
) -> None:
    """Compute y = scale * x / sqrt(squares + eps), and write squares. `work`: n * parts elements for the GPU's sums."""
    x, y, scale = x.reshape(n, c, s), y.reshape(n, c, s), scale.reshape(-1, 1)
    kept = squares.reshape(n, 1, 1 if across else s)
    with np.errstate(over="ignore", invalid="ignore"):
        for rows in row_slices(n, c * s):
            kept[rows] = _sums(np.square(x[rows]), across)
            np.multiply(x[rows], _factor(squares, rows, eps, s, across), out=y[rows])
            y[rows] *= scale


def normalize_backward_data(
    x: HostArray,
    scale: HostArray,
    dy: HostArray,
    dx: HostArray,
    squares: HostArray,
    dots: HostArray,
    work: HostArray,
    eps: float,
    n: int,
    c: int,
    s: int,
    across: bool,
) -> None:
    """Compute dx = (scale * dy - x * dots / (squares + eps)) / sqrt(squares + eps), and write dots.

    dots = sums of scale * x * dy. `work` holds the GPU's partial sums: n * parts elements.
    """
    x, dy, dx, scale = x.reshape(n, c, s), dy.reshape(n, c, s), dx.reshape(n, c, s), scale.reshape(-1, 1)
    kept = dots.reshape(n, 1, 1 if across else s)
    with np.errstate(over="ignore", divide="ignore", invalid="ignore"):
        for rows in row_slices(n, c * s):
            factor = _factor(squares, rows, eps, s, across)
            scaled = dy[rows] * scale
            kept[rows] = _sums(scaled * x[rows], across)
            scaled -= x[rows] * (kept[rows] * factor * factor)
            np.multiply(scaled, factor, out=dx[rows])


def normalize_backward_scale(
    x: HostArray,
    dy: HostArray,
    dscale: HostArray,
    accumulate: bool,
    squares: HostArray,
    work: HostArray,
    eps: float,
    n: int,
    c: int,
    s: int,
    across: bool,
) -> None:
    """Write to dscale, or add if `accumulate`, the sums of x * dy / sqrt(squares + eps) per channel.

    Where dscale has one element, it is the sum over everything. `work` holds the GPU's partial sums: c * parts
    elements.
    """
    x, dy, total = x.reshape(n, c, s), dy.reshape(n, c, s), np.zeros(c, np.float64)
    with np.errstate(over="ignore", invalid="ignore"):
        for rows in row_slices(n, c * s):
            term = x[rows] * dy[rows]
            term *= _factor(squares, rows, eps, s, across)
            total += term.sum(axis=2, dtype=np.float64).sum(axis=0)
    if dscale.size == 1:
        total = total.sum()
    gradient = dscale.reshape(-1)
    gradient[...] = gradient + total if accumulate else total
