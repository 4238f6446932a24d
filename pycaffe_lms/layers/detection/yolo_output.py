"""YoloDetectionOutput and Yolov3DetectionOutput: detections from YOLO's predictions."""

from __future__ import annotations

import logging

import numpy as np

from ...arrays import HostArray
from ..base import Declaration, Layer, Pass, Reads, Runs, Shapes, ShapesChanged, at_least, between, count
from ..registry import register_layer
from .detection_output import for_images
from .yolo_boxes import anchors_of, by_anchor, check_map, corners, places, remaining, sigmoid

_log = logging.getLogger(__name__)


class _YoloOutput(Layer):
    """A layer whose top has rows of detections, of a number that is known after forward only."""

    declares = Declaration(
        bottoms=between(1, 2),
        runs_on=Runs.HOST,
        no_backward=None,
        ignores_force_backward=frozenset(range(64)),
        backward_reads=Reads.NONE,
    )

    def first_rows(self, classes: int, threshold: float, nms: float) -> None:
        """Keep what all such layers need. Raises LayerParamError."""
        if classes < 1:
            raise self.error("num_classes is 0", fix="give the number of classes, without a background")
        if not nms >= 0:
            raise self.error(f"nms_threshold is {nms:g}", fix="give a share, such as 0.45")
        self.classes, self.least, self.nms = classes, threshold, nms
        self._rows = 1
        # values of the bottoms, and their rows, which wait for a top of their number
        self._known: tuple[list[HostArray], HostArray] | None = None

    def candidates(self, bottoms: list[HostArray]) -> tuple[HostArray, HostArray, HostArray]:
        """Return (N, M, 4) boxes, (N, M) scores and classes; a score of -1: the box is none."""
        raise AssertionError(f"{type(self).__name__} has no candidates")

    def forward(self, io: Pass) -> None:
        known, self._known = self._known, None
        if known is not None and all(map(np.array_equal, known[0], io.bottom)):
            rows = known[1]
        else:
            boxes, scores, labels = self.candidates(io.bottom)
            images = len(boxes)
            found = for_images(lambda n: self._of_image(n, boxes[n], scores[n], labels[n]), images)
            rows = np.concatenate([np.empty((0, 7), self.dtype), *found])
            if not len(rows):
                rows = np.full((images, 7), -1, self.dtype)
                rows[:, 0] = np.arange(images)
        if len(rows) != io.top[0].shape[2]:
            self._rows, self._known = len(rows), ([value.copy() for value in io.bottom], rows)
            raise ShapesChanged
        io.top[0][...] = rows

    def _of_image(self, image: int, boxes: HostArray, scores: HostArray, labels: HostArray) -> HostArray:
        chosen = np.flatnonzero(scores >= 0)
        kept = chosen[remaining(boxes[chosen], scores[chosen], self.nms)]
        rows = np.empty((len(kept), 7), self.dtype)
        rows[:, 0], rows[:, 1], rows[:, 2], rows[:, 3:] = image, labels[kept] + 1, scores[kept], corners(boxes[kept])
        return rows


@register_layer("YoloDetectionOutput")
class YoloDetectionOutputLayer(_YoloOutput):
    """Detections of YOLO, version 2: rows of (image, class, score, xmin, ymin, xmax, ymax), fractions of the picture;
    not cut to it.

    Bottom 0: a feature map (N, A * (5 + C), H, W), with A = num_box anchors and C = num_classes: for each anchor x, y,
    width, height, object, and the classes' scores. Bottom 1, if given: another map of the same anchors. Top 0: (1, 1,
    K, 7). K is known after forward only: the number of detections, or if there is none N, one row (image, -1, ...)
    each. It is 1 before the first forward. Where it changes, the net takes memory anew.
    A box at position (h, w) has its centre at ((w + sigmoid(x)) / W, (h + sigmoid(y)) / H) and is exp(width) * the
    anchor's width / W wide. Its class is that of the largest softmax, and its score that times sigmoid(object). Boxes
    with a score of confidence_threshold or more remain that overlap no better box of any class by nms_threshold or
    more, best first; of equal scores the first, by position and anchor, is better (in the fork that is undefined).
    Classes begin with 1. `biases` are the anchors' widths and heights, in positions of the map. side and label_map_file
    have no effect. Runs on the host. No gradient.
    Raises: LayerParamError for biases that do not fit num_box, or other coords than 4; ShapeError for other channels.
    Source: eric612/MobileNet-YOLO, src/caffe/layers/yolo_detection_output_layer.cpp (where all images of a batch are
    taken for one).
    """

    def setup(self, bottom_shapes: Shapes) -> None:
        p = self.param.yolo_detection_output_param
        self.first_rows(p.num_classes, p.confidence_threshold, p.nms_threshold)
        self.anchors = anchors_of(self, np.array(p.biases), p.num_box)
        if p.coords != 4:
            raise self.error(f"coords is {p.coords}", fix="write coords: 4, or leave it out")
        if p.label_map_file:
            _log.warning('layer "%s": label_map_file has no effect here; rows hold classes\' numbers', self.name)

    def infer_shapes(self, bottom_shapes: Shapes) -> Shapes:
        for i in range(len(bottom_shapes)):
            check_map(self, bottom_shapes, i, len(self.anchors), self.classes)
        return [(1, 1, self._rows, 7)]

    def candidates(self, bottoms: list[HostArray]) -> tuple[HostArray, HostArray, HostArray]:
        parts = []
        for x in bottoms:
            seen = by_anchor(x, len(self.anchors))
            chance = np.exp(seen[..., 5:] - seen[..., 5:].max(axis=-1, keepdims=True))
            best = sigmoid(seen[..., 4]) * (chance.max(axis=-1) / chance.sum(axis=-1))
            each = len(x), count(best.shape, 1)
            boxes = places(seen, self.anchors).reshape(*each, 4)
            scores = np.where(best >= self.least, best, -1).reshape(each)
            parts.append((boxes, scores, chance.argmax(axis=-1).reshape(each)))
        boxes, scores, labels = (np.concatenate(each, axis=1) for each in zip(*parts, strict=True))
        return boxes, scores, labels


