"""Find the largest values along the channels of a grid, and their indices."""

from __future__ import annotations

import numpy as np

from ....arrays import HostArray
from ...records import Grid

__all__ = ["argmax_forward"]


def argmax_forward(x: HostArray, y: HostArray, indices: bool, values: bool, top_k: int, grid: Grid) -> None:
    """Write the top_k largest values, or their indices, to y (outer, indices + values, top_k, inner).

    Indices come first if `indices`, then values if `values`. Largest first; of equal values the larger index; a NaN is
    larger than any number.
    """
    outer, dim, inner = grid
    x, y = x.reshape(grid), y.reshape(outer, indices + values, top_k, inner)
    if top_k == 1 and x.size:
        best = dim - 1 - np.argmax(x[:, ::-1], axis=1)[:, None]  # of equal values the last one
    else:
        best = np.argsort(x, axis=1, kind="stable")[:, : -top_k - 1 : -1]
    if indices:
        y[:, 0] = best
    if values:
        y[:, -1] = np.take_along_axis(x, best, axis=1)
