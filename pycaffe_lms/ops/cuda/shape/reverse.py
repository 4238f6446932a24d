"""Turn the order along one axis round."""

from __future__ import annotations

from ....arrays import AnyArray
from ...records import Grid
from ..moves import move, moving, unit_of
from ..source import DIVIDE, divider

__all__ = ["reverse"]

_PARAMS = (
    "long long c, long long c_magic, long long c_shift, long long inner, long long inner_magic, long long inner_shift"
)
_PLACES = """
const long long row = quotient(i, inner, inner_magic, inner_shift), outer = quotient(row, c, c_magic, c_shift);
to = (outer * c + c - 1 - (row - outer * c)) * inner + i - row * inner;
"""
_SOURCE = moving("reverse", _PLACES, params=_PARAMS, helpers=DIVIDE)


def reverse(x: AnyArray, y: AnyArray, grid: Grid) -> None:
    """Compute y[o, c - 1 - k, i] = x[o, k, i] for arrays seen as (outer, c, inner)."""
    unit = unit_of(x, y, grid.inner)
    n = x.size // unit
    move(_SOURCE, "reverse", x, y, unit, n, *divider(grid.channels, n), *divider(grid.inner // unit, n))