@register_layer("Yolov3DetectionOutput")
class Yolov3DetectionOutputLayer(_YoloOutput):
    """Detections of YOLO, version 3: rows of (image, class, score, xmin, ymin, xmax, ymax), fractions of the picture;
    not cut to it.

    Bottoms: mask_group_num feature maps (N, A * (5 + C), H, W), with A = num_box anchors and C = num_classes: for each
    anchor x, y, width, height, object, and the classes' scores. Top 0: as of YoloDetectionOutput.
    A box at position (h, w) has its centre at ((w + sigmoid(x)) / W, (h + sigmoid(y)) / H) and is exp(width) * the
    anchor's width / (W * anchors_scale) wide. It counts once for each class with sigmoid(class) * sigmoid(object) above
    confidence_threshold. Those remain that overlap no better one, of any class, by nms_threshold or more, best first;
    of equal scores the first, by bottom, position, anchor and class, is better (in the fork that is undefined). Classes
    begin with 1. `biases` are all anchors' widths and heights in pixels, `mask` the numbers of the anchors of the first
    bottom, then of the second, ... Runs on the host. No gradient.
    Raises: LayerParamError for numbers that do not belong together, or gaussian_box; ShapeError for other channels.
    Source: eric612/MobileNet-YOLO, src/caffe/layers/yolov3_detection_output_layer.cpp (where all images of a batch are
    taken for one).
    """

    def setup(self, bottom_shapes: Shapes) -> None:
        p = self.param.yolov3_detection_output_param
        self.first_rows(p.num_classes, p.confidence_threshold, p.nms_threshold)
        if p.gaussian_box:
            raise self.error("gaussian_box is not supported", fix="use a net whose boxes have no deviations")
        anchors, maps = anchors_of(self, np.array(p.biases), len(p.biases) // 2), len(bottom_shapes)
        if p.mask_group_num != maps or len(p.mask) != maps * p.num_box or len(p.anchors_scale) < maps:
            raise self.error(
                f"{maps} bottoms do not fit mask_group_num {p.mask_group_num}, num_box {p.num_box}, {len(p.mask)} mask "
                f"and {len(p.anchors_scale)} anchors_scale",
                fix="give each bottom num_box times mask, and one anchors_scale",
            )
        if any(number >= len(anchors) for number in p.mask):
            raise self.error(f"mask {max(p.mask)} is none of {len(anchors)} anchors", fix="count anchors from 0")
        self.anchors = anchors[np.array(p.mask).reshape(maps, -1)]
        self.steps = list(p.anchors_scale)

    declares = Declaration(
        bottoms=at_least(1),
        runs_on=Runs.HOST,
        no_backward=None,
        ignores_force_backward=frozenset(range(64)),
        backward_reads=Reads.NONE,
    )

    def infer_shapes(self, bottom_shapes: Shapes) -> Shapes:
        for i, anchors in enumerate(self.anchors):
            check_map(self, bottom_shapes, i, len(anchors), self.classes)
        return [(1, 1, self._rows, 7)]

    def candidates(self, bottoms: list[HostArray]) -> tuple[HostArray, HostArray, HostArray]:
        parts = []
        for x, anchors, step in zip(bottoms, self.anchors, self.steps, strict=False):
            seen = by_anchor(x, len(anchors))
            number = count(seen.shape, 1, 4)
            chance = (sigmoid(seen[..., 5:]) * sigmoid(seen[..., 4:5])).reshape(len(x), number * self.classes)
            boxes = np.repeat(places(seen, anchors, step).reshape(len(x), number, 4), self.classes, axis=1)
            labels = np.tile(np.arange(self.classes), (len(x), number))
            parts.append((boxes, np.where(chance > self.least, chance, -1), labels))
        boxes, scores, labels = (np.concatenate(each, axis=1) for each in zip(*parts, strict=True))
        return boxes, scores, labels
