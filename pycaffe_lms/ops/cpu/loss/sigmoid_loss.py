"""Compute the cross entropy of sigmoids, element by element."""

from __future__ import annotations

import numpy as np

from ....arrays import HostArray
from ..channels import row_slices
from ..logistic import sigmoid

__all__ = ["sigmoid_loss_forward", "sigmoid_loss_backward"]


def _ignored(t: HostArray, has_ignore: bool, ignore_label: int) -> HostArray | None:
    return np.trunc(t) == ignore_label if has_ignore else None


def sigmoid_loss_forward(
    x: HostArray,
    t: HostArray,
    loss: HostArray,
    norm: HostArray,
    work: HostArray,
    has_ignore: bool,
    ignore_label: int,
    normalizer: float,
) -> None:
    """Compute loss = -sum of (t log(sigmoid(x)) + (1 - t) log(1 - sigmoid(x))) over targets not ignored, by norm[0].

    norm[0] (float64) becomes max(1, normalizer), or max(1, number of targets not ignored) if normalizer < 0. A target
    whose integer part is ignore_label is ignored. `work`: 2 * LOSS_BLOCKS doubles for a GPU's partial sums.
    """
    x, t = x.reshape(-1), t.reshape(-1)
    total, counted = 0.0, x.size
    for items in row_slices(x.size, 1):
        score, target = x[items], t[items]
        with np.errstate(invalid="ignore"):  # infinite scores may give NaN
            parts = np.log1p(np.exp(-np.abs(score))) - score * (target - (score >= 0))
        ignored = _ignored(target, has_ignore, ignore_label)
        if ignored is not None:
            parts[ignored] = 0
            counted -= int(ignored.sum())
        total += float(parts.sum(dtype=np.float64))
    norm[0] = max(1.0, float(counted if normalizer < 0 else normalizer))
    loss.fill(total / norm[0])


def sigmoid_loss_backward(
    x: HostArray, t: HostArray, dloss: HostArray, norm: HostArray, dx: HostArray, has_ignore: bool, ignore_label: int
) -> None:
    """Compute dx = (sigmoid(x) - t) * dloss / norm[0]; 0 at ignored targets."""
    x, t, dx = x.reshape(-1), t.reshape(-1), dx.reshape(-1)
    sigmoid(x, out=dx)
    dx -= t
    dx *= dx.dtype.type(dloss.reshape(-1)[0] / norm[0])
    ignored = _ignored(t, has_ignore, ignore_label)
    if ignored is not None:
        dx[ignored] = 0
