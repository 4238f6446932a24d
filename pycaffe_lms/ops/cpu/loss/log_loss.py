"""Compute logistic losses: of probabilities (n, c), and of a softmax (outer, c, inner) with class weights."""

from __future__ import annotations

import numpy as np

from ....arrays import HostArray
from ...records import LabelGrid
from ..channels import row_slices

__all__ = [
    "multinomial_loss_forward",
    "multinomial_loss_backward",
    "upload_matrix",
    "infogain_loss_forward",
    "infogain_loss_backward",
]

_FLOOR = 1e-20


def _labels(label: HostArray, c: int) -> tuple[HostArray, HostArray]:
    """Return (labels as integers, 0 where they name no class; mask of those that name none)."""
    label = np.trunc(label)
    wrong = ~((label >= 0) & (label < c))
    return np.where(wrong, 0, label).astype(np.int64), wrong


def multinomial_loss_forward(
    p: HostArray, label: HostArray, loss: HostArray, work: HostArray, scale: float, n: int, c: int
) -> None:
    """Compute loss = -scale * sum of log(max(p[label], 1e-20)).

    A label outside 0..c-1 makes the loss NaN. `work`: 2 * LOSS_BLOCKS doubles for a GPU's partial sums.
    """
    label, wrong = _labels(label.reshape(n), c)
    if wrong.any():
        loss.fill(np.nan)
        return
    total = np.log(np.maximum(p.reshape(n, c)[np.arange(n), label], _FLOOR)).sum(dtype=np.float64)
    loss.fill((0.0 - total) * scale)  # never -0, which would be shown


def multinomial_loss_backward(
    p: HostArray, label: HostArray, dloss: HostArray, dx: HostArray, scale: float, n: int, c: int
) -> None:
    """Compute dx = -dloss * scale / max(p, 1e-20) at the label, 0 elsewhere; NaN where a label is outside 0..c-1."""
    label, wrong = _labels(label.reshape(n), c)
    dx, rows = dx.reshape(n, c), np.flatnonzero(~wrong)
    dx.fill(0)
    factor = dx.dtype.type(-dloss.reshape(-1)[0] * scale)
    dx[rows, label[rows]] = factor / np.maximum(p.reshape(n, c)[rows, label[rows]], _FLOOR)
    dx[wrong] = np.nan


def upload_matrix(host: HostArray, matrix: HostArray) -> None:
    """Copy `host`, an array in host memory that stays unchanged, to `matrix`."""
    np.copyto(matrix, host)


def infogain_loss_forward(
    prob: HostArray,
    label: HostArray,
    matrix: HostArray,
    loss: HostArray,
    norm: HostArray,
    work: HostArray,
    normalizer: float,
    grid: LabelGrid,
) -> None:
    """Compute loss = -sum of matrix[label, l] * log(max(p[l], 1e-20)) over labels not ignored, divided by norm[0].

    norm[0] (float64) becomes max(1, normalizer), or max(1, number of labels not ignored) if normalizer < 0. A label
    outside 0..c-1 makes the loss NaN. `work`: 2 * LOSS_BLOCKS doubles for a GPU's partial sums.
    """
    outer, c, inner, has_ignore, ignore_label = grid
    label, matrix = label.reshape(outer, inner), matrix.reshape(c, c)
    counted = np.trunc(label) != ignore_label if has_ignore else np.ones(label.shape, bool)
    label, wrong = _labels(label, c)
    norm[0] = max(1.0, float(counted.sum()) if normalizer < 0 else normalizer)
    if (wrong & counted).any():
        loss.fill(np.nan)
        return
    total, prob = 0.0, prob.reshape(outer, c, inner)
    for items in row_slices(outer, c * inner):
        gains = np.log(np.maximum(prob[items], _FLOOR))
        gains *= matrix[label[items]].transpose(0, 2, 1)
        gains *= counted[items, None]
        total += float(gains.sum(dtype=np.float64))
    loss.fill((0.0 - total) / norm[0])


def infogain_loss_backward(
    prob: HostArray,
    label: HostArray,
    matrix: HostArray,
    dloss: HostArray,
    norm: HostArray,
    row_sums: HostArray,
    dx: HostArray,
    grid: LabelGrid,
) -> None:
    """Compute dx = (p * sum(matrix[label]) - matrix[label]) * dloss / norm[0].

    dx is 0 at ignored labels and NaN at labels outside 0..c-1. row_sums (c doubles) receives the sums of matrix rows.
    """
    outer, c, inner, has_ignore, ignore_label = grid
    label, matrix = label.reshape(outer, inner), matrix.reshape(c, c)
    prob, dx = prob.reshape(outer, c, inner), dx.reshape(outer, c, inner)
    ignored = np.trunc(label) == ignore_label if has_ignore else np.zeros(label.shape, bool)
    label, wrong = _labels(label, c)
    matrix.sum(axis=1, dtype=np.float64, out=row_sums)
    sums = row_sums.astype(dx.dtype)
    if c:
        np.multiply(prob, sums[label][:, None], out=dx)
        dx -= matrix[label].transpose(0, 2, 1)
    dx *= dx.dtype.type(dloss.reshape(-1)[0] / norm[0])
    np.copyto(dx, np.nan, where=wrong[:, None])
    np.copyto(dx, 0, where=ignored[:, None])
