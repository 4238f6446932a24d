"""Compute half the squared distance of two batches."""

from __future__ import annotations

import numpy as np

from ....arrays import HostArray
from ..channels import row_slices

__all__ = ["euclidean_loss_forward", "euclidean_loss_backward"]


def euclidean_loss_forward(a: HostArray, b: HostArray, loss: HostArray, work: HostArray, scale: float) -> None:
    """Compute loss = scale * sum of (a - b)^2, in float64. `work`: 2 * LOSS_BLOCKS doubles for a GPU's partial sums."""
    a, b = a.reshape(-1), b.reshape(-1)
    total = 0.0
    with np.errstate(over="ignore", invalid="ignore"):  # a net that diverges ends in inf and NaN, as on a GPU
        for items in row_slices(a.size, 1):
            part = (a[items] - b[items]).astype(np.float64)
            total += float(np.square(part, out=part).sum())
        loss.fill(total * scale)


def euclidean_loss_backward(
    a: HostArray, b: HostArray, dloss: HostArray, da: HostArray | None, db: HostArray | None, scale: float
) -> None:
    """Compute da = dloss * scale * (a - b), db = -da; one of them may be None."""
    with np.errstate(over="ignore", invalid="ignore"):
        for dx, sign in ((da, scale), (db, -scale)):
            if dx is not None:
                dx = dx.reshape(-1)
                np.subtract(a.reshape(-1), b.reshape(-1), out=dx)
                dx *= dx.dtype.type(dloss.reshape(-1)[0] * sign)
