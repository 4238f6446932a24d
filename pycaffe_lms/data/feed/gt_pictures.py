"""Make batches of pictures with labels for detectors of boxes of several sizes, for the ImageGtData layer.

Covers: the list's format, how a picture is scaled and cropped around one of its objects, which position of which
detector an object belongs to.
See also: image_list.py, the order of pictures.
Source: zhaoweicai/mscnn, src/caffe/layers/image_gt_data_layer.cpp (behaviour).
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, TextIO

import numpy as np

from ...errors import DataError, Where
from ...formats.rawfile import open_text
from ..transform.picture import decode_picture, read_picture, require_opencv, to_pixels
from ..transform.transformer import batch_rng, item_rng
from ..transform.workers import each
from .image_list import ListOrder

LABEL, IGNORE = 0, 1
NO_OBJECT = (0, 1, 1, 2, 2, 1, 1)  # the row of a batch without any; it is to be ignored
_OUTSIDE = 0.4  # positions whose boxes lie so much in regions of no interest do not count
_LEAST_OVERLAP = 0.2  # with which an object that no box overlaps enough gets the best one
_PURPOSE = 13


@dataclass(frozen=True)
class BoxField:
    """Describe boxes of width x height at positions `stride` pixels apart."""

    width: float
    height: float
    stride: float


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


class GtList:
    """Read a list of pictures, blocks with white space between all values:

        # number  path  channels height width  objects, and for each: class ignored x1 y1 x2 y2
        regions of no interest, and for each: x1 y1 x2 y2

    Args:
        multiple: how often a picture with an object that is not ignored is there.
    Attributes:
        paths, objects (n, 6), regions (n, 4): of each picture. last_size: (height, width) of the last one.
    Raises: DataError, naming file and line, where it cannot be read, lists nothing or breaks this format.
    """

    def __init__(self, source: str | os.PathLike[str], root_folder: str, multiple: int):
        self.source = os.fspath(source)
        self.paths: list[str] = []
        self.objects: list[np.ndarray] = []
        self.regions: list[np.ndarray] = []
        self._line = 0
        fix = "check image_gt_data_param.source; a relative path starts at the working directory"
        with open_text(self.source, "the list of pictures", fix) as file:
            words = self._words(file)
            for mark in words:
                if mark != "#":
                    raise self._wrong(f"{mark!r} where a block begins with #")
                self._numbers(words, 1)
                path = root_folder + next(words, "")
                channels, *self.last_size = self._numbers(words, 3)
                objects = self._rows(words, 6)
                if channels != 3 or (objects[:, LABEL] <= 0).any():
                    raise self._wrong("a picture of other than 3 channels, or an object of class 0")
                regions = self._rows(words, 4)
                for _ in range(max(1, multiple) if (objects[:, IGNORE] == 0).any() else 1):
                    self.paths.append(path)
                    self.objects.append(objects)
                    self.regions.append(regions)
        if not self.paths:
            raise DataError(
                "the list of pictures is empty", where=Where(file=self.source), fix="list blocks that begin with #"
            )

    def __len__(self) -> int:
        return len(self.paths)

    def place(self, index: int) -> Where:
        """Return list and path of picture number `index`, for errors."""
        return Where(file=f"{self.source}: {self.paths[index]}")

    def _words(self, file: TextIO) -> Iterator[str]:
        for self._line, line in enumerate(file, 1):
            yield from line.split()

    def _numbers(self, words: Iterator[str], n: int) -> list[int]:
        try:
            return [int(next(words)) for _ in range(n)]
        except (StopIteration, ValueError):
            raise self._wrong("a whole number is missing") from None

    def _rows(self, words: Iterator[str], columns: int) -> np.ndarray:
        (n,) = self._numbers(words, 1)
        return np.array(self._numbers(words, n * columns), np.float64).reshape(n, columns)

    def _wrong(self, what: str) -> DataError:
        return DataError(
            what,
            where=Where(file=self.source, line=self._line),
            fix="write # number path channels height width, the objects and the regions of no interest",
        )


class GtBatches:
    """Make batch b of a GtList, for any b: (data (B, 3, H, W), labels of each detector (B, 6, h, w), objects (G, 7)).

    A label is (class, x, y, width, height, overlap) of the position's object; class 0 where there is none. Where the
    overlap does not allow the box to be background, its class is 0, too. Objects are rows of (picture, x1, y1, x2, y2,
    class, ignored), NO_OBJECT where there are none.

    Args:
        threshold: a box belongs to the object that it overlaps most if by more than this.
        mean: values that are subtracted: none, one, or one for each colour; then values are multiplied by `scale`.
        order: which picture is number k.
    Raises: DataError for a picture that cannot be read.
    """

    first = 0

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
        require_opencv()
        self._pictures, self._batch_size, self._cut = pictures, batch_size, cut
        self._detectors, self._threshold, self._scale = tuple(detectors), threshold, scale
        self._mean = np.array(list(mean) or [0], np.float64).reshape(-1, 1, 1)
        self._dtype, self._seed, self._stream, self.stride = dtype, seed, rank, batch_size
        self._index = ListOrder(len(pictures), shuffle=shuffle, rand_skip=0, seed=seed, stream=rank).index

    @property
    def records(self) -> int:
        """Return how many pictures there are."""
        return len(self._pictures)

    @property
    def label_shapes(self) -> list[tuple[int, ...]]:
        """Return (B, 6, h, w) for each detector."""
        return [(self._batch_size, 6, *_positions(self._cut.size, d)) for d in self._detectors]

    def produce(self, batch: int) -> tuple[np.ndarray, list[np.ndarray], np.ndarray]:
        rng = batch_rng(self._seed, batch, self._stream)
        data = np.zeros((self._batch_size, 3, *self._cut.size), self._dtype)
        labels = [np.zeros(shape, self._dtype) for shape in self.label_shapes]
        rows: dict[int, np.ndarray] = {}

        def work(i: int) -> None:
            index = self._index(self.first + batch * self._batch_size + i)
            image, (top, left), objects, regions = self._cut_out(index, item_rng(rng, i, _PURPOSE))
            height, width = image.shape[1:]
            data[i, :, top : top + height, left : left + width] = (image - self._mean) * self._scale
            self._ignore(objects)
            window = (top, left, height, width)
            self._label(objects, regions, window, [label[i] for label in labels])
            rows[i] = np.column_stack([np.full(len(objects), i), objects[:, 2:], objects[:, :2]])

        each(work, self._batch_size)
        found = np.concatenate([rows[i] for i in range(self._batch_size)])
        return data, labels, found.astype(self._dtype) if len(found) else np.array([NO_OBJECT], self._dtype)

    def close(self) -> None:
        """Do nothing: no file is open between pictures."""

    def _cut_out(
        self, index: int, rng: np.random.Generator
    ) -> tuple[np.ndarray, tuple[int, int], np.ndarray, np.ndarray]:
        """Return a part of a picture (3, h, w), where its corner is in the result, and the boxes there."""
        import cv2

        cut, where = self._cut, self._pictures.place(index)
        data = read_picture(self._pictures.paths[index], where=where, fix="correct the path, or root_folder")
        image = to_pixels(decode_picture(data, where=where, force_color=True))
        boxes = [self._pictures.objects[index][:, 2:].copy(), self._pictures.regions[index].copy()]
        marks = self._pictures.objects[index][:, :2].copy()
        if cut.mirror and rng.integers(2):
            image = image[:, ::-1]
            boxes = [
                np.column_stack([image.shape[1] - b[:, 2], b[:, 1], image.shape[1] - b[:, 0], b[:, 3]]) for b in boxes
            ]
        if cut.resize is not None and cut.resize != image.shape[:2]:
            factor = np.array(cut.resize[::-1]) / image.shape[1::-1]
            image = cv2.resize(np.ascontiguousarray(image), cut.resize[::-1], interpolation=cv2.INTER_LINEAR)
            boxes = [b * np.tile(factor, 2) for b in boxes]
        centre, factor = self._centre(image.shape[:2], boxes[0], rng)
        if (factor != 1).any():
            if (factor > 1.5).any():  # before it gets too large
                size = np.minimum(_round(1.2 * np.array(image.shape[1::-1]) / factor), image.shape[1::-1])
                low = np.maximum(_round(centre - size / 2), 0)
                low -= np.maximum(low + size - image.shape[1::-1], 0)
                image = image[low[1] : low[1] + size[1], low[0] : low[0] + size[0]]
                centre, boxes = centre - low, [b - np.tile(low, 2) for b in boxes]
            wide, high = _round(np.array(image.shape[1::-1]) * factor).tolist()
            image = cv2.resize(np.ascontiguousarray(image), (wide, high), interpolation=cv2.INTER_LINEAR)
            boxes = [b * np.tile(factor, 2) for b in boxes]
        noise, there, here, size = rng.integers(20, size=2) - 10, [0, 0], [0, 0], [0, 0]
        for axis, (have, want) in enumerate(zip(image.shape[1::-1], cut.size[::-1], strict=True)):
            if have < want:
                there[axis] = int(np.clip(_round((want - have) / 2) + noise[axis], 0, want - have))
            elif have > want:
                middle = _round(centre[axis] * factor[axis]) + noise[axis]
                here[axis] = int(np.clip(middle - _round(want / 2), 0, have - want))
            size[axis] = min(have, want)
        part = image[here[1] : here[1] + size[1], here[0] : here[0] + size[0]]
        boxes = [b + np.tile(np.subtract(there, here), 2) for b in boxes]
        objects = np.concatenate([marks, boxes[0]], axis=1)
        return part.transpose(2, 0, 1), (there[1], there[0]), objects, boxes[1]

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
        octaves = np.arange(int(_round(2 * np.log2(largest / least) + 1))) / 2
        areas = float(least) ** 2 * 4.0**octaves
        own = float(sides.prod())
        alike = np.minimum(own, areas) / np.maximum(own, areas)
        match = octaves[int(alike.argmax())] if alike.max() > 0 else 0.0
        factor = one * 2.0 ** (octaves[int(rng.integers(len(octaves)))] - match)
        if cut.aspects is not None and rng.integers(2):
            steps = int(_round((cut.aspects[1] - cut.aspects[0]) / 0.05))
            wanted = int(rng.integers(max(1, steps))) * 0.05 + cut.aspects[0]
            change, axis = wanted / (sides[0] / sides[1]), int(not rng.integers(2))
            change = change if axis == 0 else 1 / change
            if least * 0.8 <= sides[axis] * factor[axis] * change <= largest * 1.2:
                factor[axis] *= change
        return centre, factor

    def _ignore(self, objects: np.ndarray) -> None:
        """Mark objects whose centres lie outside, or which are too small."""
        centres, sides = (objects[:, 2:4] + objects[:, 4:]) / 2, objects[:, 4:] - objects[:, 2:4] + 1
        outside = (centres < 0) | (centres >= self._cut.size[::-1])
        objects[(outside | (sides < self._cut.least)).any(axis=1), IGNORE] = 1

    def _label(
        self, objects: np.ndarray, regions: np.ndarray, window: tuple[int, ...], labels: list[np.ndarray]
    ) -> None:
        """Write the labels (6, h, w) of a picture, of which there are pixels in `window`: top, left, height, width."""
        truth = np.concatenate([(objects[:, 2:4] + objects[:, 4:]) / 2, objects[:, 4:] - objects[:, 2:4]], axis=1)
        matched, best = np.zeros(len(objects), bool), [(0.0, 0)] * len(objects)
        for number, (detector, label) in enumerate(zip(self._detectors, labels, strict=True)):
            rows, columns = (np.arange(n) for n in label.shape[1:])
            first_row, first_column, many_rows, many_columns = (int(_round(v / detector.stride)) for v in window)
            inside = ((rows >= first_row) & (rows < first_row + many_rows))[:, None]
            inside = inside & (columns >= first_column) & (columns < first_column + many_columns)
            x, y = np.meshgrid((columns + 0.5) * detector.stride, (rows + 0.5) * detector.stride)
            half = np.array([detector.width, detector.height]) / 2
            boxes = np.stack([x - half[0], y - half[1], x + half[0], y + half[1]], axis=-1)
            counts = inside & (_common(boxes, regions).sum(axis=0) / (4 * half.prod()) < _OUTSIDE)
            label[5][~counts] = 1
            if not len(objects):
                continue
            common = _common(boxes, objects[:, 2:])
            union = np.maximum(truth[:, 2:].prod(axis=1), 0)[:, None, None] + 4 * half.prod() - common
            ious = np.where(counts, common / union, 0)
            most, own = ious.max(axis=0), ious.argmax(axis=0)
            for k, highest in enumerate(ious.max(axis=(1, 2))):
                best[k] = max(best[k], (float(highest), -number))
            label[5][counts] = most[counts]
            taken = most > self._threshold
            owners = own[taken]
            label[0][taken] = np.where(objects[owners, IGNORE] == 0, objects[owners, LABEL], 0)
            label[1:5, taken] = truth[owners].T
            matched[owners] = True
        for k in np.flatnonzero(~matched & (objects[:, IGNORE] == 0)).tolist():
            overlap, number = best[k]
            if overlap < _LEAST_OVERLAP:
                continue
            label, stride = labels[-number], self._detectors[-number].stride
            h, w = (int(np.clip(truth[k, 1 - a] // stride, 0, label.shape[1 + a] - 1)) for a in (0, 1))
            if label[0, h, w] <= 0:
                label[0, h, w], label[1:5, h, w] = objects[k, LABEL], truth[k]


def _round(values: Any) -> Any:
    """Round to the nearest whole number, halves up, as C does for numbers above 0."""
    return np.floor(np.asarray(values) + 0.5).astype(np.int64)


def _positions(size: tuple[int, int], detector: BoxField) -> tuple[int, ...]:
    return tuple(int(_round(side / detector.stride)) for side in size)


def _common(boxes: np.ndarray, others: np.ndarray) -> np.ndarray:
    """Return (G, H, W): the areas that boxes (H, W, 4) have in common with others (G, 4)."""
    low = np.maximum(boxes[..., :2], others[:, None, None, :2])
    high = np.minimum(boxes[..., 2:], others[:, None, None, 2:])
    return np.asarray(np.maximum(high - low, 0).prod(axis=-1))
