"""Copy or add columns of one array to columns of another, for slabs of blobs and their halos."""

from __future__ import annotations

import numpy as np

from ....arrays import HostArray
from ..threads import ELEMENTS, parallel

__all__ = ["add_columns", "copy_columns"]


def copy_columns(
    x: HostArray, y: HostArray, outer: int, width: int, x_total: int, x_start: int, y_total: int, y_start: int
) -> None:
    """Copy columns [x_start, x_start + width) of x (outer, x_total) to those from y_start on of y (outer, y_total)."""
    mine, theirs = _columns(x, outer, x_total, x_start, width), _columns(y, outer, y_total, y_start, width)
    parallel(_copy, outer, mine, theirs, grain=ELEMENTS // max(1, width) + 1)


def add_columns(
    x: HostArray, y: HostArray, outer: int, width: int, x_total: int, x_start: int, y_total: int, y_start: int
) -> None:
    """Add columns [x_start, x_start + width) of x (outer, x_total) to those from y_start on of y (outer, y_total)."""
    mine, theirs = _columns(x, outer, x_total, x_start, width), _columns(y, outer, y_total, y_start, width)
    parallel(_add, outer, mine, theirs, grain=ELEMENTS // max(1, width) + 1)


def _columns(values: HostArray, outer: int, total: int, start: int, width: int) -> HostArray:
    return values.reshape(outer, total)[:, start : start + width]


def _copy(first: int, last: int, x: HostArray, y: HostArray) -> None:
    y[first:last] = x[first:last]


def _add(first: int, last: int, x: HostArray, y: HostArray) -> None:
    np.add(y[first:last], x[first:last], out=y[first:last])
