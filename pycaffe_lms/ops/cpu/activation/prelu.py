"""Compute ReLU with one slope per channel, of arrays seen as (outer, dim, inner)."""

from __future__ import annotations

import numpy as np

from ....arrays import HostArray
from ..channels import channel_sum, row_slices, write_gradient

__all__ = ["prelu_forward", "prelu_backward"]


def prelu_forward(x: HostArray, a: HostArray, y: HostArray, outer: int, dim: int, inner: int) -> None:
    """Compute y = max(x, 0) + a * min(x, 0); y may be x."""
    x, a, y = x.reshape(outer, dim, inner), a.reshape(dim, 1), y.reshape(outer, dim, inner)
    with np.errstate(invalid="ignore", over="ignore"):
        for rows in row_slices(outer, dim * inner):
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
    outer: int,
    dim: int,
    inner: int,
) -> None:
    """Compute the gradients of `prelu_forward`.

    da = sum over outer and inner of dy * x where x <= 0, added to da if `accumulate`; dx = dy * (1 where x > 0, a where
    x <= 0, 0 where x is NaN). da or dx may be None; a is read for dx only; dx may be dy. `work` holds the GPU's partial
    sums: dim * parts elements.
    """
    x, dy = x.reshape(outer, dim, inner), dy.reshape(outer, dim, inner)
    with np.errstate(invalid="ignore", over="ignore"):
        if da is not None:
            total = channel_sum(outer, dim, inner, lambda rows: dy[rows] * np.minimum(x[rows], 0))
            write_gradient(da, total, accumulate)
        if dx is not None:
            a, dx = a.reshape(dim, 1), dx.reshape(outer, dim, inner)
            for rows in row_slices(outer, dim * inner):
                slope = a * (x[rows] <= 0)
                slope += x[rows] > 0
                np.multiply(dy[rows], slope, out=dx[rows])
