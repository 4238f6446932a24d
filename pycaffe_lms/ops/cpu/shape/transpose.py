"""Reorder axes."""

from __future__ import annotations

import numpy as np

from ....arrays import HostArray
from ...geometry import Ints
from ..compiled import kernel
from ..threads import ELEMENTS, parallel

__all__ = ["transpose"]

_COLUMNS, _ROWS = (
    16,
    64,
)  # sizes of a tile: few enough rows that a column of cache lines (16 floats each) stays in the cache


def transpose(x: HostArray, y: HostArray, shape: Ints, order: Ints) -> None:
    """Copy x, seen as an array of `shape`, to y: axis order[i] of x is axis i of y. Types may differ as in `copy`."""
    if order in ((1, 0), (0, 2, 1)):
        n, rows, columns = (1, *shape)[-3:]
        strips = (columns + _COLUMNS - 1) // _COLUMNS
        arrays = x.reshape(n, rows, columns), y.reshape(n, columns, rows)
        parallel(_tiles, n * strips, *arrays, grain=max(1, ELEMENTS // max(1, rows * _COLUMNS)))
    else:
        moved = x.reshape(shape).transpose(order)
        np.copyto(y.reshape(moved.shape), moved)


@kernel
def _tiles(first: int, last: int, x: HostArray, y: HostArray) -> None:
    """Copy strips of columns of x (n, rows, columns), which become rows of y (n, columns, rows)."""
    rows, columns = x.shape[1], x.shape[2]
    strips = (columns + _COLUMNS - 1) // _COLUMNS
    for k in range(first, last):
        image, start = k // strips, k % strips * _COLUMNS
        plane = x[image]
        for top in range(0, rows, _ROWS):
            for column in range(start, min(start + _COLUMNS, columns)):
                out = y[image, column]
                for row in range(top, min(top + _ROWS, rows)):
                    out[row] = plane[row, column]
