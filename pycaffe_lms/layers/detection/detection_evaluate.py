"""DetectionEvaluate: which of the detections are right."""

from __future__ import annotations

import numpy as np

from ...arrays import HostArray
from ...errors import DataError
from ..base import Declaration, Layer, Pass, Reads, Runs, Shapes, ShapesChanged, exactly
from ..registry import register_layer
from .boxes import overlaps, to_pixels
from .detection_output import best_first, check_classes
from .matching import Truth, truth_of
from .saved import sizes_of


@register_layer("DetectionEvaluate")
class DetectionEvaluateLayer(Layer):
    """Which detections are right, for a solver with eval_type: "detection", which makes mean average precisions of
    them.

    Bottom 0: detections, (1, 1, K, 7), of DetectionOutput. Bottom 1: ground-truth boxes, (1, 1, G, 8), rows of (image,
    class, instance, xmin, ymin, xmax, ymax, difficult); rows of image -1 do not count.
    Top 0: (1, 1, R, 5), R known after forward only. First, for every class but background_label_id, (-1, class, number
    of ground-truth boxes, -1, -1), without evaluate_difficult_gt not counting difficult ones. Then a row for each
    detection, by image, class, score: (image, class, score, right, wrong), the latter two 0 or 1.
    Right is a detection whose largest overlap, with a ground-truth box of its class, is overlap_threshold or more, if
    none of higher score has the same box. Without evaluate_difficult_gt it is neither right nor wrong where that box is
    difficult.
    Boxes are fractions of the picture; with name_size_file, whose lines are a name, a height and a width, they are
    compared in pixels of that size, counting both ends in. The next line is taken for every image that has rows in
    bottom 0, and after the last one the first. resize_param: how pictures were made, to be undone.
    Runs on the host. No gradient.
    Raises: LayerParamError for num_classes or an overlap_threshold that is not above 0; ShapeError for other shapes;
    DataError for boxes of the background, or a file that cannot be read.
    Source: weiliu89/caffe (SSD), src/caffe/layers/detection_evaluate_layer.cpp.
    """

    declares = Declaration(
        bottoms=exactly(2),
        runs_on=Runs.HOST,
        no_backward=None,
        backward_reads=Reads.NONE,
        ignores_force_backward=frozenset({0, 1}),
        tests_alone=True,  # detections of all batches are ranked together
    )

    def setup(self, bottom_shapes: Shapes) -> None:
        p = self.options = self.param.detection_evaluate_param
        self.classes = check_classes(self, p.num_classes, "detection_evaluate_param")
        if not p.overlap_threshold > 0:
            raise self.error(f"overlap_threshold is {p.overlap_threshold:g}", fix="give a share, such as 0.5")
        self._named = [c for c in range(self.classes) if c != p.background_label_id]
        self._sizes = sizes_of(p.name_size_file) if p.name_size_file and self.context.reads_ahead else []
        self._resize = p.resize_param if p.HasField("resize_param") else None
        self._next = 0  # line of name_size_file
        self._rows = len(self._named)

    def infer_shapes(self, bottom_shapes: Shapes) -> Shapes:
        for i, (what, width) in enumerate((("detections", 7), ("ground-truth boxes", 8))):
            shape = tuple(bottom_shapes[i])
            if len(shape) != 4 or shape[:2] != (1, 1) or shape[3] != width:
                raise self.shape_error(f"has shape {shape}", bottom=i, fix=f"give {what} (1, 1, rows, {width})")
        return [(1, 1, self._rows, 5)]

    def forward(self, io: Pass) -> None:
        found, truth = io.bottom[0].reshape(-1, 7), io.bottom[1].reshape(-1, 8)
        for i, (rows, image) in enumerate(((found, found[:, 0]), (truth, truth[:, 0]))):
            if (rows[image >= 0, 1] == self.options.background_label_id).any():
                raise self.error(
                    f"a box is of class {self.options.background_label_id}, which is the background",
                    kind=DataError,
                    blob=self.param.bottom[i],
                    fix="correct background_label_id or the data",
                )
        images = np.unique(found[found[:, 0] >= 0, 0].astype(np.int64))
        truths = truth_of(truth, int(images.max(initial=-1)) + 1)
        rows = [self._counts(truth[truth[:, 0] >= 0])]
        for n, image in enumerate(images.tolist()):
            rows.append(self._of_image(image, found[found[:, 0] == image], truths[image], self._next + n))
        shown = np.concatenate(rows)
        if len(shown) != io.top[0].shape[2]:
            self._rows = len(shown)
            raise ShapesChanged
        io.top[0][...] = shown
        if self._sizes:
            self._next = (self._next + len(images)) % len(self._sizes)

    def _counts(self, truth: HostArray) -> HostArray:
        """Return the rows with the number of ground-truth boxes of each class."""
        counted = truth if self.options.evaluate_difficult_gt else truth[truth[:, 7] == 0]
        rows = np.full((len(self._named), 5), -1, self.dtype)
        rows[:, 1] = self._named
        rows[:, 2] = [(counted[:, 1] == label).sum() for label in self._named]
        return rows

    def _of_image(self, image: int, found: HostArray, truth: Truth, line: int) -> HostArray:
        """Return the rows of the detections in an image, whose size is in this line."""
        parts = [np.empty((0, 5), self.dtype)]
        for label in np.unique(found[found[:, 1] >= 0, 1]):
            own = found[found[:, 1] == label]
            own = own[best_first(own[:, 2], np.arange(len(own)), -1)]
            right, wrong = self._judged(own[:, 3:], truth, truth.labels == int(label), line)
            part = np.empty((len(own), 5), self.dtype)
            part[:, 0], part[:, 1], part[:, 2], part[:, 3], part[:, 4] = image, label, own[:, 2], right, wrong
            parts.append(part)
        return np.concatenate(parts)

    def _judged(self, boxes: HostArray, truth: Truth, mine: HostArray, line: int) -> tuple[HostArray, HostArray]:
        """Return which of the boxes (M, 4), best first, are right, and which are wrong: (M,) of bool each."""
        right = np.zeros(len(boxes), bool)
        true, difficult = truth.boxes[mine], truth.difficult[mine] & (not self.options.evaluate_difficult_gt)
        if not len(true):
            return right, ~right
        if self._sizes:
            _, height, width = self._sizes[line % len(self._sizes)]
            boxes, true = (to_pixels(each, height, width, self._resize) for each in (boxes, true))
        common = overlaps(boxes, true, pixels=bool(self._sizes))
        best = common.argmax(axis=1)
        near = common.max(axis=1) >= self.options.overlap_threshold
        ignored = near & difficult[best]
        taken = np.zeros(len(true), bool)
        for i in np.flatnonzero(near & ~ignored):
            right[i] = not taken[best[i]]
            taken[best[i]] = True
        return right, ~right & ~ignored
