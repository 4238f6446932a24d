"""BoxOutput, BoxGroupOutput, DecodeBBox, ScaleRoute, HardMining: regions of MS-CNN and Cascade R-CNN.

Boxes of BoxGroupOutput, DecodeBBox and ScaleRoute are of pixels, both ends counted in; those of BoxOutput are not.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from ....arrays import HostArray
from ....errors import DataError
from ...base import TRAIN, Layer, Shape, Shapes, at_least, between, count
from ...registry import register_layer
from ..boxes import areas, suppress
from ..detection_output import best_first, for_images
from ..proposal import CountedRowsLayer
from .measures import means_and_deviations

_NO_BOX = (0, 1, 1, 10, 10)  # the region of a batch without any


class _RegressedBoxes(CountedRowsLayer):
    """A layer that turns regressions into boxes. Reads bbox_reg_param: they are multiplied by bbox_std, and bbox_mean
    is added; without both they are taken as they are."""

    def setup(self, bottom_shapes: Shapes) -> None:
        self.mean, self.std = means_and_deviations(self, self.param.bbox_reg_param)


class _Proposing(_RegressedBoxes):
    """A layer that finds regions: it decodes a box at every position, then suppresses those that overlap."""

    options: Any  # its own message
    pixels: bool  # boxes count both ends in

    def _read(self, options: Any) -> None:
        self.options = options
        if options.nms_type != "IOU":
            raise self.error(f'nms_type "{options.nms_type}" is not supported', fix='write nms_type: "IOU"')
        for name in ("field_whr", "field_xyr"):
            if not getattr(options, name) > 0:
                raise self.error(f"{name} is {getattr(options, name):g}", fix="give a number above 0")

    def _first_shapes(self, images: int) -> Shapes:
        p = self.options
        rows = images * (p.max_post_nms_num or p.max_nms_num or 1) if self.counted is None else self.counted
        return [(rows, 5, 1, 1), (rows, 6, 1, 1)][: len(self.param.top)]

    def _centres(self, moves: HostArray, field: tuple[float, float], stride: float) -> tuple[HostArray, HostArray]:
        """Return centres and sizes, (..., H, W, 2) each, of moves (..., 4, H, W).

        field: width and height of the box that is moved; the centre moves by at most 1 / field_xyr of it, and the size
        is at most field_whr times it, and at least 1 / field_whr times."""
        p, number = self.options, self.dtype.type
        moves = np.moveaxis(moves, -3, -1) * self.std + self.mean
        height, width = moves.shape[-3:-1]
        middle = np.stack(np.meshgrid(np.arange(width), np.arange(height)), axis=-1).astype(self.dtype) + number(0.5)
        size, most = np.array(field, self.dtype), number(np.log(number(p.field_whr)))
        reach = number(1 / p.field_xyr)
        centre = np.clip(moves[..., :2], -reach, reach) * size + middle * number(stride)
        return centre, size * np.exp(np.clip(moves[..., 2:], -most, most))

    def rows(self, bottoms: Sequence[HostArray]) -> list[HostArray]:
        images = self._images(bottoms)
        found = np.concatenate([np.empty((0, 6), self.dtype), *for_images(lambda n: self._best(n, bottoms), images)])
        if not len(found):
            return [np.array([_NO_BOX], self.dtype), np.zeros((1, 6), self.dtype)]
        return [found[:, :5], found]

    def _best(self, image: int, bottoms: Sequence[HostArray]) -> HostArray:
        """Return rows (image, x1, y1, x2, y2, score)."""
        p, end = self.options, int(self.pixels)
        boxes, scores = self._boxes(image, bottoms)
        sides = boxes[:, 2:] - boxes[:, :2] + end
        good = np.flatnonzero((scores >= p.fg_thr) & (sides >= p.min_size).all(axis=1))
        best = best_first(scores, good, p.max_nms_num or -1)
        kept = best[suppress(boxes[best], p.iou_thr, pixels=self.pixels, most=p.max_post_nms_num or None)]
        return np.concatenate([np.full((len(kept), 1), image, self.dtype), boxes[kept], scores[kept, None]], axis=1)

    def _images(self, bottoms: Sequence[HostArray]) -> int:
        raise NotImplementedError

    def _boxes(self, image: int, bottoms: Sequence[HostArray]) -> tuple[HostArray, HostArray]:
        """Return all boxes (M, 4) of an image, cut to it, and their scores (M)."""
        raise NotImplementedError


@register_layer("BoxOutput")
class BoxOutputLayer(_Proposing):
    """The regions of each picture that most probably hold objects, from detectors of several sizes (MS-CNN).

    Bottom i: (N, K + 4, H_i, W_i), K scores of classes, background first, then how the box at each position, of size
    field_w(i) by field_h(i), is moved: x, y, width, height. Positions are downsample_rate(i) pixels apart. There is one
    of each field per bottom. The score of a box is its best class minus background; those of fg_thr at least, with
    sides of min_size, are compared, the max_nms_num best ones (0: all). Of these remain those that overlap no better
    one by more than iou_thr, max_post_nms_num at most (0: all); of equal scores the first is better.
    Top 0: rows of (image, x1, y1, x2, y2), (R, 5, 1, 1); (0, 1, 1, 10, 10) where there is no box. Top 1, if given: the
    same and the score, (R, 6, 1, 1), zeros where there is no box. R is known after forward only; where it changes, the
    net takes memory anew.
    bbox_reg_param: what moves are multiplied by (bbox_std), and what is added (bbox_mean).
    Runs on the host. No bottom gets a gradient, even where a layer that learns makes it.
    Raises: LayerParamError for fields that are missing or impossible; ShapeError for bottoms that do not belong
    together.
    Source: zhaoweicai/mscnn, src/caffe/layers/box_output_layer.cpp.
    """

    declares = replace(CountedRowsLayer.declares, tops=between(1, 2))
    pixels = False

    def setup(self, bottom_shapes: Shapes) -> None:
        super().setup(bottom_shapes)
        p = self.param.box_output_param
        self._read(p)
        for name in ("field_w", "field_h", "downsample_rate"):
            values = getattr(p, name)
            if len(values) != len(bottom_shapes) or not all(values):
                raise self.error(
                    f"has {len(bottom_shapes)} bottoms, but {len(values)} {name}",
                    fix="give one number above 0 for each bottom",
                )

    def infer_shapes(self, bottom_shapes: Shapes) -> Shapes:
        first = tuple(bottom_shapes[0])
        for i, shape in enumerate(bottom_shapes):
            if len(shape) != 4 or tuple(shape[:2]) != first[:2] or shape[1] < 6:
                raise self.shape_error(
                    f"has shape {tuple(shape)}", bottom=i, fix="give (N, K + 4, H, W) of the same N and K, K at least 2"
                )
        return self._first_shapes(first[0])

    def _images(self, bottoms: Sequence[HostArray]) -> int:
        return len(bottoms[0])

    def _boxes(self, image: int, bottoms: Sequence[HostArray]) -> tuple[HostArray, HostArray]:
        p, boxes, scores = self.options, [], []
        for bottom, wide, high, stride in zip(bottoms, p.field_w, p.field_h, p.downsample_rate, strict=True):
            values = bottom[image]
            scores.append((values[1:-4].max(axis=0) - values[0]).reshape(-1))
            centre, size = self._centres(values[-4:], (wide, high), stride)
            low = np.maximum(centre - size / 2, 0)
            sides = np.array(values.shape[:0:-1], self.dtype) * stride
            boxes.append(np.concatenate([low, low + np.minimum(size, sides - low)], axis=-1).reshape(-1, 4))
        return np.concatenate(boxes), np.concatenate(scores)


@register_layer("BoxGroupOutput")
class BoxGroupOutputLayer(_Proposing):
    """The regions of each picture that most probably hold objects, from anchors of several levels (Cascade R-CNN).

    Bottoms 2 i and 2 i + 1 are level i: probabilities of classes (N * G_i, K, H_i, W_i), background first, and how the
    G_i anchors of each position are moved (N * G_i, 4, H_i, W_i): x, y, width, height. box_group_param(i) has the
    anchors' sizes, G_i field_w and field_h, and stride, the pixels from one position to the next. The score of a box is
    1 minus the probability of background; those of fg_thr at least, with sides of min_size, are compared, the
    max_nms_num best ones (0: all). Of these remain those that overlap no better one by more than iou_thr,
    max_post_nms_num at most (0: all); of equal scores the first is better (in the fork that is undefined).
    Top 0: rows of (image, x1, y1, x2, y2), (R, 5, 1, 1); (0, 1, 1, 10, 10) where there is no box. Top 1, if given: the
    same and the score, (R, 6, 1, 1), zeros where there is no box. R is known after forward only; where it changes, the
    net takes memory anew.
    bbox_reg_param: what moves are multiplied by (bbox_std), and what is added (bbox_mean).
    Runs on the host. No bottom gets a gradient, even where a layer that learns makes it.
    Raises: LayerParamError for fields that are missing or impossible; ShapeError for bottoms that do not belong
    together.
    Source: zhaoweicai/cascade-rcnn, src/caffe/layers/box_group_output_layer.cpp.
    """

    declares = replace(CountedRowsLayer.declares, tops=between(1, 2))
    pixels = True

    def setup(self, bottom_shapes: Shapes) -> None:
        super().setup(bottom_shapes)
        p = self.param.box_group_output_param
        self._read(p)
        if len(bottom_shapes) != 2 * len(p.box_group_param):
            raise self.error(
                f"has {len(bottom_shapes)} bottoms, but {len(p.box_group_param)} box_group_param",
                fix="give two bottoms for each: probabilities and moves",
            )
        for group in p.box_group_param:
            sizes = [*group.field_w, *group.field_h]
            if not sizes or len(group.field_w) != len(group.field_h) or not all(sizes) or not group.stride:
                raise self.error(
                    "box_group_param needs as many field_w as field_h, and a stride",
                    fix="write box_group_param { field_w: 32 field_h: 32 stride: 8 }",
                )

    def infer_shapes(self, bottom_shapes: Shapes) -> Shapes:
        groups = [len(group.field_w) for group in self.options.box_group_param]
        images = bottom_shapes[0][0] // groups[0] if bottom_shapes[0] else 0
        for i, shape in enumerate(bottom_shapes):
            given, other = tuple(shape), bottom_shapes[i ^ 1]
            channels = len(given) == 4 and (given[1] == 4 if i % 2 else given[1] == bottom_shapes[0][1])
            if not channels or given[0] != images * groups[i // 2] or given[2:] != tuple(other[2:]):
                raise self.shape_error(
                    f"has shape {given}, where level {i // 2} has {groups[i // 2]} anchors and {images} pictures",
                    bottom=i,
                    fix="give (N * anchors, classes, H, W) and (N * anchors, 4, H, W) for each level",
                )
        return self._first_shapes(images)

    def _images(self, bottoms: Sequence[HostArray]) -> int:
        return len(bottoms[0]) // len(self.options.box_group_param[0].field_w)

    def _boxes(self, image: int, bottoms: Sequence[HostArray]) -> tuple[HostArray, HostArray]:
        boxes, scores = [], []
        for i, group in enumerate(self.options.box_group_param):
            anchors = len(group.field_w)
            for k, field in enumerate(zip(group.field_w, group.field_h, strict=True)):
                values, moves = (bottom[image * anchors + k] for bottom in bottoms[2 * i : 2 * i + 2])
                scores.append((1 - values[0]).reshape(-1))
                centre, size = self._centres(moves, field, group.stride)
                low = centre - size / 2
                sides = np.array(moves.shape[:0:-1], self.dtype) * group.stride
                high = np.minimum(low + size - 1, sides)
                boxes.append(np.concatenate([np.maximum(low, 0), high], axis=-1).reshape(-1, 4))
        return np.concatenate(boxes), np.concatenate(scores)


@register_layer("DecodeBBox")
class DecodeBBoxLayer(_RegressedBoxes):
    """Regions that are moved as a detector's regression of class 1 says (Cascade R-CNN).

    Bottom 0: regressions (R, 8), or (R, 8, 1, 1): x, y, width, height of background, then of objects; the centre moves
    by x times the width, the width is multiplied by exp(width), and so on. Bottom 1: regions (image, x1, y1, x2, y2),
    (R, 5) or (R, 5, 1, 1). Bottom 2, in TRAIN only: rows of R, whose last number is the overlap with an object.
    Top 0: the moved regions, of bottom 1's axes. In TRAIN a region that ends before it begins is left out, and one with
    an overlap of decode_bbox_param.gt_iou_thr or more, for it is an object's own box. So the number of rows is known
    after forward only; where it changes, the net takes memory anew. It may be 0 (where the fork ends).
    bbox_reg_param: what regressions are multiplied by (bbox_std), and what is added (bbox_mean).
    Runs on the host. No bottom gets a gradient, even where a layer that learns makes it.
    Raises: LayerParamError for impossible means or deviations, or bottom 2 in TEST; ShapeError for other shapes.
    Source: zhaoweicai/cascade-rcnn and zhaoweicai/mscnn, src/caffe/layers/decode_bbox_layer.cpp.
    """

    declares = replace(CountedRowsLayer.declares, bottoms=between(2, 3), tops=between(1, 1))

    def setup(self, bottom_shapes: Shapes) -> None:
        super().setup(bottom_shapes)
        self.most_overlap = self.param.decode_bbox_param.gt_iou_thr
        if len(bottom_shapes) == 3 and self.phase != TRAIN:
            raise self.error("has a third bottom in TEST", fix="give it in TRAIN only")

    def infer_shapes(self, bottom_shapes: Shapes) -> Shapes:
        moves, regions = map(tuple, bottom_shapes[:2])
        _check_rows(self, bottom_shapes)
        for i, (shape, numbers) in enumerate(((moves, 8), (regions, 5))):
            if count(shape, 1) != numbers:
                raise self.shape_error(f"has shape {shape}", bottom=i, fix=f"give {numbers} numbers for each region")
        if self.counted is None or self.phase != TRAIN:
            self.counted = None
            return [regions]
        return [(self.counted, *regions[1:])]

    def rows(self, bottoms: Sequence[HostArray]) -> list[HostArray]:
        moves, regions = bottoms[0].reshape(-1, 8)[:, 4:] * self.std + self.mean, bottoms[1].reshape(-1, 5)
        size = regions[:, 3:] - regions[:, 1:3] + 1
        centre = moves[:, :2] * size + (regions[:, 1:3] + regions[:, 3:]) / 2
        with np.errstate(over="ignore", invalid="ignore"):
            size = size * np.exp(moves[:, 2:])
            low = centre - (size - 1) / 2
            found = np.concatenate([regions[:, :1], low, low + size - 1], axis=1).astype(self.dtype)
        if self.phase != TRAIN:
            return [found]
        good = (found[:, 1:3] <= found[:, 3:]).all(axis=1)
        if len(bottoms) == 3:
            good &= bottoms[2].reshape(len(bottoms[2]), count(bottoms[2].shape, 1))[:, -1] < self.most_overlap
        return [found[good]]


@register_layer("ScaleRoute")
class ScaleRouteLayer(CountedRowsLayer):
    """The regions whose size, the root of their area, is low_scale to below high_scale, and what belongs to them.

    Bottom 0: regions (image, x1, y1, x2, y2), (R, 5) or (R, 5, 1, 1). Further bottoms: anything else of R items.
    Tops: the chosen items of the bottom of their number. Where no region has such a size, the one whose size is nearest
    in octaves is chosen: to the geometric mean of both scales, the one that is given, or else 256. The number of items
    is known after forward only; where it changes, the net takes memory anew.
    Runs on the host. No bottom gets a gradient, even where a layer that learns makes it.
    Raises: LayerParamError for impossible scales, or other numbers of tops than bottoms; ShapeError for other shapes.
    Source: zhaoweicai/cascade-rcnn, src/caffe/layers/scale_route_layer.cpp.
    """

    declares = replace(CountedRowsLayer.declares, bottoms=at_least(1), tops=at_least(1))

    def setup(self, bottom_shapes: Shapes) -> None:
        p = self.param.scale_route_param
        self.low, self.high = p.low_scale, p.high_scale if p.HasField("high_scale") else np.inf
        if not 0 <= self.low <= self.high or (p.HasField("low_scale") and not self.low):
            raise self.error(
                f"low_scale {self.low:g} and high_scale {self.high:g} leave no size",
                fix="write 0 < low_scale <= high_scale, or only one of them",
            )
        given = [scale for scale in (self.low, self.high) if 0 < scale < np.inf]
        self.middle = float(np.exp(np.mean(np.log(given)))) if given else 256.0
        if len(self.param.top) != len(bottom_shapes):
            raise self.error(
                f"has {len(bottom_shapes)} bottoms and {len(self.param.top)} tops", fix="give one top for each bottom"
            )

    def infer_shapes(self, bottom_shapes: Shapes) -> Shapes:
        _check_rows(self, bottom_shapes)
        if count(bottom_shapes[0], 1) != 5:
            raise self.shape_error(f"has shape {tuple(bottom_shapes[0])}", bottom=0, fix="give regions (R, 5)")
        rows = bottom_shapes[0][0] if self.counted is None else self.counted
        return [(rows, *shape[1:]) for shape in bottom_shapes]

    def rows(self, bottoms: Sequence[HostArray]) -> list[HostArray]:
        sizes = np.sqrt(areas(bottoms[0].reshape(-1, 5)[:, 1:], pixels=True))
        chosen = np.flatnonzero((sizes >= self.low) & (sizes < self.high))
        if not len(chosen) and len(sizes):
            with np.errstate(divide="ignore"):
                chosen = np.array([np.abs(np.log2(sizes / self.middle)).argmin()])
        return [bottom[chosen] for bottom in bottoms]


@register_layer("HardMining")
class HardMiningLayer(CountedRowsLayer):
    """The regions with the largest losses, and what belongs to them (Cascade R-CNN).

    Bottom 0: a loss for each of R regions, (R) or (R, 1, 1, 1). Bottom 1: regions (image, x1, y1, x2, y2), (R, 5) or
    (R, 5, 1, 1). Further bottoms: anything else of R items.
    Tops: the chosen items of bottoms 1, 2, ..., in their order: of each picture the num_roi_per_image with the largest
    losses; if these are fewer than num_image * num_roi_per_image, those of all others with the largest losses. Of equal
    losses the last is larger. There are min(num_image * num_roi_per_image, R).
    Runs on the host. No bottom gets a gradient, even where a layer that learns makes it.
    Raises: LayerParamError for a number that is 0, or other numbers of tops; ShapeError for other shapes; DataError for
    a region of an image beyond num_image.
    Source: zhaoweicai/cascade-rcnn, src/caffe/layers/hard_mining_layer.cpp.
    """

    declares = replace(CountedRowsLayer.declares, bottoms=at_least(2), tops=at_least(1))

    def setup(self, bottom_shapes: Shapes) -> None:
        p = self.options = self.param.hard_mining_param
        if not p.num_roi_per_image or not p.num_image:
            raise self.error("num_roi_per_image or num_image is 0", fix="give numbers above 0")
        if len(self.param.top) != len(bottom_shapes) - 1:
            raise self.error(
                f"has {len(bottom_shapes)} bottoms and {len(self.param.top)} tops",
                fix="give one top for each bottom but the first",
            )

    def infer_shapes(self, bottom_shapes: Shapes) -> Shapes:
        _check_rows(self, bottom_shapes)
        for i, numbers in enumerate((1, 5)):
            if count(bottom_shapes[i], 1) != numbers:
                raise self.shape_error(
                    f"has shape {tuple(bottom_shapes[i])}",
                    bottom=i,
                    fix="give a loss, and five numbers, for each region",
                )
        rows = min(bottom_shapes[0][0], self.options.num_image * self.options.num_roi_per_image)
        return [(rows, *shape[1:]) for shape in bottom_shapes[1:]]

    def rows(self, bottoms: Sequence[HostArray]) -> list[HostArray]:
        p, losses = self.options, bottoms[0].reshape(-1)
        image = np.trunc(bottoms[1].reshape(-1, 5)[:, 0])
        wrong = image[(image < 0) | (image >= p.num_image)]
        if len(wrong):
            raise self.error(
                f"a region is of image {wrong[0]:g}, of num_image {p.num_image}",
                kind=DataError,
                blob=self.param.bottom[1],
                fix="raise num_image",
            )
        worst = np.arange(len(losses))[::-1]
        worst = worst[np.argsort(-losses[worst], kind="stable")]
        rank = np.empty(len(losses), np.int64)  # of each region among those of its picture
        for n in range(p.num_image):
            mine = worst[image[worst] == n]
            rank[mine] = np.arange(len(mine))
        first = rank[worst] < p.num_roi_per_image
        most = min(len(losses), p.num_image * p.num_roi_per_image)
        chosen = np.sort(np.concatenate([worst[first], worst[~first]])[:most])
        return [bottom[chosen] for bottom in bottoms[1:]]


def _check_rows(layer: Layer, shapes: Sequence[Shape]) -> None:
    """Raise ShapeError unless all bottoms have as many items as the first one."""
    for i, shape in enumerate(shapes):
        if not shape or not shapes[0] or shape[0] != shapes[0][0]:
            raise layer.shape_error(
                f"has shape {tuple(shape)}, but bottom 0 has {tuple(shapes[0])}",
                bottom=i,
                fix="give as many items in each bottom",
            )
