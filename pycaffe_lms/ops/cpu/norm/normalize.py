"""Divide by the L2 norm: arrays seen as (n, c, s), one norm for each (n, s), or one for each n (`across`).

`squares` holds the sums of x^2, (n, s) or (n); `scale` has c elements, or 1 for all channels.
"""

from __future__ import annotations

import numpy as np

from ....arrays import HostArray
from ...records import L2Norm
from ..channels import row_slices

__all__ = ["normalize_forward", "normalize_backward_data", "normalize_backward_scale"]


def _sums(term: HostArray, across: bool) -> HostArray:
    """Return float64 sums of (rows, c, s) over c, or over c and s if `across`; summed axes stay, with size 1."""
    if across:
        return term.sum(axis=(1, 2), dtype=np.float64, keepdims=True)
    return term.sum(axis=1, dtype=np.float64, keepdims=True)


def _factor(squares: HostArray, rows: slice, norm: L2Norm) -> HostArray:
    """Return 1 / sqrt(squares + eps), shaped to broadcast against (rows, c, s)."""
    with np.errstate(divide="ignore", invalid="ignore"):
        return 1 / np.sqrt(_by_norm(squares, norm)[rows] + squares.dtype.type(norm.eps))


def _by_norm(values: HostArray, norm: L2Norm) -> HostArray:
    """Return an array of a value per norm as (n, 1, s), or (n, 1, 1) if `across`."""
    return values.reshape(norm.grid.outer, 1, 1 if norm.across else norm.grid.inner)


def normalize_forward(
    x: HostArray, scale: HostArray, y: HostArray, squares: HostArray, work: HostArray, norm: L2Norm
) -> None:
    """Compute y = scale * x / sqrt(squares + eps), and write squares. `work`: n * parts elements for the GPU's sums."""
    n, c, s = norm.grid
    x, y, scale = x.reshape(n, c, s), y.reshape(n, c, s), scale.reshape(-1, 1)
    kept = _by_norm(squares, norm)
    with np.errstate(over="ignore", invalid="ignore"):
        for rows in row_slices(n, c * s):
            kept[rows] = _sums(np.square(x[rows]), norm.across)
            np.multiply(x[rows], _factor(squares, rows, norm), out=y[rows])
            y[rows] *= scale


def normalize_backward_data(
    x: HostArray,
    scale: HostArray,
    dy: HostArray,
    dx: HostArray,
    squares: HostArray,
    dots: HostArray,
    work: HostArray,
    norm: L2Norm,
) -> None:
    """Compute dx = (scale * dy - x * dots / (squares + eps)) / sqrt(squares + eps), and write dots.

    dots = sums of scale * x * dy. `work` holds the GPU's partial sums: n * parts elements.
    """
    n, c, s = norm.grid
    x, dy, dx, scale = x.reshape(n, c, s), dy.reshape(n, c, s), dx.reshape(n, c, s), scale.reshape(-1, 1)
    kept = _by_norm(dots, norm)
    with np.errstate(over="ignore", divide="ignore", invalid="ignore"):
        for rows in row_slices(n, c * s):
            factor = _factor(squares, rows, norm)
            scaled = dy[rows] * scale
            kept[rows] = _sums(scaled * x[rows], norm.across)
            scaled -= x[rows] * (kept[rows] * factor * factor)
            np.multiply(scaled, factor, out=dx[rows])


def normalize_backward_scale(
    x: HostArray,
    dy: HostArray,
    dscale: HostArray,
    accumulate: bool,
    squares: HostArray,
    work: HostArray,
    norm: L2Norm,
) -> None:
    """Write to dscale, or add if `accumulate`, the sums of x * dy / sqrt(squares + eps) per channel.

    Where dscale has one element, it is the sum over everything. `work` holds the GPU's partial sums: c * parts
    elements.
    """
    n, c, s = norm.grid
    x, dy, total = x.reshape(n, c, s), dy.reshape(n, c, s), np.zeros(c, np.float64)
    with np.errstate(over="ignore", invalid="ignore"):
        for rows in row_slices(n, c * s):
            term = x[rows] * dy[rows]
            term *= _factor(squares, rows, norm)
            total += term.sum(axis=2, dtype=np.float64).sum(axis=0)
    if dscale.size == 1:
        total = total.sum()
    gradient = dscale.reshape(-1)
    gradient[...] = gradient + total if accumulate else total
