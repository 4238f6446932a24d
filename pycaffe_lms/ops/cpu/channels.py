"""Add up each channel of arrays seen as a `Grid`, (outer, channels, inner).

A few thousand values are added in the array's type, these sums in float64. One thread sums a channel, so the result
does not depend on the number of threads.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ...arrays import HostArray
from ..records import Grid
from .compiled import BLOCK, kernel, sums
from .threads import parallel

_CHUNK = 1 << 18
_GRAIN = 1 << 13  # elements from which a second thread pays


def row_slices(outer: int, width: int) -> list[slice]:
    """Return slices of the outer axis of about 2^18 elements each, but at least one row."""
    rows = max(1, _CHUNK // max(1, width))
    return [slice(start, min(start + rows, outer)) for start in range(0, outer, rows)]


def channel_sum(grid: Grid, term: Callable[[slice], HostArray]) -> HostArray:
    """Return float64 sums, one per channel, of `term`.

    term(rows) returns an array (rows, channels, inner) for a slice of the outer axis.
    """
    outer, channels, inner = grid
    total = np.zeros(channels, np.float64)
    for rows in row_slices(outer, channels * inner):
        part = term(rows)
        total += (part[:, :, 0] if inner == 1 else part.sum(axis=2)).sum(axis=0, dtype=np.float64)
    return total


def over_channels(function: Callable[..., None], grid: Grid, *args: Any) -> None:
    """Run function(first channel, last channel, *args) in threads."""
    outer, channels, inner = grid
    parallel(function, channels, *args, grain=_GRAIN // max(1, outer * inner) + 1)


def over_rows(function: Callable[..., None], grid: Grid, *args: Any) -> None:
    """Run function(first row, last row, *args) in threads, over outer * channels rows of `inner` values."""
    outer, channels, inner = grid
    parallel(function, outer * channels, *args, grain=_GRAIN // max(1, inner) + 1)


def write_gradient(gradient: HostArray, total: HostArray, accumulate: bool) -> None:
    """Write to `gradient`, or add if `accumulate`, the total, rounded to the gradient's type."""
    total = total.astype(gradient.dtype).reshape(gradient.shape)
    gradient[...] = gradient + total if accumulate else total


def channel_sums(x: HostArray, grid: Grid) -> HostArray:
    """Return float64 sums of x, one per channel."""
    total = np.empty(grid.channels, np.float64)
    over_channels(_sums, grid, x.reshape(grid), total)
    return total


def channel_dots(x: HostArray, y: HostArray, grid: Grid) -> HostArray:
    """Return float64 sums of x * y, one per channel."""
    total = np.empty(grid.channels, np.float64)
    over_channels(_dots, grid, x.reshape(grid), y.reshape(grid), total)
    return total


@sums
def _sum(x: HostArray) -> float:
    total = x.dtype.type(0)
    for i in range(x.size):
        total += x[i]
    return total


@sums
def _dot(x: HostArray, y: HostArray) -> float:
    total = x.dtype.type(0)
    for i in range(x.size):
        total += x[i] * y[i]
    return total


@kernel
def _sums(first: int, last: int, x: HostArray, total: HostArray) -> None:
    outer, _, inner = x.shape
    for c in range(first, last):
        total[c] = 0
        for o in range(outer):
            for start in range(0, inner, BLOCK):
                total[c] += np.float64(_sum(x[o, c, start : min(start + BLOCK, inner)]))


@kernel
def _dots(first: int, last: int, x: HostArray, y: HostArray, total: HostArray) -> None:
    outer, _, inner = x.shape
    for c in range(first, last):
        total[c] = 0
        for o in range(outer):
            for start in range(0, inner, BLOCK):
                end = min(start + BLOCK, inner)
                total[c] += np.float64(_dot(x[o, c, start:end], y[o, c, start:end]))
