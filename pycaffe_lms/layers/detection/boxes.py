"""Boxes of SSD: areas and overlaps, codes relative to default boxes, suppression of boxes that overlap, pixels.

A box is xmin, ymin, xmax, ymax along the last axis of an array; results have the type of the boxes.
Source: weiliu89/caffe (SSD), src/caffe/util/bbox_util.cpp (definitions).
"""

from __future__ import annotations

import numpy as np

from ...arrays import HostArray
from ...ops.cpu.detection.nms import areas, greedy
from ...proto import caffe_pb2

__all__ = ["areas", "decode", "encode", "overlaps", "priors_of", "suppress", "to_pixels"]

CORNER, CENTER_SIZE, CORNER_SIZE = (
    caffe_pb2.PriorBoxParameter.CodeType.Value(name) for name in ("CORNER", "CENTER_SIZE", "CORNER_SIZE")
)
_RESIZE = caffe_pb2.ResizeParameter


def priors_of(blob: HostArray) -> tuple[HostArray, HostArray]:
    """Return the default boxes and their variances, (P, 4) each, from PriorBox's top (1, 2, P * 4)."""
    boxes, variances = blob[0].reshape(2, -1, 4)
    return boxes, variances


def overlaps(a: HostArray, b: HostArray, pixels: bool = False) -> HostArray:
    """Return (A, B): the intersection of every box of a (A, 4) with every box of b (B, 4), divided by their union."""
    with np.errstate(over="ignore", invalid="ignore"):  # as in `areas`
        sides = np.minimum(a[:, None, 2:], b[:, 2:]) - np.maximum(a[:, None, :2], b[:, :2]) + int(pixels)
        common = np.where((sides > 0).all(axis=-1), sides.prod(axis=-1), a.dtype.type(0))
        union = areas(a, pixels)[:, None] + areas(b, pixels) - common
        return np.asarray(np.divide(common, union, out=np.zeros_like(common), where=common > 0))


def decode(code: int, priors: HostArray, scale: HostArray, predicted: HostArray) -> HostArray:
    """Return the boxes that predictions (..., P, 4) mean, relative to default boxes (P, 4) or (..., P, 4).

    code: a CodeType. scale: (P, 4), what predictions are multiplied by, the variances or 1.
    """
    steps, low, high = scale * predicted, priors[..., :2], priors[..., 2:]
    if code == CORNER:
        return np.asarray(priors + steps)
    size = high - low
    if code == CORNER_SIZE:
        return np.asarray(priors + steps * np.concatenate([size, size], axis=-1))
    centre = steps[..., :2] * size + (low + high) / 2
    with np.errstate(over="ignore"):  # a box of infinite size, as in the fork
        half = np.exp(steps[..., 2:]) * size / 2
    return np.concatenate([centre - half, centre + half], axis=-1)


def encode(code: int, priors: HostArray, scale: HostArray, boxes: HostArray) -> HostArray:
    """Return the predictions (M, 4) that mean these boxes (M, 4), each relative to its default box: see `decode`."""
    if code == CORNER:
        return np.asarray((boxes - priors) / scale)
    size = priors[:, 2:] - priors[:, :2]
    if code == CORNER_SIZE:
        return np.asarray((boxes - priors) / np.concatenate([size, size], axis=1) / scale)
    centres = (boxes[:, :2] + boxes[:, 2:]) / 2 - (priors[:, :2] + priors[:, 2:]) / 2
    return np.concatenate([centres / size, np.log((boxes[:, 2:] - boxes[:, :2]) / size)], axis=1) / scale


def suppress(
    boxes: HostArray, threshold: float, eta: float = 1.0, *, pixels: bool = False, most: int | None = None
) -> HostArray:
    """Return the positions of those boxes (M, 4; best first) that overlap no better one that remains by more than this.

    With eta below 1 a threshold above 0.5 is multiplied by it after every box that remains. pixels: count both ends in,
    of boxes that touch. most: return no more than these.
    """
    kept, number = np.empty(len(boxes) if most is None else min(most, len(boxes)), np.int64), boxes.dtype.type
    numbers = number(threshold), number(eta), number(pixels)
    return kept[: greedy(np.ascontiguousarray(boxes), areas(boxes, pixels), *numbers, kept)]


def to_pixels(boxes: HostArray, height: int, width: int, resize: caffe_pb2.ResizeParameter | None) -> HostArray:
    """Return boxes (M, 4), fractions of what a net sees, in pixels of a picture of this size, and cut to it.

    resize: how the picture was made into what the net sees; None: stretched.
    """
    size = np.array([width, height] * 2, boxes.dtype)
    mode = _RESIZE.WARP if resize is None else resize.resize_mode
    if resize is not None and mode == _RESIZE.FIT_SMALL_SIZE and resize.height_scale and resize.width_scale:
        seen = np.array([resize.width_scale, resize.height_scale] * 2, boxes.dtype)
        return np.asarray(np.clip(boxes * seen, 0, size))
    if resize is not None and mode == _RESIZE.FIT_LARGE_SIZE_AND_PAD:
        scale = min(resize.width / width, resize.height / height)
        share = np.array([scale * width / resize.width, scale * height / resize.height] * 2)
        boxes = ((boxes - (1 - share) / 2) / share).astype(boxes.dtype)
    return np.asarray(np.clip(boxes, 0, 1) * size)
