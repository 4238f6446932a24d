"""DetectionEvaluate: which of the detections are right."""

from __future__ import annotations

import numpy as np

from ...arrays import HostArray
from ...errors import DataError
from ..base import Declaration, Layer, Pass, Reads, Runs, Shapes, ShapesChanged, between, count
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
    With bottom 2, the height and width (N, 2) of each picture as the net sees it, boxes are of its pixels, as Cascade
    R-CNN's: bottom 0 is (K, 7, 1, 1), rows of (image, xmin, ymin, xmax, ymax, class, score), those of class -1 of no
    object; bottom 1 is (G, 8, 1, 1), rows of (image, xmin, ymin, xmax, ymax, class, ignored, difficult); top 0 is
    (R, 5, 1, 1). Both are stretched to the size in name_size_file, which is needed, before they are compared.
    Runs on the host. No gradient.
    Raises: LayerParamError for num_classes or an overlap_threshold that is not above 0; ShapeError for other shapes;
    DataError for boxes of the background, or a file that cannot be read.
    Source: weiliu89/caffe (SSD) and zhaoweicai/cascade-rcnn, src/caffe/layers/detection_evaluate_layer.cpp.
    """

    declares = Declaration(
        bottoms=between(2, 3),
        runs_on=Runs.HOST,
        no_backward=None,
        backward_reads=Reads.NONE,
        ignores_force_backward=frozenset({0, 1, 2}),
        tests_alone=True,  # detections of all batches are ranked together
    )

    def setup(self, bottom_shapes: Shapes) -> None:
        p = self.options = self.param.detection_evaluate_param
        self.classes = check_classes(self, p.num_classes, "detection_evaluate_param")
        if not p.overlap_threshold > 0:
            raise self.error(f"overlap_threshold is {p.overlap_threshold:g}", fix="give a share, such as 0.5")
        if len(bottom_shapes) == 3 and (not p.name_size_file or p.HasField("resize_param")):
            raise self.error(
                "has sizes as bottom 2, but no name_size_file, or a resize_param",
                fix="give name_size_file, and no resize_param",
            )
        self._named = [c for c in range(self.classes) if c != p.background_label_id]
        self._sizes = sizes_of(p.name_size_file) if p.name_size_file and self.context.reads_ahead else []
        self._resize = p.resize_param if p.HasField("resize_param") else None
        self._next = 0  # line of name_size_file
        self._rows = len(self._named)

    def infer_shapes(self, bottom_shapes: Shapes) -> Shapes:
        for i, (what, width) in enumerate((("detections", 7), ("ground-truth boxes", 8))):
            shape = tuple(bottom_shapes[i])
            if len(bottom_shapes) == 3:
                if not shape or count(shape, 1) != width:
                    raise self.shape_error(f"has shape {shape}", bottom=i, fix=f"give {what} (rows, {width}, 1, 1)")
            elif len(shape) != 4 or shape[:2] != (1, 1) or shape[3] != width:
                raise self.shape_error(f"has shape {shape}", bottom=i, fix=f"give {what} (1, 1, rows, {width})")
        if len(bottom_shapes) == 2:
            return [(1, 1, self._rows, 5)]
        if not bottom_shapes[2] or count(bottom_shapes[2], 1) != 2:
            raise self.shape_error(f"has shape {tuple(bottom_shapes[2])}", bottom=2, fix="give sizes (N, 2, 1, 1)")
        return [(self._rows, 5, 1, 1)]

    def forward(self, io: Pass) -> None:
        found, truth = io.bottom[0].reshape(-1, 7), io.bottom[1].reshape(-1, 8)
        self._seen = io.bottom[2].reshape(-1, 2) if len(io.bottom) == 3 else None
        if self._seen is not None:  # in SSD's order
            found, truth = found[:, [0, 5, 6, 1, 2, 3, 4]], truth[:, [0, 5, 6, 1, 2, 3, 4, 7]]
        for i, (rows, image) in enumerate(((found, found[:, 0]), (truth, truth[:, 0]))):
            if (rows[image >= 0, 1] == self.options.background_label_id).any():
                raise self.error(
                    f"a box is of class {self.options.background_label_id}, which is the background",
                    kind=DataError,
                    blob=self.param.bottom[i],
                    fix="correct background_label_id or the data",
                )
        images = np.unique(found[found[:, 0] >= 0, 0].astype(np.int64))
        if self._seen is not None and images.max(initial=-1) >= len(self._seen):
            raise self.error(
                f"there are {len(self._seen)} sizes, but a detection of image {images.max()}",
                kind=DataError,
                blob=self.param.bottom[2],
                fix="give the size of every picture",
            )
        truths = truth_of(truth, int(images.max(initial=-1)) + 1)
        rows = [self._counts(truth[truth[:, 0] >= 0])]
        for n, image in enumerate(images.tolist()):
            rows.append(self._of_image(image, found[found[:, 0] == image], truths[image], self._next + n))
        shown = np.concatenate(rows)
        if shown.size != io.top[0].size:
            self._rows = len(shown)
            raise ShapesChanged
        io.top[0][...] = shown.reshape(io.top[0].shape)
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
            right, wrong = self._judged(own[:, 3:], truth, truth.labels == int(label), image, line)
            part = np.empty((len(own), 5), self.dtype)
            part[:, 0], part[:, 1], part[:, 2], part[:, 3], part[:, 4] = image, label, own[:, 2], right, wrong
            parts.append(part)
        return np.concatenate(parts)

    def _judged(
        self, boxes: HostArray, truth: Truth, mine: HostArray, image: int, line: int
    ) -> tuple[HostArray, HostArray]:
        """Return which of the boxes (M, 4), best first, are right, and which are wrong: (M,) of bool each."""
        right = np.zeros(len(boxes), bool)
        true, difficult = truth.boxes[mine], truth.difficult[mine] & (not self.options.evaluate_difficult_gt)
        if not len(true):
            return right, ~right
        if self._sizes:
            _, height, width = self._sizes[line % len(self._sizes)]
            if self._seen is None:
                boxes, true = (to_pixels(each, height, width, self._resize) for each in (boxes, true))
            else:
                ratio = np.tile(np.array([width, height], boxes.dtype) / self._seen[image, ::-1], 2)
                boxes, true = boxes * ratio, true * ratio
        common = overlaps(boxes, true, pixels=bool(self._sizes))
        best = common.argmax(axis=1)
        near = common.max(axis=1) >= self.options.overlap_threshold
        ignored = near & difficult[best]
        taken = np.zeros(len(true), bool)
        for i in np.flatnonzero(near & ~ignored):
            right[i] = not taken[best[i]]
            taken[best[i]] = True
        return right, ~right & ~ignored
