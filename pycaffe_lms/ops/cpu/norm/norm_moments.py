"""Mean and variance per channel: of planes of values, and of rows that hold all channels."""

from __future__ import annotations

import numpy as np

from ....arrays import HostArray
from ..compiled import BLOCK, kernel, sums

PART = 64  # rows that are added up in the array's own type


@sums
def _sum(x: HostArray) -> float:
    total = x.dtype.type(0)
    for i in range(x.size):
        total += x[i]
    return total


@sums
def _squares(x: HostArray, mean: float) -> float:
    total = x.dtype.type(0)
    for i in range(x.size):
        total += (x[i] - mean) * (x[i] - mean)
    return total


@kernel
def moments(first: int, last: int, x: HostArray, mean: HostArray, var: HostArray) -> None:
    """Of the channels [first, last) of an array (items, channels, size)."""
    items, _, size = x.shape
    for c in range(first, last):
        total, squares = 0.0, 0.0
        for i in range(items):
            for start in range(0, size, BLOCK):
                total += np.float64(_sum(x[i, c, start : min(start + BLOCK, size)]))
        mean[c] = total / (items * size)
        near = x.dtype.type(mean[c])
        for i in range(items):
            for start in range(0, size, BLOCK):
                squares += np.float64(_squares(x[i, c, start : min(start + BLOCK, size)], near))
        var[c] = squares / (items * size)


@kernel
def part_moments(first: int, last: int, x: HostArray, means: HostArray, squares: HostArray) -> None:
    """Of each part's rows the mean, and the sum of squared distances from it (the part is in the cache by then)."""
    rows, size = x.shape
    for part in range(first, last):
        mean, square = means[part], squares[part]
        start, end = part * PART, min(part * PART + PART, rows)
        mean[:] = 0
        square[:] = 0
        for i in range(start, end):
            row = x[i]
            for j in range(size):
                mean[j] += row[j]
        for j in range(size):
            mean[j] /= end - start
        for i in range(start, end):
            row = x[i]
            for j in range(size):
                square[j] += (row[j] - mean[j]) * (row[j] - mean[j])
