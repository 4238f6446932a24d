"""EvalDetection: which detections of YOLO are right."""

from __future__ import annotations

import numpy as np

from ...arrays import HostArray
from ...errors import DataError
from ...proto import caffe_pb2
from ..base import Declaration, Layer, Needs, Pass, Reads, Runs, Shapes, between
from ..registry import register_layer
from .detection_output import for_images
from .yolo_boxes import anchors_of, by_anchor, check_map, objects_of, overlaps, places, remaining, sigmoid

_OBJ, _PROB = caffe_pb2.EvalDetectionParameter.OBJ, caffe_pb2.EvalDetectionParameter.PROB
_LEAST = 0.005  # a lower score is no detection, as in darknet


@register_layer("EvalDetection")
class EvalDetectionLayer(Layer):
    """Which detections of YOLO, version 2, are right, as numbers of which mean average precision is made.

    Bottom 0: a feature map (N, A * (5 + C), H, W), with A = num_object anchors and C = num_class, which mean boxes as
    in YoloDetectionOutput. Bottom 1: objects, (1, 1, G, 8), rows of (image, class from 1, instance, xmin, ymin, xmax,
    ymax, difficult), image -1 for none. Bottom 2, if given, is not read. Top 0: (N, C + H * W * A * 4): the number of
    objects of each class, then rows of (class from 0, score, right, wrong), by class and score; zeros fill them up.
    A box's class is that of the largest softmax; its score is sigmoid(object) (score_type OBJ), that largest one
    (PROB), or their product (MULTIPLY). Boxes that overlap one of higher score, of any class, by nms or more are no
    detections; nor are those with scores below 0.005. Below 0, nms suppresses none (in the fork there is no detection
    then). Right is one that overlaps the object of its class which it overlaps most by threshold or more, if none of
    higher score has that object; else it is wrong. One that overlaps it by less is neither, as in the fork; where the
    image has no object of its class it is wrong.
    side, sqrt and constriant have no effect, as in the fork. Runs on the host. No gradient.
    Raises: LayerParamError for biases that do not fit num_object; ShapeError for other shapes; DataError for an object
    of another class.
    Source: intel/caffe, src/caffe/layers/eval_detection_layer.cpp.
    """

    declares = Declaration(
        bottoms=between(2, 3),
        runs_on=Runs.HOST,
        no_backward=None,
        ignores_force_backward=frozenset(range(3)),
        backward_reads=Reads.NONE,
    )

    def setup(self, bottom_shapes: Shapes) -> None:
        p = self.options = self.param.eval_detection_param
        self.classes, self.anchors = p.num_class, anchors_of(self, np.array(p.biases), p.num_object)

    def infer_shapes(self, bottom_shapes: Shapes) -> Shapes:
        images, _, height, width = check_map(self, bottom_shapes, 0, len(self.anchors), self.classes)
        truth = tuple(bottom_shapes[1])
        if len(truth) != 4 or truth[:2] != (1, 1) or truth[3] != 8:
            raise self.shape_error(f"has shape {truth}", bottom=1, fix="give objects (1, 1, G, 8), of AnnotatedData")
        return [(images, self.classes + height * width * len(self.anchors) * 4)]

    def forward_needs(self) -> Needs:
        return Needs(bottoms=frozenset({0, 1}))

    def forward(self, io: Pass) -> None:
        x, images = by_anchor(io.bottom[0], len(self.anchors)), len(io.bottom[0])
        objects = objects_of(io.bottom[1], images)
        for n, each in enumerate(objects):
            wrong = ~((each[:, 0] > -1) & (each[:, 0] < self.classes))
            if wrong.any():
                raise self.error(
                    f"image {n} has an object of class {each[wrong][0, 0] + 1:g}",
                    kind=DataError,
                    blob=self.param.bottom[1],
                    fix=f"give classes from 1 to {self.classes}",
                )
        top = io.top[0]
        top.fill(0)
        for n, (counts, rows) in enumerate(for_images(lambda n: self._of_image(x[n], objects[n]), images)):
            top[n, : self.classes] = counts
            top[n, self.classes : self.classes + rows.size] = rows.reshape(-1)

    def _of_image(self, seen: HostArray, objects: HostArray) -> tuple[HostArray, HostArray]:
        """Return the number of objects of each class, and the rows (K, 4) of detections."""
        p, classes = self.options, objects[:, 0].astype(np.int64)
        seen = seen.reshape(*seen.shape[:3], 5 + self.classes)
        boxes = places(seen[None], self.anchors).reshape(-1, 4)
        chance = np.exp(seen[..., 5:] - seen[..., 5:].max(axis=-1, keepdims=True)).reshape(-1, self.classes)
        score, best = sigmoid(seen[..., 4]).reshape(-1), chance.max(axis=-1) / chance.sum(axis=-1)
        score = {_OBJ: score, _PROB: best}.get(p.score_type, score * best)
        kept = np.argsort(-score, kind="stable") if p.nms < 0 else remaining(boxes, score, p.nms)
        kept = kept[score[kept] >= _LEAST]
        labels = chance.argmax(axis=-1)
        rows, taken = [np.empty((0, 4), self.dtype)], np.zeros(len(objects), bool)
        for i in kept[np.argsort(labels[kept], kind="stable")]:
            own = np.flatnonzero(classes == labels[i])
            right = wrong = False
            if not len(own):
                wrong = True
            else:
                common = overlaps(objects[own, 1:], boxes[i])
                most = own[common.argmax()]
                if common.max() >= p.threshold:
                    right, wrong = not taken[most], bool(taken[most])
                    taken[most] = True
            rows.append(np.array([[labels[i], score[i], right, wrong]], self.dtype))
        return np.bincount(classes, minlength=self.classes), np.concatenate(rows)
