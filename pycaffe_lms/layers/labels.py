"""What layers with scores and labels share: the axis of the classes, the check that each position has a label, and
which labels name no class."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from .base import count


@dataclass(frozen=True)
class Labels:
    """Bottom `bottom` holds labels, which are cut to integers: 0 to classes - 1 name a class, `ignore` may stand for
    none. Any other makes what the layer computes NaN."""

    bottom: int
    classes: int
    ignore: int | None = None

    def outside(self, labels: np.ndarray) -> np.ndarray:
        """Positions, in the flattened array, of labels that name no class and are not ignored; NaN is one."""
        whole = np.trunc(labels.reshape(-1))
        fine = (whole >= 0) & (whole < self.classes)
        if self.ignore is not None:
            fine |= whole == self.ignore
        return np.flatnonzero(~fine)


def class_sizes(layer, bottom_shapes, axis):
    """(positions before the class axis, classes, positions behind it). Raises ShapeError through the layer."""
    scores, labels = tuple(bottom_shapes[0]), tuple(bottom_shapes[1])
    axis = layer.canonical_axis(axis, len(scores))
    outer, classes, inner = count(scores, 0, axis), count(scores, axis, axis + 1), count(scores, axis + 1)
    if count(labels) != outer * inner:
        raise layer.shape_error(
            f'has shape {labels}: {count(labels)} labels, but "{layer.param.bottom[0]}" of shape {scores} has '
            f"{outer * inner} positions around its class axis {axis}",
            bottom=1,
            fix="give one label for each position, or set axis to the axis of the classes",
        )
    return outer, classes, inner
