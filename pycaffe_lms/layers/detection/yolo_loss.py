"""RegionLoss and Yolov3: what YOLO, versions 2 and 3, learns by."""

from __future__ import annotations

import numpy as np

from ...arrays import HostArray
from ...errors import DataError
from ...proto import caffe_pb2
from ..base import Declaration, Lives, Ops, Pass, Reads, Runs, Shapes, count, exactly
from ..loss.base import LossLayer
from ..registry import register_layer
from .detection_output import for_images
from .yolo_boxes import anchors_of, by_anchor, check_map, objects_of, overlaps, places, sigmoid


class _YoloLoss(LossLayer):
    """A layer that makes the gradients of its boxes in forward, and shows the sum of their squares."""

    declares = Declaration(
        bottoms=exactly(2),
        runs_on=Runs.HOST,
        is_loss=True,
        backward_reads=Reads.NONE,
        no_backward=frozenset({1}),
        ignores_force_backward=frozenset({1}),
    )
    classes: int
    anchors: HostArray  # of the bottom, (A, 2)
    divides = True

    def check_truth(self, shape: tuple[int, ...], images: int, rows: bool) -> None:
        """Raise ShapeError unless the shape is that of objects; rows: (1, 1, G, 8) is one, too."""
        listed = len(shape) > 0 and shape[0] == images and count(shape, 1) % 5 == 0
        if not listed and not (rows and len(shape) == 4 and shape[:2] == (1, 1) and shape[3] == 8):
            other = " or rows of boxes (1, 1, G, 8)" if rows else ""
            raise self.shape_error(f"has shape {shape}", bottom=1, fix=f"give objects, (N, T * 5){other}")

    def declare(self, bottom_shapes: Shapes, top_shapes: Shapes, ops: Ops) -> None:
        self.scratch("slopes", bottom_shapes[0], lives=Lives.SAVED)

    def slopes(self, seen: HostArray, objects: HostArray) -> tuple[HostArray, HostArray]:
        """Return (what the loss is of, what backward passes on) for one image, of the shape of `seen`.

        Args:
            seen: (H, W, A, 5 + C), what the map says.
            objects: (T, 5), rows of class, x, y, width, height.
        """
        raise AssertionError(f"{type(self).__name__} has no slopes")

    def forward(self, io: Pass) -> None:
        x, images = by_anchor(io.bottom[0], len(self.anchors)), len(io.bottom[0])
        objects = self._objects(io.bottom[1], images)
        made = for_images(lambda n: self.slopes(x[n], objects[n]), images)
        loss = sum(float(np.square(shown, dtype=np.float64).sum()) for shown, _ in made)
        io.top[0].fill(loss / images if self.divides and images else loss)
        kept = io.scratch.get("slopes")
        if kept is not None:
            target = by_anchor(kept, len(self.anchors))
            for n, (_, passed) in enumerate(made):
                target[n] = passed

    def backward(self, io: Pass) -> None:
        (dx, _), (dloss, *_) = io.bottom_diff, io.top_diff
        if dx is None:
            return
        if dloss is None:
            dx.fill(0)
        else:
            np.multiply(io.scratch["slopes"], dloss.reshape(-1)[0] / max(1, len(dx)), out=dx)

    def _objects(self, values: HostArray, images: int) -> list[HostArray]:
        """Return rows (class, x, y, width, height) of each image. Raises DataError."""
        if values.shape[:2] == (1, 1) and values.shape[3:] == (8,):
            found = objects_of(values, images)
        else:
            lists = values.reshape(images, count(values.shape, 1) // 5, 5)
            found = [each[: np.append(each[:, 3] != 0, False).argmin()] for each in lists]
        for n, each in enumerate(found):
            wrong = ~((each[:, 0] > -1) & (each[:, 0] < self.classes) & (each[:, 1:3] >= 0).all(axis=1))
            wrong |= ~((each[:, 1:3] <= 1).all(axis=1) & (each[:, 3:] > 0).all(axis=1))
            if wrong.any():
                row = ", ".join(f"{v:g}" for v in each[wrong][0])
                raise self.error(
                    f"image {n} has an object (class, x, y, width, height) of {row}",
                    kind=DataError,
                    blob=self.param.bottom[1],
                    fix=f"give classes below {self.classes}, and boxes in fractions of the picture",
                )
        return found

    def background(self, boxes: HostArray, objects: HostArray, thresh: float) -> HostArray:
        """Return which of the boxes (H, W, A, 4) overlap no object by more than this."""
        best = np.zeros(boxes.shape[:-1], boxes.dtype)
        for each in objects:
            best = np.maximum(best, overlaps(boxes, each[1:]))
        return np.asarray(best <= thresh)

    @staticmethod
    def position(each: HostArray, height: int, width: int) -> tuple[int, int]:
        """Return row and column of the position that an object's centre lies in."""
        return min(int(each[2] * height), height - 1), min(int(each[1] * width), width - 1)

    @staticmethod
    def best_anchor(each: HostArray, sides: HostArray) -> HostArray:
        """Return the overlaps of an object with boxes of these sides (A, 2) around its centre."""
        centred = np.concatenate([np.zeros_like(sides), sides], axis=1)
        return overlaps(centred, np.array([0, 0, *each[3:]], sides.dtype))


@register_layer("RegionLoss")
class RegionLossLayer(_YoloLoss):
    """What YOLO, version 2, learns by: gradients for locations, objects and classes; top 0 is the sum of their squares.

    Bottom 0: a feature map (N, A * (5 + C), H, W), with A = num anchors and C = num_class: for each anchor x, y, width,
    height, object, and the classes' scores, which mean boxes as in YoloDetectionOutput. Bottom 1: objects, in one of
    two dialects, no gradient. MobileNet-YOLO: (N, T * 5), rows of class from 0, and x, y of the centre, width, height
    in fractions of the picture; a width of 0 ends them. Intel: (1, 1, G, 8) of AnnotatedData, rows of (image, class
    from 1, instance, xmin, ymin, xmax, ymax, difficult), image -1 for none. Top 0: one number.
    With s = sigmoid and s' its slope, each box that overlaps no object by more than thresh gets noobject_scale *
    s(object) * s'(object). An object is learnt by the anchor that overlaps it most (without bias_match: whose predicted
    size does), at the position of its centre. With d = what the map says - what is wanted, this box gets coord_scale *
    d * s' for x and y, coord_scale * d for width and height, object_scale * (s(object) - overlap) * s'(object), and
    class_scale * (softmax - 1 in its class, 0 in others) instead. Without rescore coord_scale is times 2 - width *
    height, and 1 is wanted instead of the overlap. The last of several objects counts.
    Intel's dialect limits d to -1 .. 1, has no rescore, and gives the score -2 * object_scale * (1 - s)^3 * s'.
    Top 0 is divided by N in MobileNet-YOLO's dialect alone, the gradients in both. They are not those of top 0.
    side, softmax, jitter, absolute and random have no effect, as in the forks. Backward reads no data: forward saves
    the gradients. Runs on the host.
    Raises: LayerParamError for biases that do not fit num, other coords than 4, softmax_tree or class_map; ShapeError
    for other shapes; DataError for an object of another class, or outside of the picture.
    Source: eric612/MobileNet-YOLO and intel/caffe, src/caffe/layers/region_loss_layer.cpp.
    """

    def setup(self, bottom_shapes: Shapes) -> None:
        p = self.options = self.param.region_loss_param
        self.classes = p.num_class
        self.anchors = anchors_of(self, np.array(p.biases), p.num)
        if p.coords != 4:
            raise self.error(f"coords is {p.coords}", fix="write coords: 4, or leave it out")
        for name in ("softmax_tree", "class_map"):
            if getattr(p, name):
                raise self.error(f"{name} is not supported", fix=f"delete {name}, and number the classes in the data")

    def infer_shapes(self, bottom_shapes: Shapes) -> Shapes:
        images = check_map(self, bottom_shapes, 0, len(self.anchors), self.classes)[0]
        self.check_truth(tuple(bottom_shapes[1]), images, rows=True)
        self.limits = len(bottom_shapes[1]) == 4 and tuple(bottom_shapes[1])[3] == 8  # Intel's dialect
        self.divides = not self.limits
        return [()]

    def slopes(self, seen: HostArray, objects: HostArray) -> tuple[HostArray, HostArray]:
        p, (height, width) = self.options, seen.shape[:2]
        boxes = places(seen[None], self.anchors)[0]
        at, obj = sigmoid(seen[..., :2]), sigmoid(seen[..., 4])
        chance = np.exp(seen[..., 5:] - seen[..., 5:].max(axis=-1, keepdims=True))
        chance /= chance.sum(axis=-1, keepdims=True)
        made = np.zeros_like(seen)
        made[..., 4] = self.background(boxes, objects, p.thresh) * p.noobject_scale * obj * obj * (1 - obj)
        size = np.array([width, height], seen.dtype)
        for each in objects:
            h, w = self.position(each, height, width)
            sides = self.anchors / size if p.bias_match else boxes[h, w, :, 2:]
            a = int(self.best_anchor(each, sides).argmax())
            box, own = made[h, w, a], (h, w, a)
            iou = overlaps(boxes[own], each[1:])
            d = np.concatenate([at[own] - (each[1:3] * size - (w, h)), seen[own][2:4]])
            d[2:] -= np.log(each[3:] * size / self.anchors[a])
            scale, wanted = p.coord_scale, float(iou)
            if self.limits:
                d = np.clip(d, -1, 1)
            elif not p.rescore:
                scale, wanted = scale * (2 - each[3] * each[4]), 1.0
            box[:4] = scale * d
            box[:2] *= at[own] * (1 - at[own])
            score = obj[own]
            error = -2 * (1 - score) ** 3 if self.limits else score - wanted
            box[4] = p.object_scale * error * score * (1 - score)
            box[5:] = p.class_scale * (chance[own] - (np.arange(self.classes) == int(each[0])))
        return made, made


@register_layer("Yolov3")
class Yolov3Layer(_YoloLoss):
    """What YOLO, version 3, learns by: gradients for locations, objects and classes; top 0 is the sum of their squares.

    Bottom 0: a feature map (N, A * (5 + C), H, W), with A = num anchors, those of `mask`, and C = num_class, which mean
    boxes as in Yolov3DetectionOutput. Bottom 1: objects, (N, T * 5), rows of class from 0, and x, y of the centre,
    width, height in fractions of the picture; a width of 0 ends them. It gets no gradient. Top 0: one number.
    With s = sigmoid, each box that overlaps no object by more than thresh gets s(object). An object is learnt, at the
    position of its centre, by that of all anchors (`biases`) that overlaps it most, where it is in `mask`, and by each
    other one of `mask` that overlaps it by more than iou_thresh, where that is below 1. Such a box gets coord_scale *
    (2 - width * height) * (what the map says - what is wanted) for s(x), s(y), width and height, s(object) - 1, and
    class_scale * (s(class) - wanted), with wanted 1 - label_smooth_eps / 2 for the object's class, and label_smooth_eps
    / 2 for others. A box that learns several objects learns all of their classes, and the last one's location.
    With use_logic_gradient, s(object) - 1 is times object_scale, and what backward passes on for x, y, object and
    classes times the slope of s. Both top 0 and gradients are divided by N. The gradients are not those of top 0.
    side, noobject_scale, iou_normalizer, max_delta and accumulate have no effect, as in the fork for iou_loss MSE.
    Backward reads no data: forward saves the gradients. Runs on the host.
    Raises: LayerParamError for numbers that do not belong together, another iou_loss than MSE, or use_focal_loss;
    ShapeError for other shapes; DataError for an object of another class, or outside of the picture.
    Source: eric612/MobileNet-YOLO, src/caffe/layers/yolov3_layer.cpp (which takes an anchor's place in `mask` for its
    number where it leaves out the best one).
    """

    def setup(self, bottom_shapes: Shapes) -> None:
        p = self.options = self.param.yolov3_param
        self.classes = p.num_class
        self.all_anchors = anchors_of(self, np.array(p.biases), len(p.biases) // 2)
        self.mask = list(p.mask)[: p.num]
        if len(self.mask) != p.num or any(number >= len(self.all_anchors) for number in self.mask):
            raise self.error(
                f"mask {list(p.mask)} does not name num {p.num} of {len(self.all_anchors)} anchors",
                fix="give num times mask, the numbers of anchors from 0",
            )
        self.anchors = self.all_anchors[self.mask]
        if p.iou_loss != caffe_pb2.Yolov3Parameter.MSE or p.use_focal_loss:
            raise self.error("iou_loss other than MSE, and use_focal_loss, are not supported", fix="delete the field")

    def infer_shapes(self, bottom_shapes: Shapes) -> Shapes:
        images = check_map(self, bottom_shapes, 0, len(self.anchors), self.classes)[0]
        self.check_truth(tuple(bottom_shapes[1]), images, rows=False)
        return [()]

    def slopes(self, seen: HostArray, objects: HostArray) -> tuple[HostArray, HostArray]:
        p, (height, width) = self.options, seen.shape[:2]
        boxes, value = places(seen[None], self.anchors, p.anchors_scale)[0], sigmoid(seen)
        value[..., 2:4] = seen[..., 2:4]
        made = np.zeros_like(seen)
        made[..., 4] = self.background(boxes, objects, p.thresh) * value[..., 4]
        size, smooth = np.array([width, height], seen.dtype), p.label_smooth_eps
        for each in objects:
            h, w = self.position(each, height, width)
            label, common = int(each[0]), self.best_anchor(each, self.all_anchors / (size * p.anchors_scale))
            chosen = {int(common.argmax())}
            if p.iou_thresh < 1:
                chosen |= set(np.flatnonzero(common > p.iou_thresh).tolist())
            for a, number in enumerate(self.mask):
                if number not in chosen:
                    continue
                box, own = made[h, w, a], value[h, w, a]
                wanted = np.concatenate(
                    [each[1:3] * size - (w, h), np.log(each[3:] * size * p.anchors_scale / self.anchors[a])]
                )
                box[:4] = p.coord_scale * (2 - each[3] * each[4]) * (own[:4] - wanted)
                box[4] = (own[4] - 1) * (p.object_scale if p.use_logic_gradient else 1)
                target = (np.arange(self.classes) == label) * (1 - smooth) + smooth / 2
                error = p.class_scale * (own[5:] - target)
                if box[5 + label] != 0:  # another object's classes stay
                    box[5 + label] = error[label]
                else:
                    box[5:] = error
        passed = made
        if p.use_logic_gradient:
            passed = made * (value * (1 - value))
            passed[..., 2:4] = made[..., 2:4]
        return made, passed
