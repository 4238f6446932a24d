"""Copy blocks of rows into and out of a wider array, for Concat and Slice."""

from __future__ import annotations

from ....arrays import HostArray
from ..threads import ELEMENTS, parallel

__all__ = ["copy_block_in", "copy_block_out"]


def copy_block_in(x: HostArray, y: HostArray, outer: int, width: int, total: int, start: int) -> None:
    """Copy x (outer, width) to columns [start, start + width) of y (outer, total)."""
    _copy_rows(x.reshape(outer, width), y.reshape(outer, total)[:, start : start + width])


def copy_block_out(x: HostArray, y: HostArray, outer: int, width: int, total: int, start: int) -> None:
    """Copy columns [start, start + width) of x (outer, total) to y (outer, width)."""
    _copy_rows(x.reshape(outer, total)[:, start : start + width], y.reshape(outer, width))


def _copy_rows(x: HostArray, y: HostArray) -> None:
    parallel(_copy, len(y), x, y, grain=ELEMENTS // max(1, y.shape[1]) + 1)


def _copy(first: int, last: int, x: HostArray, y: HostArray) -> None:
    y[first:last] = x[first:last]
