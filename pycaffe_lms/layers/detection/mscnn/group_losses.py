"""DetectionGroupLoss, DetectionGroupAccuracy: what Cascade R-CNN's detectors learn by, and how good they are.

Maps have N * G items: the G detectors of the first picture, one after the other, then those of the next one. A label of
a position is (class, x, y, width, height, overlap), as in losses.py.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from ....arrays import HostArray
from ....proto.caffe_pb2 import LayerParameter
from ...base import BuildContext, Declaration, Layer, Lives, Ops, Pass, Reads, Runs, Shapes, count, exactly
from ...loss.base import LossLayer
from ...mixins import RandomLayer
from ...registry import register_layer
from .measures import (
    LABEL,
    BoxGrid,
    Score,
    check_labels,
    class_loss,
    host_generator,
    ignored_class,
    limits_of,
    means_and_deviations,
    overlaps_of_moved,
    place_loss,
    share,
)

_MINING = ("random", "bootstrap", "mixture")
_RANKING = ("conf_loss", "conf_prob")
_LOSSES = ("Smooth_L1", "Euclidean_L2")


def _sizes_of(layer: Layer, p: Any) -> HostArray:
    """Return the detectors' boxes that a message describes, (G, 2, 1, 1). Raises LayerParamError."""
    sizes = [*p.field_w, *p.field_h]
    if not sizes or len(p.field_w) != len(p.field_h) or not all(sizes) or not p.stride or not p.cls_num:
        raise layer.error(
            "needs as many field_w as field_h, a stride and cls_num",
            fix="write cls_num: 2 stride: 16 field_w: 176 field_h: 88 ... in the layer's message",
        )
    if p.objectness and p.cls_num != 2:
        raise layer.error(f"has objectness, but cls_num {p.cls_num}", fix="write cls_num: 2")
    return np.array([p.field_w, p.field_h], layer.dtype).T[:, :, None, None]


