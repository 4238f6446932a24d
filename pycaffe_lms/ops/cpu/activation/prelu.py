"""Compute ReLU with one slope per channel."""

from __future__ import annotations

import numpy as np

from ....arrays import HostArray
from ...records import Grid
from ..channels import channel_sum, row_slices, write_gradient

__all__ = ["prelu_forward", "prelu_backward"]


def prelu_forward(x: HostArray, a: HostArray, y: HostArray, grid: Grid) -> None:
    """Compute y = max(x, 0) + a * min(x, 0); y may be x."""
    x, a, y = x.reshape(grid), a.reshape(-1, 1), y.reshape(grid)
    with np.errstate(invalid="ignore", over="ignore"):
        for rows in row_slices(grid.outer, grid.channels * grid.inner):
            below = np.minimum(x[rows], 0)
            below *= a
            np.add(np.maximum(x[rows], 0), below, out=y[rows])


def prelu_backward(
    x: HostArray,
    a: HostArray,
    dy: HostArray,
    dx: HostArray | None,
    da: HostArray | None,
    accumulate: bool,
    work: HostArray,
    grid: Grid,
) -> None:
    """Compute the gradients of `prelu_forward`.

    da = sum over outer and inner of dy * x where x <= 0, added to da if `accumulate`; dx = dy * (1 where x > 0, a where
    x <= 0, 0 where x is NaN). da or dx may be None; a is read for dx only; dx may be dy. `work` holds the GPU's partial
    sums: channels * parts elements.
    """
    x, dy = x.reshape(grid), dy.reshape(grid)
    with np.errstate(invalid="ignore", over="ignore"):
        if da is not None:
            total = channel_sum(grid, lambda rows: dy[rows] * np.minimum(x[rows], 0))
            write_gradient(da, total, accumulate)
        if dx is not None:
            a, dx = a.reshape(-1, 1), dx.reshape(grid)
            for rows in row_slices(grid.outer, grid.channels * grid.inner):
                slope = a * (x[rows] <= 0)
                slope += x[rows] > 0
                np.multiply(dy[rows], slope, out=dx[rows])
