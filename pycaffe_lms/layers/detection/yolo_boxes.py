"""Boxes of YOLO: what the channels of a feature map mean, and overlaps of boxes with a centre.

A box is x, y of its centre, width, height along the last axis of an array, as fractions of the picture.
"""

from __future__ import annotations

import numpy as np

from ...arrays import HostArray
from ..base import Layer, Shape, Shapes
from .boxes import suppress

__all__ = [
    "anchors_of",
    "by_anchor",
    "check_map",
    "corners",
    "objects_of",
    "overlaps",
    "places",
    "remaining",
    "sigmoid",
]


def anchors_of(layer: Layer, biases: HostArray, number: int) -> HostArray:
    """Return widths and heights of `number` anchors, (number, 2). Raises LayerParamError."""
    if number < 1 or len(biases) != 2 * number or not (biases > 0).all():
        raise layer.error(
            f"has {len(biases)} biases for {number} anchors",
            fix="give each anchor a width and a height above 0: biases: 1.3 biases: 1.7",
        )
    return biases.reshape(-1, 2).astype(layer.dtype)


def check_map(layer: Layer, bottom_shapes: Shapes, bottom: int, anchors: int, classes: int) -> Shape:
    """Return the shape of a feature map. Raises ShapeError unless its channels are those of the anchors."""
    shape, each = tuple(bottom_shapes[bottom]), 5 + classes
    if len(shape) != 4 or shape[1] != anchors * each or shape[0] != bottom_shapes[0][0]:
        raise layer.shape_error(
            f"has shape {shape}, but {anchors} anchors and {classes} classes have {anchors} * (5 + {classes}) = "
            f"{anchors * each} channels",
            bottom=bottom,
            fix=f"give a feature map (N, {anchors * each}, H, W), or check the numbers of anchors and classes",
        )
    return shape


def objects_of(rows: HostArray, images: int) -> list[HostArray]:
    """Return (T, 5) rows of class from 0, x, y, width, height for each image, from AnnotatedData's (1, 1, G, 8)."""
    rows = rows.reshape(-1, 8)
    boxes = np.column_stack([rows[:, 1] - 1, (rows[:, 3:5] + rows[:, 5:7]) / 2, rows[:, 5:7] - rows[:, 3:5]])
    return [boxes[rows[:, 0].astype(np.int64) == n] for n in range(images)]


def by_anchor(x: HostArray, anchors: int) -> HostArray:
    """Return a feature map (N, A * D, H, W) as (N, H, W, A, D): x, y, width, height, object, classes."""
    images, channels, height, width = x.shape
    return x.reshape(images, anchors, channels // anchors, height, width).transpose(0, 3, 4, 1, 2)


def places(seen: HostArray, anchors: HostArray, step: float = 1) -> HostArray:
    """Return the boxes (N, H, W, A, 4) that `by_anchor` values mean; anchors (A, 2) are in 1 / step positions."""
    height, width = seen.shape[1:3]
    size = np.array([width, height], seen.dtype)
    first = np.stack(np.meshgrid(np.arange(width), np.arange(height)), axis=-1)[:, :, None]
    with np.errstate(over="ignore"):  # a box of infinite size, as in the fork
        sides = np.exp(seen[..., 2:4]) * anchors / (size * seen.dtype.type(step))
    return np.concatenate([(first + sigmoid(seen[..., :2])) / size, sides], axis=-1).astype(seen.dtype)


def sigmoid(x: HostArray) -> HostArray:
    """Return 1 / (1 + exp(-x)), without overflow."""
    small = np.exp(-np.abs(x))
    return np.asarray(np.where(x >= 0, 1, small) / (1 + small))


def corners(boxes: HostArray) -> HostArray:
    """Return boxes (..., 4) as xmin, ymin, xmax, ymax."""
    half = boxes[..., 2:] / 2
    return np.concatenate([boxes[..., :2] - half, boxes[..., :2] + half], axis=-1)


def overlaps(a: HostArray, b: HostArray) -> HostArray:
    """Return the intersections of boxes a (..., 4) with boxes b (..., 4), divided by their unions."""
    near, far = corners(a), corners(b)
    sides = np.minimum(near[..., 2:], far[..., 2:]) - np.maximum(near[..., :2], far[..., :2])
    with np.errstate(over="ignore", invalid="ignore"):  # boxes of a net that diverges
        common = np.where((sides >= 0).all(axis=-1), sides.prod(axis=-1), 0)
        union = a[..., 2] * a[..., 3] + b[..., 2] * b[..., 3] - common
        return np.asarray(np.divide(common, union, out=np.zeros_like(common), where=common > 0))


def remaining(boxes: HostArray, scores: HostArray, threshold: float) -> HostArray:
    """Return the positions, best first, of boxes (M, 4) that overlap no better one that remains by `threshold` or more.

    Of equal scores the first is better.
    """
    order = np.argsort(-scores, kind="stable")
    below = np.nextafter(boxes.dtype.type(threshold), boxes.dtype.type(-1))
    return np.asarray(order[suppress(corners(boxes[order]), float(below))])
