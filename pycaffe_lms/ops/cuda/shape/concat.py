"""Copy blocks of rows into and out of a wider array, for Concat and Slice."""

from __future__ import annotations

from ....arrays import AnyArray
from ..moves import move, moving, unit_of
from ..source import DIVIDE, divider

__all__ = ["copy_block_in", "copy_block_out"]

_PARAMS = "long long width, long long magic, long long shift, long long total, long long start"
_ROW = "const long long row = quotient(i, width, magic, shift);"
_WIDE = "row * total + start + i - row * width;"
_IN = moving("copy_in", f"{_ROW} to = {_WIDE}", params=_PARAMS, helpers=DIVIDE)
_OUT = moving("copy_out", f"{_ROW} from = {_WIDE}", params=_PARAMS, helpers=DIVIDE)


def copy_block_in(x: AnyArray, y: AnyArray, outer: int, width: int, total: int, start: int) -> None:
    """Copy x (outer, width) to columns [start, start + width) of y (outer, total)."""
    _copy(_IN, "copy_in", x, y, outer, width, total, start)


def copy_block_out(x: AnyArray, y: AnyArray, outer: int, width: int, total: int, start: int) -> None:
    """Copy columns [start, start + width) of x (outer, total) to y (outer, width)."""
    _copy(_OUT, "copy_out", x, y, outer, width, total, start)


def _copy(source: str, name: str, x: AnyArray, y: AnyArray, outer: int, width: int, total: int, start: int) -> None:
    unit = unit_of(x, y, width, total, start)
    n = outer * width // unit
    move(source, name, x, y, unit, n, *divider(width // unit, n), total // unit, start // unit)
