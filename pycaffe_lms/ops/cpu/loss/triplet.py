"""Compute the loss of triplets: an anchor shall be nearer to one row than to another."""

from __future__ import annotations

import numpy as np

from ....arrays import HostArray
from ...records import Triplets

__all__ = ["triplet_loss_backward", "triplet_loss_forward"]


def triplet_loss_forward(
    bottoms: Triplets,
    loss: HostArray,
    gap: HostArray,
    work: HostArray,
    margin: float,
    scale: float,
    n: int,
    c: int,
) -> None:
    """Compute loss = scale * sum of weight * max(gap, 0), gap = margin + |a - p|^2 - |a - n|^2 of three bottoms.

    `gap` (float64, n) is read by backward. `work` holds the GPU's partial sums.
    """
    a, p, b = (x.reshape(n, c) for x in bottoms[:3])
    with np.errstate(over="ignore", invalid="ignore"):
        near, far = (np.square((a - x).astype(np.float64)).sum(axis=1) for x in (p, b))
        gap[...] = margin + near - far
        weight = 1.0 if bottoms.weight is None else bottoms.weight.reshape(n).astype(np.float64)
        loss.fill((weight * np.maximum(gap, 0)).sum() * scale)


def triplet_loss_backward(
    bottoms: Triplets, dloss: HostArray, gap: HostArray, dx: HostArray, which: int, scale: float, n: int, c: int
) -> None:
    """Compute dx, of bottom `which`: its one of negative - positive, positive - anchor and anchor - negative.

    Each is times dloss * scale * weight where gap > 0, and 0 elsewhere. A bottom that is not read may be None.
    """
    a, p, b, _ = bottoms
    minuend, subtrahend = (x.reshape(n, c) for x in ((b, p), (p, a), (a, b))[which])
    factor = np.where(gap > 0, float(dloss.reshape(-1)[0]) * scale, 0.0)
    if bottoms.weight is not None:
        factor *= bottoms.weight.reshape(n)
    dx = dx.reshape(n, c)
    with np.errstate(over="ignore", invalid="ignore"):
        np.subtract(minuend, subtrahend, out=dx)
        dx *= factor.astype(dx.dtype)[:, None]
        dx[~(gap > 0)] = 0
