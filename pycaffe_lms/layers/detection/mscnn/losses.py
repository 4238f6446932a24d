"""DetectionLoss, DetectionAccuracy, BboxAccuracy: what MS-CNN's detectors learn by, and how good they are.

A label of a position is (class, x, y, width, height, overlap): the object whose box this is, 0 for background, with its
centre and size in pixels, and how much the box overlaps objects.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from ....arrays import HostArray
from ....proto.caffe_pb2 import LayerParameter
from ...base import BuildContext, Declaration, Layer, Lives, Ops, Pass, Reads, Runs, Shapes, count, exactly
from ...loss.base import LossLayer
from ...mixins import RandomLayer
from ...registry import register_layer
from .measures import (
    LABEL,
    Score,
    check_labels,
    class_loss,
    corners,
    field_of,
    host_generator,
    ignored_class,
    means_and_deviations,
    overlaps_of_moved,
    overlaps_of_pairs,
    place_loss,
    share,
)

_OWN = 0.975  # regions that overlap an object more are its own box


def _check_maps(layer: Layer, bottom_shapes: Shapes, classes: int) -> None:
    """Raise ShapeError unless the bottoms are scores with moves, and labels, of the same positions."""
    x, labels = (tuple(shape) for shape in bottom_shapes)
    if len(x) != 4 or x[1] != classes + 4:
        raise layer.shape_error(f"has shape {x}", bottom=0, fix=f"give (N, cls_num + 4, H, W), {classes + 4} channels")
    if labels != (x[0], LABEL, *x[2:]):
        raise layer.shape_error(f"has shape {labels}", bottom=1, fix=f"give labels {(x[0], LABEL, *x[2:])}")


@register_layer("DetectionLoss")
class DetectionLossLayer(LossLayer, RandomLayer):
    """What a detector of boxes of one size learns by: a loss of classes, and lambda times one of locations (MS-CNN).

    Bottom 0: (N, K + 4, H, W), scores of K = cls_num classes, background first, then how the box of field_w x field_h
    at each position is moved: x and y in sizes of the box, logarithms of width and height. Bottom 1: labels
    (N, 6, H, W): class, x, y, width, height of the object, and how much the box overlaps objects; no gradient.
    Top 0: (1, 1, 1, 2): the sum of both losses, and that of locations. The gradient is that of the first, times its
    loss weight.
    All positions with an object count, and some of those without whose overlap is below bg_threshold. sample_mode
    chooses them, in each picture: `bootstrap` for each class its highest scores, bg_multiple for each of its objects
    and at least 4; `random` draws bg_multiple for each object, at least 4 (K - 1), some of them twice; `mixture` does
    both, with half as many; any other name takes all. The loss of classes is the mean of -log softmax over what counts,
    each times its weight: 1; with iou_weighted an object weighs its overlap; with pos_neg_weighted objects weigh
    together 1 / (1 + bg_multiple) of all. With objectness all objects are of class 1.
    The loss of locations is the mean over coordinates of positions with an object of f(what is seen - what is wanted),
    where what is seen is first limited by field_xyr and field_whr. f(d) is d^2 / 2 where |d| < 1, else |d| - 1/2;
    without bb_smooth always the former. The limits have slope 1. bbox_reg_param: what moves are multiplied by
    (bbox_std), and what is added (bbox_mean).
    loss_param.ignore_label: positions of this class do not count.
    Draws depend only on the layer's seed and the number of forwards before. Backward reads no data: forward saves the
    gradients. Runs on the host.
    Raises: LayerParamError for fields that are absent or impossible; ShapeError for bottoms that do not belong
    together; DataError for an object's label outside the classes.
    Source: zhaoweicai/mscnn, src/caffe/layers/detection_loss_layer.cpp.
    """

    declares = Declaration(
        bottoms=exactly(2),
        runs_on=Runs.HOST,
        is_loss=True,
        backward_reads=Reads.NONE,
        no_backward=frozenset({1}),
        ignores_force_backward=frozenset({1}),
        full_precision=frozenset({1}),
    )

    def __init__(self, param: LayerParameter, context: BuildContext):
        RandomLayer.__init__(self, param, context)

    @property
    def random(self) -> bool:
        return self.param.detection_loss_param.sample_mode in ("random", "mixture")

    def after(self, state: dict[str, int], forwards: int) -> dict[str, int]:
        return state | ({"draws": state["draws"] + forwards} if state else {})

    def setup(self, bottom_shapes: Shapes) -> None:
        p = self.param.detection_loss_param
        self.field, self.normal = field_of(self, p), means_and_deviations(self, self.param.bbox_reg_param)
        if p.objectness and p.cls_num != 2:
            raise self.error(f"has objectness, but cls_num {p.cls_num}", fix="write cls_num: 2")
        self.ignored = ignored_class(self.param.loss_param)

    def infer_shapes(self, bottom_shapes: Shapes) -> Shapes:
        _check_maps(self, bottom_shapes, self.param.detection_loss_param.cls_num)
        return [(1, 1, 1, 2)]

    def declare(self, bottom_shapes: Shapes, top_shapes: Shapes, ops: Ops) -> None:
        self.scratch("slopes", bottom_shapes[0], lives=Lives.SAVED)

    def forward(self, io: Pass) -> None:
        p, (x, truth) = self.param.detection_loss_param, io.bottom
        classes = p.cls_num
        labels = np.trunc(truth[:, 0]).astype(np.int64)
        if p.objectness:
            labels = np.minimum(labels, 1)
        chosen = self._background(x, labels, truth[:, -1])
        objects = labels != 0
        fine = np.ones_like(objects) if self.ignored is None else labels != self.ignored
        check_labels(self, labels[objects & fine], classes, 1)
        weights = self._weights(objects, chosen, truth[:, -1])
        slopes = np.zeros_like(x)
        of_classes = class_loss(x[:, :classes], labels, (objects | chosen) & fine, weights, slopes[:, :classes])
        factor = getattr(p, "lambda")  # a word of Python
        of_places = factor * place_loss(
            x[:, -4:], truth, objects & fine, self.field, self.normal, slopes[:, -4:], smooth=p.bb_smooth
        )
        slopes[:, classes:] *= factor
        io.top[0][...] = np.reshape([of_classes + of_places, of_places], (1, 1, 1, 2))
        kept = io.scratch.get("slopes")
        if kept is not None:
            kept[...] = slopes

    def _background(self, x: HostArray, labels: HostArray, overlap: HostArray) -> HostArray:
        """Return which positions without an object count, (N, H, W)."""
        p = self.param.detection_loss_param
        free = (labels == 0) & (overlap < p.bg_threshold)
        if p.sample_mode not in ("random", "bootstrap", "mixture"):
            return np.asarray(free)
        rng = host_generator(self) if self.random else None
        share = 0.5 if p.sample_mode == "mixture" else 1.0
        chosen = np.zeros_like(free)
        for n in range(len(x)):
            mine, flat = free[n].reshape(-1), chosen[n].reshape(-1)
            if rng is not None and mine.size:
                positive = int((labels[n] != 0).sum())
                draws = max(int(positive * p.bg_multiple * share), 4 * (p.cls_num - 1))
                drawn = rng.integers(mine.size, size=draws)
                flat[drawn[mine[drawn]]] = True
            if p.sample_mode != "random":
                for k in range(1, p.cls_num):
                    wanted = max(4, int(int((labels[n] == k).sum()) * p.bg_multiple * share))
                    places = np.flatnonzero(mine)[::-1]  # of equal scores the last counts, as in the fork
                    order = np.argsort(-x[n, k].reshape(-1)[places], kind="stable")
                    flat[places[order[:wanted]]] = True
        return np.asarray(chosen)

    def _weights(self, objects: HostArray, chosen: HostArray, overlap: HostArray) -> HostArray:
        p = self.param.detection_loss_param
        weights = np.where(objects & p.iou_weighted, overlap, overlap.dtype.type(1)).astype(np.float64)
        total = float(weights[objects].sum())
        if p.pos_neg_weighted and total:
            share, number = 1 / (1 + p.bg_multiple), int(chosen.sum()) + int(objects.sum())
            rest = float(weights[chosen].sum())
            weights[objects] *= share * number / total
            weights[~objects] *= (1 - share) * number / rest if rest else 1
        return np.asarray(weights)

    def backward(self, io: Pass) -> None:
        dx, dloss = io.bottom_diff[0], io.top_diff[0]
        if dx is None:
            return
        if dloss is None:
            dx.fill(0)
        else:
            np.multiply(io.scratch["slopes"], dloss.reshape(-1)[0], out=dx)


@register_layer("DetectionAccuracy")
class DetectionAccuracyLayer(Score):
    """How often a detector of boxes of one size finds the class, and how much its boxes overlap objects (MS-CNN).

    Bottoms 0 and 1: those of DetectionLoss. Top 0: (1, 1, 1, 2): the share of positions whose class is among the top_k
    best, and that of positions with an object; -1 where there are none. Positions without an object whose overlap is
    bg_threshold or more do not count. Top 1, if given: (1, 1, 1, 1), the mean overlap of moved boxes with their
    objects; -1 where there are none. Fields are those of DetectionLoss, in detection_accuracy_param.
    Runs on the host. No bottom gets a gradient.
    Raises: as DetectionLoss; LayerParamError for a top_k beyond cls_num.
    Source: zhaoweicai/mscnn, src/caffe/layers/detection_accuracy_layer.cpp.
    """

    def setup(self, bottom_shapes: Shapes) -> None:
        p = self.param.detection_accuracy_param
        self.field, self.normal = field_of(self, p), means_and_deviations(self, self.param.bbox_reg_param)
        if not 1 <= p.top_k <= p.cls_num:
            raise self.error(f"top_k is {p.top_k}", fix=f"give 1 to {p.cls_num}")
        self.ignored = ignored_class(self.param.loss_param)

    def infer_shapes(self, bottom_shapes: Shapes) -> Shapes:
        _check_maps(self, bottom_shapes, self.param.detection_accuracy_param.cls_num)
        return [(1, 1, 1, 2), (1, 1, 1, 1)][: len(self.param.top)]

    def forward(self, io: Pass) -> None:
        p, (x, truth) = self.param.detection_accuracy_param, io.bottom
        labels = np.trunc(truth[:, 0]).astype(np.int64)
        objects = labels != 0
        if p.objectness:
            labels = np.minimum(labels, 1)
        counts = objects | (truth[:, -1] < p.bg_threshold)
        fine = np.ones_like(objects) if self.ignored is None else labels != self.ignored
        scores = x[:, : p.cls_num]
        own = np.take_along_axis(scores, np.clip(labels, 0, p.cls_num - 1)[:, None], axis=1)
        later = np.arange(p.cls_num)[:, None, None] > labels[:, None]
        better = ((scores > own) | ((scores == own) & later)).sum(axis=1)  # of equal scores the last is best
        right = better < p.top_k
        io.top[0][0, 0, 0] = [share(right, counts & fine), share(right, objects & fine)]
        if len(io.top) > 1:
            io.top[1].fill(share(overlaps_of_moved(x[:, -4:], truth, self.field, self.normal), objects & fine))


@register_layer("BboxAccuracy")
class BboxAccuracyLayer(Score):
    """How much regions overlap the objects that they were matched with, after they were moved (MS-CNN).

    Bottom 0: how regions are moved, (R, 4 K): for each class x, y in sizes of the region, logarithms of the ratios of
    width and height; without bbox_reg_param.cls_aware of background, then of all objects. Bottom 1: regions (image, x1,
    y1, x2, y2), (R, 5), of pixels, both ends counted in. Bottom 2: (R, 6) of ProposalTarget: class, x1, y1, x2, y2 of
    the object and its overlap; class 0 where there is none. Top 0: the mean overlap of the moved regions with objects,
    (1, 1, 1, 1). Top 1, if given: that of the regions. Regions whose overlap is above 0.975, the objects' own boxes, do
    not count; without any the mean is -1.
    bbox_reg_param: what moves are multiplied by (bbox_std), and what is added (bbox_mean).
    Runs on the host. No bottom gets a gradient.
    Raises: ShapeError for bottoms of other shapes; LayerParamError for impossible means or deviations.
    Source: zhaoweicai/mscnn, src/caffe/layers/bbox_accuracy_layer.cpp.
    """

    declares = replace(Score.declares, bottoms=exactly(3))

    def setup(self, bottom_shapes: Shapes) -> None:
        self.mean, self.std = means_and_deviations(self, self.param.bbox_reg_param)
        self.aware = self.param.bbox_reg_param.cls_aware

    def infer_shapes(self, bottom_shapes: Shapes) -> Shapes:
        rows = bottom_shapes[0][0] if bottom_shapes[0] else 0
        for i, (shape, numbers) in enumerate(zip(bottom_shapes, (4, 5, 6), strict=True)):
            each = count(shape, 1) if shape else 0
            if not shape or shape[0] != rows or (each != numbers if i else each % 4):
                raise self.shape_error(
                    f"has shape {tuple(shape)}", bottom=i, fix="give (R, 4 K), (R, 5) and (R, 6) of the same R"
                )
        return [(1, 1, 1, 1)] * len(self.param.top)

    def forward(self, io: Pass) -> None:
        moves, regions, matched = (b.reshape(len(b), count(b.shape, 1)) for b in io.bottom)
        label = np.trunc(matched[:, 0]).astype(np.int64)
        counts = (label > 0) & (matched[:, -1] <= _OWN)
        own = label if self.aware else np.minimum(label, 1)
        columns = 4 * np.where(counts, own, 0)[:, None] + np.arange(4)
        move = np.take_along_axis(moves, columns, axis=1) * self.std + self.mean
        low, wanted = regions[:, 1:3], matched[:, 1:5] + np.array([0, 0, 1, 1], moves.dtype)
        size = regions[:, 3:5] - low + 1
        centre, sides = move[:, :2] * size + low + size / 2, size * np.exp(move[:, 2:])
        before = overlaps_of_pairs(np.concatenate([low, low + size], axis=1), wanted)
        after = overlaps_of_pairs(corners(centre, sides), wanted)
        for top, values in zip(io.top, (after, before), strict=False):
            top.fill(share(values, counts))
