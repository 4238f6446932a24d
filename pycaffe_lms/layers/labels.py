"""What layers with scores and labels share: the axis of the classes, and the check that each position has a label."""

from __future__ import annotations

from .base import count


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
