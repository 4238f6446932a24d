"""Compute losses with a margin over (n, c): the hinge of every class, and the distance of pairs."""

from __future__ import annotations

import numpy as np

from ....arrays import HostArray
from ...records import Contrast

__all__ = ["hinge_loss_forward", "hinge_loss_backward", "contrastive_loss_forward", "contrastive_loss_backward"]


def _margins(x: HostArray, label: HostArray, n: int, c: int) -> tuple[HostArray, HostArray, HostArray]:
    """Return (max(0, 1 - s x), s, mask of items whose label names no class), s being 1 at the label, else -1."""
    label = np.trunc(label.reshape(n))
    wrong = ~((label >= 0) & (label < c))
    signs = np.full((n, c), -1, x.dtype)
    rows = np.flatnonzero(~wrong)
    signs[rows, label[rows].astype(np.int64)] = 1
    margins = np.subtract(1, signs * x.reshape(n, c))
    return np.maximum(margins, 0, out=margins), signs, wrong


def hinge_loss_forward(
    x: HostArray, label: HostArray, loss: HostArray, work: HostArray, squared: bool, scale: float, n: int, c: int
) -> None:
    """Compute loss = scale * sum of m (m^2 if `squared`), m = max(0, 1 - s x), s = 1 at the label and -1 elsewhere.

    A label outside 0..c-1 makes the loss NaN. `work`: 2 * LOSS_BLOCKS doubles for a GPU's partial sums.
    """
    margins, _, wrong = _margins(x, label, n, c)
    margins = margins.astype(np.float64)
    if squared:
        np.square(margins, out=margins)
    with np.errstate(over="ignore"):  # a net that diverges ends in inf and NaN, as on a GPU
        loss.fill(np.nan if wrong.any() and c else margins.sum() * scale)


def hinge_loss_backward(
    x: HostArray, label: HostArray, dloss: HostArray, dx: HostArray, squared: bool, scale: float, n: int, c: int
) -> None:
    """Compute dx = -s * dloss * scale * sign(m) (2 m if `squared`); NaN where an item's label is outside 0..c-1."""
    margins, signs, wrong = _margins(x, label, n, c)
    dx = dx.reshape(n, c)
    np.multiply(2 * margins if squared else np.sign(margins), signs, out=dx)
    dx *= dx.dtype.type(-dloss.reshape(-1)[0] * scale)
    dx[wrong] = np.nan


def contrastive_loss_forward(
    a: HostArray,
    b: HostArray,
    y: HostArray,
    loss: HostArray,
    distance: HostArray,
    work: HostArray,
    scale: float,
    contrast: Contrast,
) -> None:
    """Compute loss = scale * sum of d^2 where int(y) is not 0, else of max(margin - d, 0)^2, with d = |a - b|.

    With `legacy` the latter is max(margin - d^2, 0). `distance` (a double for each pair) receives d^2, which backward
    reads. `work` holds the GPU's partial sums: 512 doubles.
    """
    n, c, margin, legacy = contrast
    with np.errstate(over="ignore", invalid="ignore"):
        difference = (a.reshape(n, c) - b.reshape(n, c)).astype(np.float64)
        distance[...] = np.square(difference, out=difference).sum(axis=1)
        apart = np.maximum(margin - distance, 0) if legacy else np.square(np.maximum(margin - np.sqrt(distance), 0))
        loss.fill(np.where(np.trunc(y.reshape(n)) != 0, distance, apart).sum() * scale)


def contrastive_loss_backward(
    a: HostArray,
    b: HostArray,
    y: HostArray,
    dloss: HostArray,
    distance: HostArray,
    dx: HostArray,
    scale: float,
    contrast: Contrast,
) -> None:
    """Compute dx = dloss * scale * (a - b) * factor.

    The factor is 1 where int(y) is not 0, else -max(margin - d, 0) / (d + 1e-4); with `legacy` the latter is -1 where
    d^2 < margin, else 0.
    """
    n, c, margin, legacy = contrast
    d, dx = np.sqrt(distance), dx.reshape(n, c)
    with np.errstate(over="ignore", invalid="ignore"):
        apart = np.where(distance < margin, -1.0, 0.0) if legacy else -np.maximum(margin - d, 0) / (d + 1e-4)
        factor = np.where(np.trunc(y.reshape(n)) != 0, 1.0, apart) * (float(dloss.reshape(-1)[0]) * scale)
        np.subtract(a.reshape(n, c), b.reshape(n, c), out=dx)
        dx *= factor.astype(dx.dtype)[:, None]
