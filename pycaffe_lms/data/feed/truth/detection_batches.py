"""Make batches of pictures with their objects for the DetectionData and EvalData layers.

Covers: their sizes, which follow the pictures, and the order of pictures by their shape.
See also: reader.py, labels.py, cuts.py.
Source: zhaoweicai/cascade-rcnn, detection_data_layer.cpp, eval_data_layer.cpp (behaviour).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ....proto.caffe_pb2 import DetectionDataParameter, EvalDataParameter, TransformationParameter
from ...transform.augment import distort
from ...transform.transformer import batch_rng, item_rng
from ...transform.workers import each
from ..image_list import ListOrder
from .cuts import flipped, placed, stretched, to_whole, zoomed
from .labels import BoxField, LabelRule, positions, write_labels
from .lists import IGNORE, LABEL, GtList
from .reader import TruthReader

MARKS = 3  # class, ignored, difficult
_PURPOSE, _ORDER = 14, 1 << 34
_GRID = 32  # sizes are multiples of it

Batch = tuple[np.ndarray, list[np.ndarray], np.ndarray]


class DetectionBatches(TruthReader):
    """Make batch b of a GtList with MARKS, for any b: (data (B, 3, H, W), labels of each detector (B, 6, h, w), objects
    (G, 8)). Sizes follow the first picture of the batch, unless p gives them.

    Args:
        p: says all else. Its `shuffle` counts where it is given.
    Raises: DataError for a picture that cannot be read.
    """

    def __init__(
        self,
        pictures: GtList,
        p: DetectionDataParameter,
        transform: TransformationParameter,
        *,
        dtype: np.dtype[Any],
        rank: int,
        seed: int,
    ):
        super().__init__(
            pictures, p.batch_size, transform.mean_value, transform.scale, dtype=dtype, rank=rank, seed=seed
        )
        self._p, self._mirror = p, transform.mirror
        self._fields = [BoxField(*field) for field in zip(p.field_w, p.field_h, p.stride, strict=True)]
        self._rule = LabelRule(
            p.fg_threshold,
            outside=p.ignore_fg_threshold,
            least=p.pickup_iou_thr,
            pixels=True,
            margin=p.anchor_ignore_margin_ratio if p.HasField("anchor_ignore_margin_ratio") else None,
            within=p.anchor_ignore_iou_thr if p.HasField("anchor_ignore_iou_thr") else None,
        )
        shuffle = p.HasField("shuffle") and p.shuffle == "random"
        self._index = ListOrder(len(pictures), shuffle=shuffle, rand_skip=0, seed=seed, stream=rank).index
        if p.HasField("shuffle") and not shuffle:
            group = p.mix_group_size if p.shuffle == "random_mix_aspect" else 0
            self._index = _ByAspect(pictures.sizes, group, seed, rank).index

    def produce(self, batch: int) -> Batch:
        p, rng = self._p, batch_rng(self._seed, batch, self._stream)
        ratio = p.template_ratio[int(rng.integers(len(p.template_ratio)))] if p.template_ratio else 1.0
        start = self.first + batch * self._batch_size
        indices = [self._index(start + i) for i in range(self._batch_size)]
        image = self._read(indices[0])
        size = self._template(self._resized(image.shape[:2], ratio), ratio)
        data = np.zeros((self._batch_size, 3, *size), self._dtype)
        labels = [np.zeros((self._batch_size, 6, *positions(size, field)), self._dtype) for field in self._fields]
        found: dict[int, np.ndarray] = {}

        def work(i: int) -> None:
            own = image if i == 0 else self._read(indices[i])
            part, (top, left), objects, regions = self._cut(indices[i], own, size, ratio, item_rng(rng, i, _PURPOSE))
            height, width = part.shape[1:]
            data[i, :, top : top + height, left : left + width] = self._values(part)
            self._ignore(objects, size, (p.min_gt_width, p.min_gt_height))
            truth = objects[:, LABEL], objects[:, IGNORE] != 0, objects[:, MARKS:]
            window = (top, left, height, width)
            write_labels(self._fields, self._rule, truth, regions, window, [label[i] for label in labels])
            found[i] = objects

        each(work, self._batch_size)
        return data, labels, self._rows([found[i] for i in range(self._batch_size)])

    def _resized(self, size: tuple[int, ...], ratio: float) -> tuple[int, int]:
        """Return the (height, width) that a picture of this one gets at first."""
        p = self._p
        if p.resize_width:
            return p.resize_height, p.resize_width
        factor = 1.0
        if p.HasField("resize_ratio"):
            factor = p.resize_ratio
        elif p.short_size:
            factor = _on_grid(p.short_size * ratio) / min(size)
        height, width = to_whole(np.array(size) * factor).tolist()
        return height, width

    def _template(self, size: tuple[int, int], ratio: float) -> tuple[int, int]:
        """Return the (height, width) of a batch whose first picture has this one."""
        p, high = self._p, size[0] >= size[1]
        if p.crop_width:
            return p.crop_height, p.crop_width
        if p.crop_short_size:
            short, long = p.crop_short_size, p.crop_long_size
        elif p.short_size:
            short, long = _on_grid(p.short_size * ratio), _on_grid(p.long_size * ratio)
        else:
            return size
        return (long, short) if high else (short, long)

    def _cut(
        self, index: int, image: np.ndarray, size: tuple[int, int], ratio: float, rng: np.random.Generator
    ) -> tuple[np.ndarray, tuple[int, int], np.ndarray, np.ndarray]:
        """Return a part of a picture (3, h, w), where its corner is in the result, and the boxes there."""
        objects = self._pictures.objects[index]
        boxes = [objects[:, MARKS:].copy(), self._pictures.regions[index].copy()]
        if self._p.HasField("distort_param"):
            image = distort(image, self._p.distort_param, rng)
        if self._mirror and rng.integers(2):
            image, boxes = flipped(image, boxes)
        image, boxes = stretched(image, self._resized(image.shape[:2], ratio), boxes)
        if len(boxes[0]):
            own = boxes[0][int(rng.integers(len(boxes[0])))]
            centre = (own[:2] + own[2:]) / 2
        else:
            own, centre = None, self._somewhere(image.shape[1::-1], size[::-1], rng)
        image, centre, boxes = zoomed(image, self._factor(own, rng), centre, boxes)
        part, corner, boxes = placed(image, centre, size, rng.integers(20, size=2) - 10, boxes)
        return part, corner, np.concatenate([objects[:, :MARKS], boxes[0]], axis=1), boxes[1]

    @staticmethod
    def _somewhere(have: Sequence[int], want: Sequence[int], rng: np.random.Generator) -> np.ndarray:
        """Return around what a picture without objects is cut, (x, y)."""
        rooms = zip(have, want, strict=True)
        return np.array([h / 2 if w > h else int(rng.integers(h - w + 1)) + w / 2 for h, w in rooms])

    def _factor(self, own: np.ndarray | None, rng: np.random.Generator) -> np.ndarray:
        """Return by what x and y of a picture are multiplied, so that the object `own` gets its size."""
        p = self._p
        ratios = p.HasField("low_scale_ratio") and p.HasField("high_scale_ratio")
        if not (rng.uniform() < p.multiscale_prob and (ratios or p.min_scale)):
            return np.ones(2)
        if ratios:
            octaves = np.log2([p.low_scale_ratio, p.high_scale_ratio])
        elif own is not None:
            octaves = np.log2(np.array([p.min_scale, p.max_scale]) / np.sqrt((own[2:] - own[:2] + 1).prod()))
        else:
            octaves = np.ones(2)  # of a picture without objects, as in the fork
        factor = np.full(2, 2.0 ** rng.uniform(*octaves))
        if p.HasField("min_whaspect") and p.HasField("max_whaspect"):
            change = 2.0 ** (rng.uniform(*np.log2([p.min_whaspect, p.max_whaspect])) / 2)
            factor *= [change, 1 / change]
        return factor


class EvalBatches(TruthReader):
    """Make batch b of a GtList with MARKS, in its order: (data (B, 3, H, W), [sizes (B, 2)], objects (G, 8)).

    sizes: height and width of each picture as the net sees it.
    """

    def __init__(self, pictures: GtList, p: EvalDataParameter, transform: TransformationParameter, **reader: Any):
        super().__init__(pictures, p.batch_size, transform.mean_value, transform.scale, **reader)
        self._p = p

    def produce(self, batch: int) -> Batch:
        start, found = self.first + batch * self._batch_size, []
        indices = [(start + i) % len(self._pictures) for i in range(self._batch_size)]
        parts = []
        for index in indices:
            image, objects = self._read(index), self._pictures.objects[index].copy()
            image, boxes = stretched(image, self._size(image.shape[:2]), [objects[:, MARKS:]])
            objects[:, MARKS:] = boxes[0]
            found.append(objects)
            parts.append(self._values(image.transpose(2, 0, 1)))
        data = np.stack(parts).astype(self._dtype)
        return data, [np.array([part.shape[1:] for part in parts], self._dtype)], self._rows(found)

    def _size(self, size: tuple[int, ...]) -> tuple[int, int]:
        """Return (height, width) of a picture of this one as the net sees it."""
        p = self._p
        if p.resize_width:
            wanted = np.array([p.resize_height, p.resize_width])
        elif p.short_size:
            wanted = np.minimum(to_whole(np.array(size) * (p.short_size / min(size))), p.long_size)
        else:
            wanted = np.array(size)
        height, width = (to_whole(wanted / _GRID) * _GRID).tolist()
        return height, width


class _ByAspect:
    """Say which picture is number k: in an epoch first all that are at least as high as wide, then the others, or the
    other way round, each in an order of its own; with `group` so many of each in turn, as long as there are both."""

    def __init__(self, sizes: Sequence[tuple[int, int]], group: int, seed: int, stream: int):
        high = np.array([height >= width for height, width in sizes])
        self._kinds, self._group = (np.flatnonzero(high), np.flatnonzero(~high)), group
        self._seed, self._stream = seed, _ORDER + stream
        self._order: tuple[int, np.ndarray] | None = None  # (epoch, indices) used last

    def index(self, position: int) -> int:
        """Return the index in the list of picture number `position` since the start."""
        n = sum(map(len, self._kinds))
        epoch, place = divmod(position, n)
        if self._order is None or self._order[0] != epoch:
            rng = batch_rng(self._seed, epoch, self._stream)
            kinds = [rng.permutation(kind) for kind in self._kinds]
            if rng.integers(2):
                kinds.reverse()
            self._order = (epoch, np.concatenate(self._mixed(kinds) if self._group else kinds))
        return int(self._order[1][place])

    def _mixed(self, kinds: list[np.ndarray]) -> list[np.ndarray]:
        parts, taken, turn = [], [0, 0], 0
        while all(taken[k] < len(kinds[k]) for k in (0, 1)):
            parts.append(kinds[turn][taken[turn] : taken[turn] + self._group])
            taken[turn] += self._group
            turn = 1 - turn
        return [*parts, *(kind[start:] for kind, start in zip(kinds, taken, strict=True))]


def _on_grid(size: float) -> int:
    return int(to_whole(size / _GRID)) * _GRID
