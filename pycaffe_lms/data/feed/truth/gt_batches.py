"""Make batches of pictures with labels for detectors of boxes of several sizes, for the ImageGtData layer.

Covers: how a picture is scaled and cropped around one of its objects, and its labels.
See also: reader.py; image_list.py, the order of pictures.
Source: zhaoweicai/mscnn, src/caffe/layers/image_gt_data_layer.cpp (behaviour).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...transform.transformer import batch_rng, item_rng
from ...transform.workers import each
from ..image_list import ListOrder
from .cuts import flipped, placed, stretched, to_whole, zoomed
from .labels import BoxField, LabelRule, positions, write_labels
from .lists import IGNORE, LABEL, GtList
from .reader import TruthReader

NO_OBJECT = (0, 1, 1, 2, 2, 1, 1)  # the row of a batch without any; it is to be ignored
_PURPOSE = 13


@dataclass(frozen=True)
class Cut:
    """Say how pictures become (height, width) of `size`.

    resize: (height, width) first, or None. scales: (least, largest) size of objects, between which they are scaled, or
    None. aspects: (least, largest) ratio of their sides, or None. mirror: flip at random.
    least: objects that are less wide, or high, are ignored.
    """

    size: tuple[int, int]
    resize: tuple[int, int] | None
    scales: tuple[int, int] | None
    aspects: tuple[float, float] | None
    mirror: bool
    least: tuple[float, float]


class GtBatches(TruthReader):
    """Make batch b of a GtList, for any b: (data (B, 3, H, W), labels of each detector (B, 6, h, w), objects (G, 7)).

    A label is (class, x, y, width, height, overlap) of the position's object; class 0 where there is none. Where the
    overlap does not allow the box to be background, its class is 0, too. Objects are rows of (picture, x1, y1, x2, y2,
    class, ignored), NO_OBJECT where there are none.

    Args:
        threshold: a box belongs to the object that it overlaps most if by more than this.
        shuffle: each epoch has an order of its own.
    """

    def __init__(
        self,
        pictures: GtList,
        batch_size: int,
        cut: Cut,
        detectors: Sequence[BoxField],
        *,
        threshold: float,
        mean: Sequence[float],
        scale: float,
        shuffle: bool,
        dtype: np.dtype[Any],
        rank: int,
        seed: int,
    ):
        super().__init__(pictures, batch_size, mean, scale, dtype=dtype, rank=rank, seed=seed)
        self._cut, self._detectors, self._rule = cut, tuple(detectors), LabelRule(threshold)
        self._index = ListOrder(len(pictures), shuffle=shuffle, rand_skip=0, seed=seed, stream=rank).index

    @property
    def label_shapes(self) -> list[tuple[int, ...]]:
        """Return (B, 6, h, w) for each detector."""
        return [(self._batch_size, 6, *positions(self._cut.size, d)) for d in self._detectors]

    def produce(self, batch: int) -> tuple[np.ndarray, list[np.ndarray], np.ndarray]:
        rng = batch_rng(self._seed, batch, self._stream)
        data = np.zeros((self._batch_size, 3, *self._cut.size), self._dtype)
        labels = [np.zeros(shape, self._dtype) for shape in self.label_shapes]
        found: dict[int, np.ndarray] = {}

        def work(i: int) -> None:
            index = self._index(self.first + batch * self._batch_size + i)
            image, (top, left), objects, regions = self._cut_out(index, item_rng(rng, i, _PURPOSE))
            height, width = image.shape[1:]
            data[i, :, top : top + height, left : left + width] = self._values(image)
            self._ignore(objects, self._cut.size, self._cut.least)
            window = (top, left, height, width)
            truth = objects[:, LABEL], objects[:, IGNORE] != 0, objects[:, 2:]
            write_labels(self._detectors, self._rule, truth, regions, window, [label[i] for label in labels])
            found[i] = objects

        each(work, self._batch_size)
        rows = self._rows([found[i] for i in range(self._batch_size)])
        return data, labels, rows if len(rows) else np.array([NO_OBJECT], self._dtype)

    def _cut_out(
        self, index: int, rng: np.random.Generator
    ) -> tuple[np.ndarray, tuple[int, int], np.ndarray, np.ndarray]:
        """Return a part of a picture (3, h, w), where its corner is in the result, and the boxes there."""
        cut, image = self._cut, self._read(index)
        boxes = [self._pictures.objects[index][:, 2:].copy(), self._pictures.regions[index].copy()]
        marks = self._pictures.objects[index][:, :2].copy()
        if cut.mirror and rng.integers(2):
            image, boxes = flipped(image, boxes)
        if cut.resize is not None:
            image, boxes = stretched(image, cut.resize, boxes)
        centre, factor = self._centre(image.shape[:2], boxes[0], rng)
        image, centre, boxes = zoomed(image, factor, centre, boxes)
        part, corner, boxes = placed(image, centre, cut.size, rng.integers(20, size=2) - 10, boxes)
        return part, corner, np.concatenate([marks, boxes[0]], axis=1), boxes[1]

    def _centre(
        self, size: tuple[int, ...], boxes: np.ndarray, rng: np.random.Generator
    ) -> tuple[np.ndarray, np.ndarray]:
        """Return around what a picture of (height, width) is cut, (x, y), and by what it is scaled before."""
        cut, one = self._cut, np.ones(2)
        if not len(boxes):
            room = np.array([have - want for have, want in zip(size[::-1], cut.size[::-1], strict=True)])
            drawn = [
                int(rng.integers(r + 1)) + want / 2 for r, want in zip(np.maximum(room, 0), cut.size[::-1], strict=True)
            ]
            return np.where(room >= 0, drawn, np.array(size[::-1]) / 2), one
        box = boxes[int(rng.integers(len(boxes)))]
        centre = (box[:2] + box[2:]) / 2
        if cut.scales is None or not rng.integers(2):
            return centre, one
        sides, (least, largest) = box[2:] - box[:2], cut.scales
        octaves = np.arange(int(to_whole(2 * np.log2(largest / least) + 1))) / 2
        areas = float(least) ** 2 * 4.0**octaves
        own = float(sides.prod())
        alike = np.minimum(own, areas) / np.maximum(own, areas)
        match = octaves[int(alike.argmax())] if alike.max() > 0 else 0.0
        factor = one * 2.0 ** (octaves[int(rng.integers(len(octaves)))] - match)
        if cut.aspects is not None and rng.integers(2):
            steps = int(to_whole((cut.aspects[1] - cut.aspects[0]) / 0.05))
            wanted = int(rng.integers(max(1, steps))) * 0.05 + cut.aspects[0]
            change, axis = wanted / (sides[0] / sides[1]), int(not rng.integers(2))
            change = change if axis == 0 else 1 / change
            if least * 0.8 <= sides[axis] * factor[axis] * change <= largest * 1.2:
                factor[axis] *= change
        return centre, factor
