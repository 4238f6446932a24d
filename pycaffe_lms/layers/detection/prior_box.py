"""PriorBox: default boxes of a feature map, for detection as in SSD."""

from __future__ import annotations

import numpy as np

from ...arrays import HostArray
from ...proto import caffe_pb2
from ..base import Declaration, Layer, Needs, Pass, Reads, Runs, Shapes, exactly
from ..registry import register_layer

_SHRUNK, _MARGIN = 60, 0.05  # with tf: the side of the square that is smaller, in pixels; by how much of the picture


@register_layer("PriorBox")
class PriorBoxLayer(Layer):
    """Boxes around every position of a feature map, as fractions of the picture: constants, computed once.

    The centre of position (h, w) is at pixel ((w + offset) * step_w, (h + offset) * step_h). Its boxes, for each
    min_size: a square of side min_size; with max_size, a square of side sqrt(min_size * max_size); then for every
    aspect ratio r other than 1 (with flip also 1 / r) a box min_size * sqrt(r) wide and min_size / sqrt(r) high. Sizes
    are first truncated to whole pixels, as in the fork (SSD512 writes 35.84 and was trained with 35).
    Synopsys: with tf the square of max_size comes last, and a square of 60 pixels is smaller by 0.05 of the picture on
    every side; with yx_order a box is ymin, xmin, ymax, xmax.
    Bottom 0: the feature map, (N, C, H, W). Bottom 1: the picture, 4 axes. Only their sizes are read; both gradients
    are 0.
    Top 0: (1, 2, H * W * boxes * 4): xmin, ymin, xmax, ymax of every box (within 0..1 with clip), then their variances.
    Raises: LayerParamError for sizes, ratios, variances or steps that are missing, contradict each other or are not
    above 0; ShapeError for bottoms without 4 axes or without pixels.
    Source: weiliu89/caffe (SSD) and foss-for-synopsys-dwc-arc-processors/synopsys-caffe,
    src/caffe/layers/prior_box_layer.cpp.
    """

    declares = Declaration(bottoms=exactly(2), runs_on=Runs.NOWHERE, backward_reads=Reads.NONE)

    def setup(self, bottom_shapes: Shapes) -> None:
        box = self.param.prior_box_param
        for name in ("min_size", "max_size", "aspect_ratio", "variance"):
            if any(not value > 0 for value in getattr(box, name)):
                raise self.error(f"{name} has a value that is not above 0", fix="use values above 0")
        if not box.min_size:
            raise self.error("min_size is not given", fix="add prior_box_param { min_size: ... }, in pixels")
        if box.max_size and len(box.max_size) != len(box.min_size):
            raise self.error(
                f"{len(box.max_size)} max_size for {len(box.min_size)} min_size", fix="give each min_size one max_size"
            )
        if any(high <= low for low, high in zip(box.min_size, box.max_size, strict=False)):
            raise self.error("a max_size is not above its min_size", fix="give pairs in the same order")
        if len(box.variance) not in (0, 1, 4):
            raise self.error(f"{len(box.variance)} variance values", fix="give 1, or 4")
        self.image = self._pair("img_size", "img_w", "img_h")
        self.steps = self._pair("step", "step_w", "step_h")
        self.sides = self._sides(box)

    def _pair(self, one: str, x: str, y: str) -> tuple[float, float] | None:
        """Return (x, y) from the field `one` for both, or from the fields `x` and `y`; None if none is given."""
        box = self.param.prior_box_param
        each = [name for name in (x, y) if box.HasField(name)]
        if box.HasField(one) and each:
            raise self.error(f"{one} and {each[0]} are both given", fix=f"keep {one}, or {x} with {y}")
        if len(each) == 1:
            raise self.error(f"{each[0]} is given alone", fix=f"give {x} and {y}")
        names = each or ([one] * 2 if box.HasField(one) else [])
        values = [getattr(box, name) for name in names]
        if any(not value > 0 for value in values):
            raise self.error(f"{names[0]} is not above 0", fix="use values above 0")
        return (values[0], values[1]) if values else None

    def _sides(self, box: caffe_pb2.PriorBoxParameter) -> HostArray:
        """Return the width and height, in pixels, of each box of one position: shape (boxes, 2)."""
        ratios, self.shrunk = [1.0], list[int]()  # shrunk: the numbers of the smaller squares
        for ratio in box.aspect_ratio:
            if all(abs(ratio - known) >= 1e-6 for known in ratios):
                ratios += [ratio, 1 / ratio] if box.flip else [ratio]
        sides = list[tuple[float, float]]()
        for i, size in enumerate(map(int, box.min_size)):
            others = [(size * np.sqrt(r), size / np.sqrt(r)) for r in ratios if abs(r - 1) >= 1e-6]
            large = [(np.sqrt(size * int(box.max_size[i])),) * 2] if box.max_size else []
            if box.tf and size == _SHRUNK:
                self.shrunk.append(len(sides))
            sides += [(size, size), *(others + large if box.tf else large + others)]
        return np.array(sides, np.float64)

    def infer_shapes(self, bottom_shapes: Shapes) -> Shapes:
        for i, shape in enumerate(map(tuple, bottom_shapes)):
            if len(shape) != 4 or 0 in shape[2:]:
                raise self.shape_error(f"has shape {shape}", bottom=i, fix="give bottoms (N, C, H, W) with pixels")
        self.positions = bottom_shapes[0][3], bottom_shapes[0][2]
        self.picture = self.image or (bottom_shapes[1][3], bottom_shapes[1][2])
        return [(1, 2, self.positions[0] * self.positions[1] * self.sides.size * 2)]

    def rewrites(self, top: int) -> bool:
        return False

    def fill_once(self, top: int, array: HostArray) -> None:
        box, picture = self.param.prior_box_param, np.array(self.picture, np.float64)
        steps = np.array(self.steps or picture / self.positions)
        h, w = np.indices(self.positions[::-1]).reshape(2, -1)
        centres = (np.stack([w, h], axis=1) + box.offset) * steps  # (positions, 2)
        boxes, variances = array[0].reshape(2, len(centres), len(self.sides), 4)
        boxes[..., :2] = (centres[:, None] - self.sides / 2) / picture
        boxes[..., 2:] = (centres[:, None] + self.sides / 2) / picture
        boxes[:, self.shrunk, :2] += _MARGIN
        boxes[:, self.shrunk, 2:] -= _MARGIN
        if box.yx_order:
            boxes[...] = boxes[..., [1, 0, 3, 2]]
        if box.clip:
            np.clip(boxes, 0, 1, out=boxes)
        variances[...] = list(box.variance) or 0.1

    def forward_needs(self) -> Needs:
        return Needs()

    def backward(self, io: Pass) -> None:
        for diff in io.bottom_diff:
            if diff is not None:
                io.ops.fill(diff, 0)
