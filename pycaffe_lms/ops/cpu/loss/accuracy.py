"""Count right answers."""

from __future__ import annotations

import numpy as np

from ....arrays import HostArray
from ...records import LabelGrid

__all__ = ["accuracy_forward"]


def accuracy_forward(
    scores: HostArray,
    label: HostArray,
    accuracy: HostArray,
    per_class: HostArray | None,
    counts: HostArray,
    top_k: int,
    grid: LabelGrid,
) -> None:
    """Compute accuracy = right / counted (0 if nothing counts), and per class in `per_class` (c values or None).

    An answer is right if fewer than top_k other scores are >= the score of the true class (a NaN is >= nothing). A
    label outside 0..c-1 makes `accuracy` NaN and belongs to no class. `counts`: 3 + 2 * c int32, for the GPU.
    """
    outer, c, inner, has_ignore, ignore_label = grid
    scores, label = scores.reshape(outer, c, inner), np.trunc(label.reshape(outer, inner))
    counted = label != ignore_label if has_ignore else np.ones(label.shape, bool)
    wrong = counted & ~((label >= 0) & (label < c))
    o, i = np.nonzero(counted & ~wrong)
    classes = label[o, i].astype(np.int64)
    true = np.full((outer, inner), np.nan, scores.dtype)
    true[o, i] = scores[o, classes, i]
    right = ((scores >= true[:, None]).sum(axis=1) - 1 < top_k)[o, i]
    accuracy.fill(np.nan if wrong.any() else right.sum() / max(1, classes.size))
    if per_class is not None:
        hits = np.bincount(classes[right], minlength=c)
        per_class.reshape(-1)[...] = hits / np.maximum(1, np.bincount(classes, minlength=c))
