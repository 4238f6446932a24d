"""Compute Huber's loss of weighted differences: quadratic near zero, linear beyond."""

from __future__ import annotations

import numpy as np

from ....arrays import HostArray
from ...records import BoxWeights, Grid
from ..channels import row_slices

__all__ = ["smooth_l1_loss_forward", "smooth_l1_loss_backward", "smooth_l1_losses"]


def smooth_l1_loss_forward(
    a: HostArray,
    b: HostArray,
    weights: BoxWeights,
    loss: HostArray,
    work: HostArray,
    sigma2: float,
    scale: float,
) -> None:
    """Compute loss = scale * sum of outside * f(inside * (a - b)), summed in float64.

    f(d) = sigma2 * d^2 / 2 where |d| < 1 / sigma2, else |d| - 1 / (2 sigma2). `work`: 2 * LOSS_BLOCKS doubles for a
    GPU's partial sums.
    """
    arrays = [None if v is None else v.reshape(-1) for v in (a, b, *weights)]
    total = 0.0
    with np.errstate(over="ignore", invalid="ignore"):  # a net that diverges ends in inf and NaN, as on a GPU
        for items in row_slices(a.size, 1):
            x, y, w_in, w_out = (None if v is None else v[items] for v in arrays)
            total += float(_losses(x, y, BoxWeights(w_in, w_out), sigma2).sum())
        loss.fill(total * scale)


def smooth_l1_losses(
    a: HostArray, b: HostArray, weights: BoxWeights, losses: HostArray, sigma2: float, grid: Grid
) -> None:
    """Compute losses (outer, inner) = the sum over channels of outside * f(inside * (a - b)), in float64."""
    x, y, w_in, w_out = (None if v is None else v.reshape(grid) for v in (a, b, *weights))
    with np.errstate(over="ignore", invalid="ignore"):
        total = np.zeros((grid.outer, grid.inner))
        for c in range(grid.channels):  # in order, as on a GPU
            one = BoxWeights(*(None if w is None else w[:, c] for w in (w_in, w_out)))
            total += _losses(x[:, c], y[:, c], one, sigma2)
        losses.reshape(total.shape)[...] = total


def _losses(a: HostArray, b: HostArray, weights: BoxWeights, sigma2: float) -> HostArray:
    """Return outside * f(inside * (a - b)) in float64."""
    d = a - b if weights.inside is None else (a - b) * weights.inside
    d = np.abs(d).astype(np.float64)
    f = np.where(d < 1 / sigma2, 0.5 * sigma2 * d * d, d - 0.5 / sigma2)
    return f if weights.outside is None else f * weights.outside


def smooth_l1_loss_backward(
    a: HostArray,
    b: HostArray,
    weights: BoxWeights,
    dloss: HostArray,
    da: HostArray | None,
    db: HostArray | None,
    sigma2: float,
    scale: float,
) -> None:
    """Compute da = dloss * scale * outside * inside * f'(inside * (a - b)), db = -da; one of them may be None.

    Neither may share memory with another argument.
    """
    for dx, sign in ((da, scale), (db, -scale)):
        if dx is not None:
            _gradient(a, b, weights, dloss, dx.reshape(-1), sigma2, sign)


def _gradient(
    a: HostArray,
    b: HostArray,
    weights: BoxWeights,
    dloss: HostArray,
    dx: HostArray,
    sigma2: float,
    scale: float,
) -> None:
    with np.errstate(over="ignore", invalid="ignore"):
        np.subtract(a.reshape(-1), b.reshape(-1), out=dx)
        if weights.inside is not None:
            dx *= weights.inside.reshape(-1)
        dx *= dx.dtype.type(sigma2)
        np.clip(dx, -1, 1, out=dx)  # sigma2 * d where that is between -1 and 1, else the sign of d
        for weight in weights:
            if weight is not None:
                dx *= weight.reshape(-1)
        dx *= dx.dtype.type(dloss.reshape(-1)[0] * scale)
