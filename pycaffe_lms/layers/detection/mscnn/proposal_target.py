"""ProposalTarget: regions from which a detector learns, with the classes and locations that it shall find."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from ....arrays import HostArray
from ....errors import DataError
from ....proto.caffe_pb2 import LayerParameter
from ...base import BuildContext, Shapes, between, count, exactly
from ...mixins import RandomLayer
from ...registry import register_layer
from ..boxes import overlaps
from ..proposal import CountedRowsLayer
from .measures import host_generator, means_and_deviations

_SMALLEST = 32  # side of a drawn region
_TRIES = 10_000


@register_layer("ProposalTarget")
class ProposalTargetLayer(CountedRowsLayer, RandomLayer):
    """The regions of a batch from which a detector learns: some with objects, others without (MS-CNN, Cascade R-CNN).

    Bottom 0: regions (image, x1, y1, x2, y2), (R, 5). Bottom 1: objects (image, x1, y1, x2, y2, class, ignored),
    (G, 7), or, of Cascade R-CNN, (G, 8), whose last number is not read; image -1: none. Boxes are of pixels, both ends
    counted in. With append_gtbox objects are regions, too, after the others. A region whose
    overlap with its best object is fg_thr or more is of that object's class, unless it is to be ignored; one from
    bg_thr_lw to below bg_thr_hg is background. Of batch_size regions at most round(fg_fraction * batch_size) have
    objects; more are drawn. The others are background, drawn where there are too many; where there are too few, the
    first regions that are neither follow, with pickup_discard, then drawn boxes of at least 32 x 32 in img_width x
    img_height that overlap no object by fg_thr; where objects have 8 numbers such a box is drawn only where there is no
    row else, and not without img_width and img_height: then there is none. With batch_size -1 all regions that are one
    or the other remain. Then, and where objects have 8 numbers, the number of rows is known after forward only; where
    it changes, the net takes memory anew.
    Tops, of S rows: 0: the regions (S, 5, 1, 1). 1: classes (S, 1, 1, 1). 2: how the region is to be moved to its
    object, (S, 4 K, 1, 1), K = cls_num, in the four columns of its class, else 0: x, y in sizes of the region,
    logarithms of the ratios of width and height; 3 and 4: 1 there, weights for SmoothL1Loss, if the region overlaps its
    object from bbox_thr_lw to bbox_thr_hg, else 0. Without
    bbox_reg_param.cls_aware K is 2, and all objects have column 1. 5: (S, 6, 1, 1): class, x1, y1, x2, y2 of the object
    and its overlap, else 0. 6, if given: (S, 1, 1, 1), weights of the regions, of which objects have fg_fraction
    together, and background the rest; with iou_weighted an object weighs its overlap. bbox_reg_param: what is
    subtracted from moves (bbox_mean), and what they are divided by (bbox_std).
    Draws depend only on the layer's seed and the number of forwards before. Runs on the host. No bottom gets a
    gradient.
    Raises: LayerParamError for fields that are absent or impossible; ShapeError for other bottoms; DataError where no
    box can be drawn, or an object's class is 0.
    Source: zhaoweicai/mscnn and zhaoweicai/cascade-rcnn, src/caffe/layers/proposal_target_layer.cpp.
    """

    declares = replace(CountedRowsLayer.declares, bottoms=exactly(2), tops=between(6, 7))

    def __init__(self, param: LayerParameter, context: BuildContext):
        RandomLayer.__init__(self, param, context)

    def after(self, state: dict[str, int], forwards: int) -> dict[str, int]:
        return state | {"draws": state["draws"] + forwards}

    def setup(self, bottom_shapes: Shapes) -> None:
        p = self.options = self.param.proposal_target_param
        self.mean, self.std = means_and_deviations(self, self.param.bbox_reg_param)
        if not p.cls_num:
            raise self.error("cls_num is 0", fix="write proposal_target_param { cls_num: ... }")
        if p.batch_size < 1 and p.batch_size != -1:
            raise self.error(f"batch_size is {p.batch_size}", fix="give 1 or more, or -1 for all")
        if p.fg_thr < p.bg_thr_hg:
            raise self.error(f"fg_thr {p.fg_thr:g} is below bg_thr_hg {p.bg_thr_hg:g}", fix="raise fg_thr")
        self.can_draw = min(p.img_width, p.img_height) > _SMALLEST
        if p.batch_size > 0 and not self.can_draw:
            raise self.error("img_width or img_height is 32 or less", fix="give the size of the pictures")
        self.aware = self.param.bbox_reg_param.cls_aware
        self.columns = 4 * p.cls_num if self.aware else 8
        if self.aware and p.cls_num < 2:
            raise self.error("cls_num is 1", fix="count the background")

    def infer_shapes(self, bottom_shapes: Shapes) -> Shapes:
        for i, numbers in enumerate(((5,), (7, 8))):
            shape = tuple(bottom_shapes[i])
            if not shape or count(shape, 1) not in numbers:
                given = " or ".join(map(str, numbers))
                raise self.shape_error(f"has shape {shape}", bottom=i, fix=f"give {given} numbers for each row")
        rows, self.cascade = self.options.batch_size, count(bottom_shapes[1], 1) == 8
        if self.counted is not None and (rows < 0 or self.cascade):
            rows = self.counted
        elif rows < 0:
            rows = max(1, bottom_shapes[0][0])
        widths = (5, 1, self.columns, self.columns, self.columns, 6, 1)
        return [(rows, n, 1, 1) for n in widths[: len(self.param.top)]]

    def rows(self, bottoms: Sequence[HostArray]) -> list[HostArray]:
        rng, dtype = host_generator(self), self.dtype
        regions, objects = bottoms[0].reshape(-1, 5), bottoms[1].reshape(len(bottoms[1]), -1)[:, :7]
        objects = objects[objects[:, 0] != -1]
        if self.options.append_gtbox:
            regions = np.concatenate([regions, objects[:, :5]])
        best, overlap = self._matched(regions, objects)
        chosen, labels = self._choose(overlap, best, objects, rng)
        wanted = int(self.can_draw) if self.cascade else self.options.batch_size
        missing = max(0, wanted - len(chosen))
        drawn = self._drawn(missing, objects, rng)
        # a drawn box is background; it has no object, and no target
        kept = np.concatenate([regions[chosen], drawn])
        labels = np.concatenate([labels, np.zeros(missing, np.int64)])
        best, overlap = (np.concatenate([a[chosen], np.zeros(missing, a.dtype)]) for a in (best, overlap))
        positive = np.flatnonzero(labels)
        targets, matched = np.zeros((len(kept), self.columns), dtype), np.zeros((len(kept), 6), dtype)
        inside = np.zeros_like(targets)
        columns = 4 * np.minimum(labels[positive], self.columns // 4 - 1)[:, None] + np.arange(4)
        own = objects[best[positive]] if len(positive) else np.zeros((0, 7), dtype)
        targets[positive[:, None], columns] = self._moves(kept[positive, 1:], own[:, 1:5])
        learnt = (overlap[positive] >= self.options.bbox_thr_lw) & (overlap[positive] <= self.options.bbox_thr_hg)
        inside[positive[:, None], columns] = learnt[:, None]
        matched[positive] = np.concatenate([labels[positive, None], own[:, 1:5], overlap[positive, None]], axis=1)
        weights = self._weights(labels, matched[:, 5])
        return [kept.astype(dtype), labels.astype(dtype), targets, inside, inside, matched, weights]

    @staticmethod
    def _matched(regions: HostArray, objects: HostArray) -> tuple[HostArray, HostArray]:
        """Return each region's best object in its picture, and how much it overlaps it: 0 where there is none."""
        if not len(objects):
            return np.zeros(len(regions), np.int64), np.zeros(len(regions), regions.dtype)
        found = overlaps(regions[:, 1:], objects[:, 1:5], pixels=True)
        found = np.where(regions[:, :1] == objects[:, 0], found, -1)
        return found.argmax(axis=1), np.maximum(found.max(axis=1), 0)

    def _choose(
        self, overlap: HostArray, best: HostArray, objects: HostArray, rng: np.random.Generator
    ) -> tuple[HostArray, HostArray]:
        """Return the chosen regions and their classes."""
        p = self.options
        positive = overlap >= p.fg_thr
        taken = objects[best] if len(objects) else np.zeros((len(best), 7))
        if (taken[positive, 5] <= 0).any():
            raise self.error(
                f"an object's class is {taken[positive, 5].min():g}",
                kind=DataError,
                blob=self.param.bottom[1],
                fix="number classes from 1",
            )
        background = ~positive & (overlap >= p.bg_thr_lw) & (overlap < p.bg_thr_hg)
        others = np.flatnonzero(~positive & ~background)
        good, bad = np.flatnonzero(positive & (taken[:, 6] == 0)), np.flatnonzero(background)
        if p.batch_size > 0:
            most = int(np.floor(p.fg_fraction * p.batch_size + 0.5))
            if len(good) > most:
                good = rng.permutation(good)[:most]
            room = p.batch_size - len(good)
            if len(bad) > room:
                bad = rng.permutation(bad)[:room]
            elif p.pickup_discard:
                bad = np.concatenate([bad, others[: room - len(bad)]])
        labels = np.concatenate([taken[good, 5].astype(np.int64), np.zeros(len(bad), np.int64)])
        if len(labels) and self.aware and labels.max() >= p.cls_num:
            raise self.error(
                f"an object's class is {labels.max()}, of cls_num {p.cls_num}",
                kind=DataError,
                blob=self.param.bottom[1],
                fix="raise cls_num",
            )
        return np.concatenate([good, bad]), labels

    def _drawn(self, number: int, objects: HostArray, rng: np.random.Generator) -> HostArray:
        """Return so many drawn boxes, (number, 5), that overlap no object of their picture by fg_thr."""
        p, found = self.options, np.zeros((number, 5), objects.dtype)
        n = tries = 0
        while n < number:
            image = int(rng.integers(max(1, p.num_img_per_batch)))
            x, y = int(rng.integers(p.img_width - _SMALLEST)), int(rng.integers(p.img_height - _SMALLEST))
            sides = (int(rng.integers(p.img_width - x)), int(rng.integers(p.img_height - y)))
            wide, high = (max(side, _SMALLEST) for side in sides)
            box = np.array([[image, x, y, x + wide - 1, y + high - 1]], found.dtype)
            tries += 1
            if self._matched(box, objects)[1][0] < p.fg_thr:
                found[n], n, tries = box, n + 1, 0
            elif tries > _TRIES:
                raise self.error(
                    f"none of {_TRIES} drawn boxes is background",
                    kind=DataError,
                    blob=self.param.bottom[1],
                    fix="raise fg_thr, or lower batch_size",
                )
        return found

    def _moves(self, regions: HostArray, objects: HostArray) -> HostArray:
        """Return what moves each region (S, 4) to its object."""
        sizes = [boxes[:, 2:] - boxes[:, :2] + 1 for boxes in (regions, objects)]
        centres = [boxes[:, :2] + size / 2 for boxes, size in zip((regions, objects), sizes, strict=True)]
        moves = np.concatenate([(centres[1] - centres[0]) / sizes[0], np.log(sizes[1] / sizes[0])], axis=1)
        return np.asarray((moves - self.mean) / self.std)

    def _weights(self, labels: HostArray, overlap: HostArray) -> HostArray:
        p, positive = self.options, labels > 0
        weights = np.where(positive & p.iou_weighted, overlap, overlap.dtype.type(1))
        total, rest = weights[positive].sum(), weights[~positive].sum()
        if total:
            weights[positive] *= p.fg_fraction * len(labels) / total
            weights[~positive] *= (1 - p.fg_fraction) * len(labels) / rest if rest else 1
        return weights
