"""Compute softmax over the middle axis of (outer, c, inner), and its multinomial logistic loss."""

from __future__ import annotations

import numpy as np

from ....arrays import HostArray
from ...records import Grid, LabelGrid

__all__ = ["softmax_forward", "softmax_backward", "softmax_loss_forward", "softmax_loss_backward", "softmax_losses"]

FLT_MIN = float(np.finfo(np.float32).tiny)


def softmax_forward(x: HostArray, y: HostArray, grid: Grid) -> None:
    """Compute y = exp(x - max(x)) / sum(exp(x - max(x))) along c; y may be x."""
    if x.size == 0:
        return
    x, y = x.reshape(grid), y.reshape(grid)
    with np.errstate(invalid="ignore"):  # infinite scores give NaN
        np.subtract(x, x.max(axis=1, keepdims=True), out=y)
    np.exp(y, out=y)
    y /= y.sum(axis=1, keepdims=True)


def softmax_backward(y: HostArray, dy: HostArray, dx: HostArray, grid: Grid) -> None:
    """Compute dx = y * (dy - sum(dy * y)), sums along c; dx may be dy."""
    y, dy, dx = (a.reshape(grid) for a in (y, dy, dx))
    np.subtract(dy, np.einsum("oci,oci->oi", dy, y)[:, None], out=dx)
    dx *= y


def labels_of(label: HostArray, has_ignore: bool, ignore_label: int, c: int) -> tuple[HostArray, HostArray, HostArray]:
    """Return (truncated labels, mask of those that count, mask of those that count and name no class)."""
    label = np.trunc(label)
    counted = label != ignore_label if has_ignore else np.ones(label.shape, bool)
    return label, counted, counted & ~((label >= 0) & (label < c))


def softmax_loss_forward(
    prob: HostArray,
    label: HostArray,
    loss: HostArray,
    norm: HostArray,
    work: HostArray,
    normalizer: float,
    grid: LabelGrid,
) -> None:
    """Compute loss = sum of -log(max(p[label], FLT_MIN)) over the labels not ignored, divided by norm[0].

    norm[0] (float64) becomes max(1, normalizer), or max(1, number of labels not ignored) if normalizer < 0. A label
    outside 0..c-1 makes the loss NaN. `work` holds the GPU's partial sums: 512 doubles.
    """
    outer, c, inner, has_ignore, ignore_label = grid
    label, counted, wrong = labels_of(label.reshape(outer, inner), has_ignore, ignore_label, c)
    norm[0] = max(1.0, float(counted.sum()) if normalizer < 0 else normalizer)
    if wrong.any():
        loss.fill(np.nan)
        return
    o, i = np.nonzero(counted)
    p = prob.reshape(outer, c, inner)[o, label[o, i].astype(np.int64), i]
    loss.fill((0.0 - np.log(np.maximum(p, FLT_MIN)).sum(dtype=np.float64)) / norm[0])  # never -0, which would be shown


def softmax_losses(prob: HostArray, label: HostArray, losses: HostArray, grid: LabelGrid) -> None:
    """Compute losses = -log(max(p[label], FLT_MIN)), 0 at ignored labels, NaN at a label outside 0..c-1."""
    outer, c, inner, has_ignore, ignore_label = grid
    label, counted, wrong = labels_of(label.reshape(outer, inner), has_ignore, ignore_label, c)
    losses = losses.reshape(outer, inner)
    losses.fill(0)
    o, i = np.nonzero(counted & ~wrong)
    p = prob.reshape(outer, c, inner)[o, label[o, i].astype(np.int64), i]
    losses[o, i] = -np.log(np.maximum(p, FLT_MIN))
    losses[wrong] = np.nan


def softmax_loss_backward(
    prob: HostArray, label: HostArray, dloss: HostArray, norm: HostArray, dx: HostArray, grid: LabelGrid
) -> None:
    """Compute dx = (p - onehot(label)) * dloss / norm[0]; 0 at ignored labels, NaN at a label outside 0..c-1."""
    outer, c, inner, has_ignore, ignore_label = grid
    label, counted, wrong = labels_of(label.reshape(outer, inner), has_ignore, ignore_label, c)
    prob, dx = prob.reshape(outer, c, inner), dx.reshape(outer, c, inner)
    np.copyto(dx, prob)
    o, i = np.nonzero(counted & ~wrong)
    dx[o, label[o, i].astype(np.int64), i] -= 1
    dx *= dx.dtype.type(dloss.reshape(-1)[0] / norm[0])
    np.copyto(dx, 0, where=~counted[:, None])
    np.copyto(dx, np.nan, where=wrong[:, None])
