"""Follow the boxes of a picture's objects through crops, resizing and mirroring, as SSD's fork of Caffe does.

Boxes are float32 arrays (n, 4): xmin, ymin, xmax, ymax as fractions of the picture's width and height.
Source: weiliu89/caffe (SSD), src/caffe/util/bbox_util.cpp, im_transforms.cpp, data_transformer.cpp (behaviour).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ...errors import DataError
from ...proto.caffe_pb2 import EmitConstraint, ResizeParameter


@dataclass(frozen=True)
class Objects:
    """Hold the objects of a picture, those of a class together.

    boxes: float32 (n, 4). tags: int64 (n, 3), of each its class, its number within the class, and 1 if it is difficult.
    """

    boxes: np.ndarray
    tags: np.ndarray

    def __len__(self) -> int:
        return len(self.boxes)

    def rows(self, item: int) -> np.ndarray:
        """Return float64 (n, 8): item, class, number, xmin, ymin, xmax, ymax, difficult."""
        first = np.full((len(self), 1), item)
        return np.concatenate([first, self.tags[:, :2], self.boxes, self.tags[:, 2:]], axis=1, dtype=np.float64)

    def cropped(self, crop: tuple[float, ...] | np.ndarray, emit: EmitConstraint | None) -> Objects:
        """Return what is within `crop`, a box that may be larger than the picture, as fractions of it.

        Objects that do not meet `emit`, or of which nothing is within, are left out.
        """
        crop = np.asarray(crop, np.float32)
        keep = (self.boxes[:, :2] < crop[2:]).all(1) & (self.boxes[:, 2:] > crop[:2]).all(1)
        if emit is not None:
            keep &= _meets(self.boxes, crop, emit)
        moved = np.clip((self.boxes - np.tile(crop[:2], 2)) / np.tile(crop[2:] - crop[:2], 2), 0, 1)
        keep &= areas(moved) > 0
        return Objects(moved[keep], self.tags[keep])

    def resized(self, param: ResizeParameter, height: int, width: int) -> Objects:
        """Return the same objects after `param` resized a picture of height x width."""
        new, padding = _placed(param, height, width)
        pixels = self.boxes * np.tile(new - 2 * padding, 2)
        pixels[:, :2] = padding + np.maximum(pixels[:, :2], 0)
        pixels[:, 2:] = padding + np.minimum(pixels[:, 2:], new)
        return Objects(pixels / np.tile(new, 2), self.tags)

    def mirrored(self) -> Objects:
        """Return the same objects with left and right exchanged."""
        xmin, ymin, xmax, ymax = self.boxes.T
        return Objects(np.stack([1 - xmax, ymin, 1 - xmin, ymax], axis=1), self.tags)

    def rescaled(self, param: ResizeParameter, height: int, width: int, crop: np.ndarray) -> Objects:
        """Return boxes as fractions of height_scale x width_scale instead of the crop: FIT_SMALL_SIZE alone has these.

        height, width: of the picture before it was resized. crop: of the resized picture, as fractions.
        Raises: DataError where the crop is smaller than that.
        """
        scale = np.array([param.width_scale, param.height_scale], np.float32)
        if param.resize_mode != ResizeParameter.FIT_SMALL_SIZE or not scale.all():
            return self
        new, _ = _placed(param, height, width)
        crop = np.asarray(crop, np.float32)
        size = new * (crop[2:] - crop[:2])
        if (size < scale).any():
            raise DataError(
                f"a crop of {size[1]:g} x {size[0]:g} pixels (height x width) is smaller than height_scale "
                f"{param.height_scale} x width_scale {param.width_scale}",
                fix="write smaller scales, or a larger crop",
            )
        return Objects(self.boxes * np.tile(size, 2) / np.tile(scale, 2), self.tags)


def _placed(param: ResizeParameter, height: int, width: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the resized picture's width and height, and the padding at its left and its top, in pixels.

    They are not rounded to whole pixels, as in the fork.
    """
    new = np.array([param.width, param.height], np.float32)
    padding = np.zeros(2, np.float32)
    aspect = np.float32(width) / np.float32(height)
    if param.resize_mode == ResizeParameter.FIT_LARGE_SIZE_AND_PAD:
        if aspect > new[0] / new[1]:
            padding[1] = (new[1] - new[0] / aspect) / 2
        else:
            padding[0] = (new[0] - aspect * new[1]) / 2
    elif param.resize_mode == ResizeParameter.FIT_SMALL_SIZE:
        if aspect < new[0] / new[1]:
            new[1] = new[0] / aspect
        else:
            new[0] = aspect * new[1]
    return new, padding


def areas(boxes: np.ndarray) -> np.ndarray:
    """Return the area of boxes (..., 4); 0 where a box ends before it begins."""
    sides = boxes[..., 2:] - boxes[..., :2]
    return np.asarray(np.where((sides < 0).any(-1), 0, sides.prod(-1)))


def intersections(one: np.ndarray, other: np.ndarray) -> np.ndarray:
    """Return the area that boxes (..., 4) have in common; shapes broadcast."""
    low, high = np.maximum(one[..., :2], other[..., :2]), np.minimum(one[..., 2:], other[..., 2:])
    return np.asarray(np.clip(high - low, 0, None).prod(-1))


def coverages(one: np.ndarray, other: np.ndarray) -> np.ndarray:
    """Return the share of each box of `one` that `other` covers; 0 for a box without an area."""
    return _ratio(intersections(one, other), areas(one))


def jaccard_overlaps(one: np.ndarray, other: np.ndarray) -> np.ndarray:
    """Return the area that boxes have in common over the area that they cover together."""
    common = intersections(one, other)
    return _ratio(common, areas(one) + areas(other) - common)


def _ratio(part: np.ndarray, whole: np.ndarray) -> np.ndarray:
    return np.asarray(np.divide(part, whole, out=np.zeros_like(part), where=part > 0))


def _meets(boxes: np.ndarray, crop: np.ndarray, emit: EmitConstraint) -> np.ndarray:
    """Return for each box whether it remains."""
    if emit.emit_type == EmitConstraint.MIN_OVERLAP:
        return coverages(boxes, crop) > np.float32(emit.emit_overlap)
    centres = (boxes[:, :2] + boxes[:, 2:]) / 2
    return np.asarray(((centres >= crop[:2]) & (centres <= crop[2:])).all(1))