def _grid(sizes: HostArray, items: int, p: Any, limits: tuple[float, float]) -> BoxGrid:
    """Return the boxes of maps with so many items, of detectors with boxes of `sizes`."""
    return BoxGrid(np.tile(sizes, (items // len(sizes), 1, 1, 1)), p.stride, *limits)


def _check_maps(layer: Layer, bottom_shapes: Shapes, classes: int, groups: int) -> None:
    """Raise ShapeError unless the bottoms are scores, moves and labels of the same positions."""
    first = tuple(bottom_shapes[0])
    for i, (what, channels) in enumerate((("scores", classes), ("moves", 4), ("labels", LABEL))):
        shape = tuple(bottom_shapes[i])
        if len(shape) != 4 or shape[1] != channels or (shape[0], *shape[2:]) != (first[0], *first[2:]):
            raise layer.shape_error(f"has shape {shape}", bottom=i, fix=f"give {what} (N * G, {channels}, H, W)")
    if first[0] % groups:
        raise layer.shape_error(
            f"has {first[0]} items, no multiple of {groups}", bottom=0, fix="give one for each field_w of each picture"
        )


@register_layer("DetectionGroupLoss")
class DetectionGroupLossLayer(LossLayer, RandomLayer):
    """What detectors of boxes of G sizes learn by: losses of classes, and lambda times of locations (Cascade R-CNN).

    Bottom 0: (N * G, K, H, W), scores of K = cls_num classes, background first. Bottom 1: (N * G, 4, H, W): how the box
    of field_w(g) x field_h(g) at each position, stride pixels apart, is moved: x and y in sizes of the box, logarithms
    of width and height. Bottom 2: labels (N * G, 6, H, W): class, x, y, width, height of the object, and how much the
    box overlaps objects; no gradient. G is the number of field_w.
    Top 0: (1, 1, 1, 2): the sum of both losses, and lambda times that of locations. The gradient is that of the first,
    times its loss weight.
    Of each picture some positions with an object count, and some of those without whose overlap is below bg_threshold.
    With batch_size -1 all of the former, and bg_multiple for each, at least min_num_neg, of the latter; else
    round(batch_size / (1 + bg_multiple)) of the former at most, drawn where there are more, and the rest of batch_size
    of the latter. neg_mining_type says which: `random` draws, `bootstrap` takes those least certain to be background,
    of equal ones the last; `mixture` takes half of them so and draws the rest. neg_ranking_type, `conf_loss` or
    `conf_prob`, orders them alike. The loss of classes is the mean of -log softmax over what counts; with
    pos_neg_weighted objects weigh together 1 / (1 + bg_multiple) of all. With objectness all objects are of class 1.
    The loss of locations is the mean over coordinates of positions with an object that count of f(what is seen - what
    is wanted), where what is seen is first limited by field_xyr and field_whr if both are given. f(d) is d^2 / 2 where
    |d| < 1, else |d| - 1/2; with bbox_loss_type: "Euclidean_L2" always the former. The limits have slope 1.
    bbox_reg_param: what moves are multiplied by (bbox_std), and what is added (bbox_mean). loss_param.ignore_label:
    positions of this class do not count.
    Draws depend only on the layer's seed and the number of forwards before. Backward reads no data: forward saves the
    gradients. Runs on the host.
    Raises: LayerParamError for fields that are absent or impossible; ShapeError for bottoms that do not belong
    together; DataError for an object's label outside the classes.
    Source: zhaoweicai/cascade-rcnn, src/caffe/layers/detection_group_loss_layer.cpp.
    """

    declares = Declaration(
        bottoms=exactly(3),
        runs_on=Runs.HOST,
        is_loss=True,
        backward_reads=Reads.NONE,
        no_backward=frozenset({2}),
        ignores_force_backward=frozenset({2}),
        full_precision=frozenset({2}),
    )

    def __init__(self, param: LayerParameter, context: BuildContext):
        RandomLayer.__init__(self, param, context)

    def after(self, state: dict[str, int], forwards: int) -> dict[str, int]:
        return state | {"draws": state["draws"] + forwards}

    def setup(self, bottom_shapes: Shapes) -> None:
        p = self.options = self.param.detection_group_loss_param
        self.sizes, self.normal = _sizes_of(self, p), means_and_deviations(self, self.param.bbox_reg_param)
        for name, known in (
            ("neg_mining_type", _MINING),
            ("neg_ranking_type", _RANKING),
            ("bbox_loss_type", _LOSSES),
        ):
            if getattr(p, name) not in known:
                raise self.error(f'{name} is "{getattr(p, name)}"', fix=f"use one of {', '.join(known)}")
        if p.batch_size < 1 and p.batch_size != -1:
            raise self.error(f"batch_size is {p.batch_size}", fix="give 1 or more, or -1")
        limited = p.HasField("field_xyr") and p.HasField("field_whr")
        self.limits = limits_of(self, p) if limited else (np.inf, np.inf)
        self.ignored = ignored_class(self.param.loss_param)

    def infer_shapes(self, bottom_shapes: Shapes) -> Shapes:
        _check_maps(self, bottom_shapes, self.options.cls_num, len(self.sizes))
        return [(1, 1, 1, 2)]

    def declare(self, bottom_shapes: Shapes, top_shapes: Shapes, ops: Ops) -> None:
        for i, name in enumerate(("classes", "places")):
            self.scratch(name, bottom_shapes[i], lives=Lives.SAVED)

    def forward(self, io: Pass) -> None:
        p, (scores, moves, truth) = self.options, io.bottom
        found = np.trunc(truth[:, 0]).astype(np.int64)
        labels = np.minimum(found, 1) if p.objectness else found
        check_labels(self, labels[(labels > 0) & (labels != self.ignored)], p.cls_num, 2)
        kept = self._kept(scores, found, truth[:, -1])
        slopes = np.zeros_like(scores), np.zeros_like(moves)
        loss = class_loss(scores, labels, kept & (labels != self.ignored), self._weights(found > 0, kept), slopes[0])
        objects = kept & (found > 0) & (found != self.ignored)
        field, smooth = _grid(self.sizes, len(moves), p, self.limits), p.bbox_loss_type == "Smooth_L1"
        factor = getattr(p, "lambda")  # a word of Python
        place = factor * place_loss(moves, truth, objects, field, self.normal, slopes[1], smooth=smooth)
        np.multiply(slopes[1], factor, out=slopes[1])
        io.top[0][...] = np.reshape([loss + place, place], (1, 1, 1, 2))
        for name, values in zip(("classes", "places"), slopes, strict=True):
            if io.scratch.get(name) is not None:
                io.scratch[name][...] = values

    def _kept(self, scores: HostArray, labels: HostArray, overlap: HostArray) -> HostArray:
        """Return which positions count, (N * G, H, W)."""
        p, rng = self.options, host_generator(self)
        images = len(labels) // len(self.sizes), len(self.sizes) * count(labels.shape, 1)
        free = ((labels == 0) & (overlap < p.bg_threshold)).reshape(images)
        objects = (labels > 0).reshape(images)
        kept = np.zeros_like(free)
        sure = scores[:, 0] - np.logaddexp.reduce(scores, axis=1)  # of background
        for mine, good, bad, certain in zip(kept, objects, free, sure.reshape(images), strict=True):
            positive: HostArray = np.flatnonzero(good)
            negative: HostArray = np.flatnonzero(bad)
            if p.batch_size == -1:
                most = len(positive)
                rest = max(most * p.bg_multiple, p.min_num_neg)
            else:
                most = min(int(p.batch_size / (1 + p.bg_multiple) + 0.5), len(positive))
                rest = p.batch_size - most
            if len(positive) > most:
                positive = rng.permutation(positive)[:most]
            if len(negative) > rest:
                negative = self._mined(negative, rest, certain, rng)
            mine[positive] = mine[negative] = True
        return np.asarray(kept.reshape(labels.shape))

    def _mined(self, places: HostArray, wanted: int, certain: HostArray, rng: np.random.Generator) -> HostArray:
        """Return so many of the places."""
        kind = self.options.neg_mining_type
        if kind == "random":
            return np.asarray(rng.permutation(places)[:wanted])
        last_first = places[::-1]
        order = last_first[np.argsort(certain[last_first], kind="stable")]
        hard = wanted if kind == "bootstrap" else (wanted + 1) // 2
        return np.concatenate([order[:hard], rng.permutation(order[hard:])[: wanted - hard]])

    def _weights(self, objects: HostArray, kept: HostArray) -> HostArray:
        """Return what the loss of each position is multiplied by."""
        weights, total = np.ones(kept.shape), int(kept.sum())
        if self.options.pos_neg_weighted:
            share_of_objects = 1 / (1 + self.options.bg_multiple)
            for group, part in ((objects, share_of_objects), (~objects, 1 - share_of_objects)):
                number = int((group & kept).sum())
                weights[group] = part * total / number if number else 1
        return weights

    def backward(self, io: Pass) -> None:
        for dx, name in zip(io.bottom_diff, ("classes", "places"), strict=False):
            if dx is None:
                continue
            if io.top_diff[0] is None:
                dx.fill(0)
            else:
                np.multiply(io.scratch[name], io.top_diff[0].reshape(-1)[0], out=dx)


@register_layer("DetectionGroupAccuracy")
class DetectionGroupAccuracyLayer(Score):
    """How often detectors of boxes of G sizes find the class, and how much their boxes overlap objects (Cascade R-CNN).

    Bottoms: those of DetectionGroupLoss. Top 0: (1, 1, 1, 2): the share of positions whose class has the highest score,
    of equal ones the first, and that of positions with an object; -1 where there are none. Positions without an object
    whose overlap is bg_threshold or more do not count. Top 1, if given: (1, 1, 1, 1), the mean overlap of moved boxes
    with their objects, 0 where they have less than a pixel's width or height in common; -1 where there are none. Fields
    are those of DetectionGroupLoss, in detection_group_accuracy_param; boxes move at most 1 / field_xyr of their size.
    Runs on the host. No bottom gets a gradient.
    Raises: as DetectionGroupLoss.
    Source: zhaoweicai/cascade-rcnn, src/caffe/layers/detection_group_accuracy_layer.cpp.
    """

    declares = replace(Score.declares, bottoms=exactly(3))

    def setup(self, bottom_shapes: Shapes) -> None:
        p = self.options = self.param.detection_group_accuracy_param
        self.sizes, self.normal = _sizes_of(self, p), means_and_deviations(self, self.param.bbox_reg_param)
        self.limits = limits_of(self, p)
        self.ignored = ignored_class(self.param.loss_param)

    def infer_shapes(self, bottom_shapes: Shapes) -> Shapes:
        _check_maps(self, bottom_shapes, self.options.cls_num, len(self.sizes))
        return [(1, 1, 1, 2), (1, 1, 1, 1)][: len(self.param.top)]

    def forward(self, io: Pass) -> None:
        p, (scores, moves, truth) = self.options, io.bottom
        found = np.trunc(truth[:, 0]).astype(np.int64)
        labels = np.minimum(found, 1) if p.objectness else found
        counts = ((found != 0) | (truth[:, -1] < p.bg_threshold)) & (labels != self.ignored)
        right = scores.argmax(axis=1) == labels
        io.top[0][0, 0, 0] = [share(right, counts), share(right, counts & (labels != 0))]
        if len(io.top) > 1:
            field = _grid(self.sizes, len(moves), p, self.limits)
            overlaps = overlaps_of_moved(moves, truth, field, self.normal, least=1)
            io.top[1].fill(share(overlaps, (found != 0) & (found != self.ignored)))
