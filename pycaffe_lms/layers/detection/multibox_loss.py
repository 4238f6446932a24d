"""MultiBoxLoss: what SSD learns by."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from ...arrays import HostArray
from ...errors import DataError
from ...proto import caffe_pb2
from ..base import Declaration, Lives, Ops, Pass, Reads, Runs, Shapes, between
from ..loss.base import BATCH_SIZE, FULL, VALID, LossLayer
from ..registry import register_layer
from .boxes import decode, encode, priors_of
from .detection_output import check_classes, check_predictions, check_refinement, for_images
from .matching import Truth, match, mine, truth_of

_Param = caffe_pb2.MultiBoxLossParameter
_FLT_MIN = float(np.finfo(np.float32).tiny)  # the least probability, as in SoftmaxWithLoss


@register_layer("MultiBoxLoss")
class MultiBoxLossLayer(LossLayer):
    """(loc_weight * the loss of locations + the loss of classes) / Z, over default boxes that are matched with
    ground-truth boxes, and boxes of the background.

    For P default boxes and C = num_classes classes: bottom 0: predicted locations, (N, P * 4), or without
    share_location (N, P * C * 4). Bottom 1: scores before softmax or sigmoid, (N, P * C). Bottom 2: default boxes and
    variances, (1, 2, P * 4), of PriorBox. Bottom 3: ground-truth boxes, rows of (image, class, instance, xmin, ymin,
    xmax, ymax, difficult), (1, 1, G, 8); rows of image -1 and, without use_difficult_gt, difficult ones do not count.
    Bottoms 0 and 1 may have further axes of length 1. Top 0: one number.
    A ground-truth box is matched with the default box (without use_prior_for_matching: the predicted box) that overlaps
    it most. With match_type PER_PREDICTION a box left over is matched with the ground-truth box it overlaps most, if by
    overlap_threshold at least. ignore_cross_boundary_bbox: boxes that leave the picture match nothing and are no
    negatives. Without share_location a box is matched in the class of its ground-truth box; use_prior_for_matching:
    false matches the predicted boxes of each class with the ground-truth boxes of that class.
    Locations: of every match, the distance from the ground-truth box as code_type codes it (see DetectionOutput;
    without encode_variance_in_target divided by the variances), SmoothL1 or half the squares (L2), summed. With
    encode_variance_in_target predictions and targets are divided by the variances afterwards. bp_inside: not of
    coordinates in which the default box (predicted box) is outside of the picture.
    Classes: SOFTMAX: minus the logarithm of the probability of the true class, or of the background. LOGISTIC: C
    cross-entropies, each against 1 in the box's class and 0 in the others. With mining_type NONE over all boxes;
    LOGISTIC then wants 0 in every class of boxes without a match. map_object_to_agnostic: one class follows the
    background; all ground-truth boxes are of it.
    MAX_NEGATIVE: over matches, and boxes without match that overlap ground-truth boxes by less than neg_overlap: in
    each image the neg_pos_ratio * matches with the largest losses of classes. HARD_EXAMPLE: in each image over the
    sample_size boxes with the largest losses of classes and locations; matches beyond these do not count. With
    nms_param boxes that overlap one of larger loss are left out before, predicted boxes or (use_prior_for_nms) default
    boxes. An image without ground-truth boxes does not count, unless mining_type is NONE. Boxes without area match
    nothing.
    Z, by loss_param.normalization: VALID (the default): matches; FULL: N * P; BATCH_SIZE: N; NONE: 1; never below 1.
    With `propagate_down: false` for bottom 0 or 1 its loss does not count.
    RefineDet: bottom 4: scores of background and object, (N, P * 2); a box whose latter score is below objectness_score
    is not chosen as an example. Bottom 5: predicted locations, (N, P * 4), of the boxes that serve as default boxes.
    Neither gets a gradient: write propagate_down: false for them. With objectness_score and num_classes: 2 all
    ground-truth boxes are of class 1.
    Backward reads no data: forward saves the gradients. Runs on the host.
    Raises: LayerParamError for num_classes and fields that contradict each other; ShapeError for bottoms that do not
    belong together; DataError for ground-truth boxes of a class out of range.
    Source: weiliu89/caffe (SSD) and sfzhang15/RefineDet, src/caffe/layers/multibox_loss_layer.cpp.
    """

    declares = Declaration(
        bottoms=between(4, 6),
        runs_on=Runs.HOST,
        is_loss=True,
        backward_reads=Reads.NONE,
        no_backward=frozenset(range(2, 6)),
        ignores_force_backward=frozenset(range(2, 6)),
    )

    def setup(self, bottom_shapes: Shapes) -> None:
        p = self.options = self.param.multibox_loss_param
        self.classes = check_classes(self, p.num_classes, "multibox_loss_param")
        self.mining = p.mining_type != _Param.NONE
        if p.HasField("do_neg_mining") and p.do_neg_mining != self.mining:
            named = _Param.MiningType.Name(p.mining_type)
            raise self.error(
                f"do_neg_mining is {str(p.do_neg_mining).lower()}, but mining_type is {named}",
                fix="delete do_neg_mining, which is deprecated, and choose with mining_type",
            )
        if self.mining and not p.share_location:
            raise self.error(
                "negatives are chosen (mining_type) only among boxes that all classes share",
                fix="set share_location: true, or mining_type: NONE",
            )
        if p.conf_loss_type == _Param.SOFTMAX and p.background_label_id >= self.classes:
            raise self.error(
                f"background_label_id is {p.background_label_id} of {self.classes} classes",
                fix="give a background class below num_classes, or conf_loss_type: LOGISTIC",
            )
        if p.map_object_to_agnostic and self.classes != p.background_label_id + 2:
            raise self.error(
                f"map_object_to_agnostic makes class {p.background_label_id + 1} of all objects, but num_classes is "
                f"{self.classes}",
                fix="set background_label_id: 0 num_classes: 2",
            )
        if p.mining_type == _Param.HARD_EXAMPLE and p.sample_size < 1:
            raise self.error(f"sample_size is {p.sample_size}", fix="give the number of examples of an image")
        self.locations = 1 if p.share_location else self.classes
        self.read_normalization(VALID)
        counted = [*self.param.propagate_down, True, True][:2] if self.param.propagate_down else [True, True]
        self.counts_locations, self.counts_classes = counted

    def infer_shapes(self, bottom_shapes: Shapes) -> Shapes:
        check_predictions(self, bottom_shapes, self.locations, self.classes)
        truth = tuple(bottom_shapes[3])
        if len(truth) != 4 or truth[:2] != (1, 1) or truth[3] != 8:
            raise self.shape_error(f"has shape {truth}", bottom=3, fix="give ground-truth boxes (1, 1, G, 8)")
        check_refinement(self, bottom_shapes, range(4, len(bottom_shapes)))
        return [()]

    def declare(self, bottom_shapes: Shapes, top_shapes: Shapes, ops: Ops) -> None:
        self.scratch("locations", bottom_shapes[0], lives=Lives.SAVED)
        self.scratch("classes", bottom_shapes[1], lives=Lives.SAVED)

    def forward(self, io: Pass) -> None:
        locations, scores = io.bottom[0], io.bottom[1]
        p, images = self.options, len(locations)
        truths = truth_of(io.bottom[3], images, p.use_difficult_gt)
        if self.classes == 2 and p.HasField("objectness_score"):
            truths = [replace(truth, labels=np.minimum(truth.labels, 1)) for truth in truths]
        self._check(truths)
        batch = _Batch(self, locations, scores, io.bottom[2], truths, io.bottom[4:])
        batch.match()
        batch.choose()
        matches = batch.matches
        z = float({FULL: images * batch.boxes, VALID: matches, BATCH_SIZE: images}.get(self.mode, 1))
        z = max(1.0, z)
        loss = 0.0
        for counted, name, part in (
            (self.counts_locations, "locations", batch.loss_of_locations),
            (self.counts_classes, "classes", batch.loss_of_classes),
        ):
            gradient = io.scratch.get(name)
            if counted:
                value, own = part()
                loss += value / z
            if gradient is not None:
                gradient[...] = np.divide(own, z).reshape(gradient.shape) if counted else 0
        io.top[0].fill(loss)

    def _check(self, truths: list[Truth]) -> None:
        p = self.options
        for image, truth in enumerate(truths):
            labels = truth.labels
            agnostic = p.map_object_to_agnostic
            wrong = (labels < 0) | (labels == p.background_label_id) | ((labels >= self.classes) & (not agnostic))
            if wrong.any():
                label = int(labels[wrong][0])
                what = "the background" if label == p.background_label_id else f"none of {self.classes}"
                raise self.error(
                    f"a ground-truth box of image {image} has class {label}, which is {what}",
                    kind=DataError,
                    blob=self.param.bottom[3],
                    fix="correct the data, num_classes or background_label_id",
                )

    def backward(self, io: Pass) -> None:
        for name, gradient in zip(("locations", "classes"), io.bottom_diff[:2], strict=True):
            if gradient is None:
                continue
            if io.top_diff[0] is None:
                gradient.fill(0)
            else:
                np.multiply(io.scratch[name], io.top_diff[0].reshape(-1)[0], out=gradient)


class _Batch:
    """The matches of one batch, and its losses before they are divided.

    Attributes:
        boxes: P.
        matched: (N, locations of a box, P), the number of the ground-truth box, or -1 or -2.
        counts: (N, P), whether the loss of classes has a box.
    """

    def __init__(
        self,
        layer: MultiBoxLossLayer,
        locations: HostArray,
        scores: HostArray,
        defaults: HostArray,
        truths: list[Truth],
        refinement: Sequence[HostArray],
    ):
        self._layer, self._p, self._truths = layer, layer.options, truths
        priors, variances = priors_of(defaults)
        ones = np.ones_like(variances)
        by_target = self._p.encode_variance_in_target
        self._scale, self._after = (ones, variances) if by_target else (variances, ones)
        self.boxes, n = len(priors), len(locations)
        self._objects = np.ones((n, self.boxes), bool)
        if refinement:
            self._objects = refinement[0].reshape(n, self.boxes, 2)[..., 1] >= self._p.objectness_score
        if len(refinement) == 2:
            priors = decode(self._p.code_type, priors, self._scale, refinement[1].reshape(n, self.boxes, 4))
        self._priors = np.broadcast_to(priors, (n, self.boxes, 4))
        self._locations = locations.reshape(n, self.boxes, layer.locations, 4).transpose(0, 2, 1, 3)
        self._scores = scores.reshape(n, self.boxes, layer.classes)
        self.matched = np.full((n, layer.locations, self.boxes), -1, np.int64)
        self._overlap = np.zeros((n, self.boxes), locations.dtype)
        self.counts = np.full((n, self.boxes), not layer.mining)

    @property
    def matches(self) -> int:
        """Return the number of matches."""
        return int((self.matched > -1).sum())

    def match(self) -> None:
        """Match the boxes of all images."""
        for_images(self._match_in, len(self._truths))

    def _match_in(self, n: int) -> None:
        p, truth = self._p, self._truths[n]
        if not len(truth):
            return
        if p.share_location or p.use_prior_for_matching:
            seen = self._priors[n] if p.use_prior_for_matching else self._decoded(n)[0]
            found, self._overlap[n] = match(seen, truth.boxes, p)
            for location in self._classes_of_locations():
                own = found if location is None else np.where(truth.labels[np.maximum(found, 0)] == location, found, -1)
                self.matched[n, location or 0] = own
            return
        boxes = self._decoded(n)
        for location in self._classes_of_locations():
            own = np.flatnonzero(truth.labels == location)
            found, _ = match(boxes[location], truth.boxes[own], p)
            self.matched[n, location] = np.where(found > -1, own[np.maximum(found, 0)] if len(own) else -1, found)

    def _classes_of_locations(self) -> list[int | None]:
        """Return the classes that have locations of their own; [None] where all share them."""
        if self._p.share_location:
            return [None]
        return [c for c in range(self._layer.classes) if c != self._p.background_label_id]

    def _decoded(self, image: int) -> HostArray:
        return decode(self._p.code_type, self._priors[image], self._scale, self._locations[image])

    def choose(self) -> None:
        """Choose the boxes that count, if the layer does."""
        p = self._p
        if not self._layer.mining:
            return
        labels, locations = self._labels(self._wanted()), np.zeros(self._overlap.shape, self._overlap.dtype)
        if p.mining_type == _Param.HARD_EXAMPLE:
            locations[np.nonzero(self.matched[:, 0] > -1)] = self._losses_of_locations()[0].sum(axis=1)
        for_images(lambda n: self._choose_in(n, labels[n], locations[n]), len(self._truths))

    def _choose_in(self, n: int, labels: HostArray, locations: HostArray) -> None:
        """Choose boxes (P,) of image n by their classes and the losses of their locations."""
        p = self._p
        if not len(self._truths[n]):
            return
        loss = self._losses_of_classes(self._scores[n], labels)[0] + locations
        by_priors = p.use_prior_for_nms or not p.HasField("nms_param")
        boxes = self._priors[n] if by_priors else self._decoded(n)[0]
        found = self.matched[n, 0]
        chosen = mine(p, found, self._overlap[n], loss, boxes, self._objects[n])
        if p.mining_type == _Param.HARD_EXAMPLE:
            found[(found > -1) & ~chosen] = -1
            chosen &= found > -2
        self.counts[n] = chosen | (found > -1)

    # -- locations ----------------------------------------------------------------------------------------------------
    def _losses_of_locations(self) -> tuple[HostArray, HostArray]:
        """Return losses and slopes (M, 4) of all matches, by image, class, box."""
        p = self._p
        image, location, box = np.nonzero(self.matched > -1)
        truth = np.concatenate([t.boxes for t in self._truths]) if self._truths else np.empty((0, 4))
        first = np.cumsum([0, *map(len, self._truths)])
        wanted = truth[first[image] + self.matched[image, location, box]]
        priors, scale, after = self._priors[image, box], self._scale[box], self._after[box]
        predicted = self._locations[image, location, box]
        distance = (predicted - encode(p.code_type, priors, scale, wanted)) / after
        slope = 1 / after
        if p.bp_inside:
            shown = priors
            if not p.use_prior_for_matching:
                shown = decode(p.code_type, priors, scale, predicted)
            inside = (shown >= 0) & (shown <= 1)
            distance, slope = distance * inside, slope * inside
        if p.loc_loss_type == _Param.L2:
            return distance * distance / 2, distance * slope
        far = np.abs(distance)
        return np.where(far < 1, distance * distance / 2, far - 0.5), np.clip(distance, -1, 1) * slope

    def loss_of_locations(self) -> tuple[float, HostArray]:
        """Return loc_weight * the sum of losses, and its gradient, in the order of bottom 0."""
        losses, slopes = self._losses_of_locations()
        weight, gradient = self._p.loc_weight, np.zeros(self._locations.shape, self._locations.dtype)
        gradient[np.nonzero(self.matched > -1)] = weight * slopes
        return weight * float(losses.sum(dtype=np.float64)), gradient.transpose(0, 2, 1, 3)

    # -- classes ------------------------------------------------------------------------------------------------------
    def _wanted(self) -> HostArray:
        """Return the class of every box by its matches, -1 for none: (N, locations, P)."""
        p, wanted = self._p, np.full(self.matched.shape, -1, np.int64)
        for n, truth in enumerate(self._truths):
            if len(truth):
                labels = np.full(len(truth), p.background_label_id + 1) if p.map_object_to_agnostic else truth.labels
                wanted[n] = np.where(self.matched[n] > -1, labels[np.maximum(self.matched[n], 0)], -1)
        return wanted

    def _labels(self, wanted: HostArray) -> HostArray:
        """Return one class for each box (N, P): of its last match, or the background."""
        last = wanted.max(axis=1)
        return np.where(last > -1, last, self._p.background_label_id)

    def _losses_of_classes(self, scores: HostArray, labels: HostArray) -> tuple[HostArray, HostArray]:
        """Return losses (...) and slopes (..., C) of scores (..., C) of boxes with one label (...) each."""
        c = scores.shape[-1]
        target = np.zeros_like(scores)
        target.reshape(-1, c)[_positions(labels, c)] = 1
        if self._p.conf_loss_type == _Param.LOGISTIC:
            return _cross_entropies(scores, target)
        y = np.exp(scores - scores.max(axis=-1, keepdims=True))
        y /= y.sum(axis=-1, keepdims=True)
        chance = np.take_along_axis(y, labels[..., None], axis=-1)[..., 0]
        return -np.log(np.maximum(chance, _FLT_MIN)), y - target

    def loss_of_classes(self) -> tuple[float, HostArray]:
        """Return the sum of losses over the boxes that count, and its gradient, of shape (N, P, C)."""
        where, wanted = np.nonzero(self.counts), self._wanted()
        gradient = np.zeros_like(self._scores)
        scores = self._scores[where]
        if self._p.conf_loss_type == _Param.LOGISTIC and not self._layer.mining:
            target = np.zeros_like(self._scores)
            n, _, box = np.nonzero(wanted > -1)
            target[n, box, wanted[wanted > -1]] = 1
            losses, slopes = _cross_entropies(scores, target[where])
        else:
            losses, slopes = self._losses_of_classes(scores, self._labels(wanted)[where])
        gradient[where] = slopes
        return float(losses.sum(dtype=np.float64)), gradient


def _positions(labels: HostArray, classes: int) -> tuple[HostArray, HostArray]:
    """Return the indices (row, class) of labels that are classes."""
    flat = labels.reshape(-1)
    rows = np.flatnonzero(flat < classes)
    return rows, flat[rows]


def _cross_entropies(x: HostArray, target: HostArray) -> tuple[HostArray, HostArray]:
    """Return sums over the last axis of the cross-entropies of sigmoid(x) and target, and their slopes."""
    small = np.exp(-np.abs(x))
    y = np.where(x >= 0, 1, small) / (1 + small)
    return (np.maximum(x, 0) - x * target + np.log1p(small)).sum(axis=-1), y - target
