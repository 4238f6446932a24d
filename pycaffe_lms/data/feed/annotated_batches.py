"""Make batches of pictures with the boxes of their objects from a database, for the AnnotatedData layer.

Covers: the order of changes (colours, canvas, crop to a drawn box, then transform_param), boxes that follow them.
See also: batches.py, which chooses the records; ../transform/boxes.py, sampler.py and augment.py.
Source: weiliu89/caffe (SSD), src/caffe/layers/annotated_data_layer.cpp, src/caffe/data_transformer.cpp (behaviour).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ...errors import CaffeError, DataError, LayerParamError, Where
from ...proto.caffe_pb2 import (
    TEST,
    TRAIN,
    AnnotatedDatum,
    BatchSampler,
    Datum,
    ResizeParameter,
    TransformationParameter,
)
from ..database.annotated import objects_of, parse_annotated
from ..database.datum import datum_array, record_place
from ..transform.augment import distort, every_size, expand, per_channel
from ..transform.boxes import Objects
from ..transform.picture import require_opencv, to_pixels, to_planes
from ..transform.sampler import draw_boxes, jittered
from ..transform.transformer import DataTransformer, Item, batch_rng, item_rng, transformed_items
from .batches import DatumBatches

_CHANGES = 1  # the purpose of an item's random numbers: its colours, canvas and crop
_SIZE = 2  # that of the first item's: which resize_param counts
_BATCHES_OF_A_SIZE = 10
YOLO_OBJECTS = 300  # rows of each picture


class AnnotatedBatches(DatumBatches):
    """Make batch b of a database of AnnotatedDatum records, for any b: (data, labels).

    Attributes:
        has_boxes: whether labels are the rows of `Objects.rows` (n, 8), a row of -1 if there are none; else they are
            one label per picture (B, 1, 1, 1).

    With several resize_param one is drawn for every ten batches, by `prob`, the same for all ranks.

    Args:
        transform_param: the layer's, of which distort_param, expand_param and emit_constraint act here.
        samplers: draw boxes; each picture is cropped to one of them.
        boxes_given: take records as pictures with boxes even if they do not say so.
        yolo: labels are (B, 1, 300, 5) for YOLO's losses (`yolo_rows`).
        jitter: of `sampler.jittered`, where there are no samplers; 0: none.
        difficult: keep difficult objects in the labels of `yolo`.
        others: the arguments of DatumBatches.
    Raises: as DatumBatches.
    """

    has_boxes = False
    _first_item: tuple[int, int, int]  # of the first record, (C, H, W)

    def __init__(
        self,
        *args: Any,
        transform_param: TransformationParameter,
        samplers: Sequence[BatchSampler] = (),
        boxes_given: bool = False,
        yolo: bool = False,
        jitter: float = 0,
        difficult: bool = True,
        **kwargs: Any,
    ):
        self._yolo, self._jitter, self._difficult = yolo, jitter, difficult
        self._samplers = tuple(samplers)
        p = transform_param
        self._distort = p.distort_param if p.HasField("distort_param") else None
        self._expand = p.expand_param if p.HasField("expand_param") else None
        self._emit = p.emit_constraint if p.HasField("emit_constraint") else None
        if self._distort is not None:
            require_opencv()
        self._boxes_given = boxes_given
        super().__init__(*args, **kwargs)
        first, sizes = self._transformer, every_size(p)
        self._policies = [(first, self.shape)]
        for size in sizes[1:]:
            one = TransformationParameter()
            one.CopyFrom(p)
            one.ClearField("further_resize_param")
            one.resize_param.CopyFrom(size)
            one.resize_param.ClearField("prob")
            other = DataTransformer(one, TRAIN if first.train else TEST, source=first.source)
            other.spare = first.spare  # the layer gives back what all of them took
            self._policies.append((other, (self._batch_size, *other.output_shape(self._first_item))))
        self._shares = np.cumsum([size.prob for size in sizes] or [1])
        if len(sizes) > 1 and abs(self._shares[-1] - 1) > 1e-5:
            self.close()
            raise LayerParamError(
                f"prob of {len(sizes)} resize_param add up to {self._shares[-1]:g}",
                where=Where(file=self.source),
                fix=f"let them add up to 1, for example prob: {1 / len(sizes):g} in each",
            )

    def _policy(self, batch: int) -> tuple[DataTransformer, tuple[int, int, int, int]]:
        """Return how pictures of a batch are transformed, and the shape of its data."""
        if len(self._policies) == 1:
            return self._policies[0]
        drawn = item_rng(batch_rng(self._seed, batch // _BATCHES_OF_A_SIZE), 0, _SIZE).random()
        return self._policies[min(int((drawn >= self._shares).sum()), len(self._policies) - 1)]

    def produce(self, batch: int) -> tuple[np.ndarray, np.ndarray]:
        """Return (data (B, C, h, w), labels) of batch number `batch`; in order is fastest, any order works.

        Raises: DataError or LayerParamError, naming the database and the record's key.
        """
        records = [self._record(batch * self._batch_size + item) for item in range(self._batch_size)]
        rng = batch_rng(self._seed, batch, self._stream)
        transformer, shape = self._policy(batch)
        resize = transformer.resize_param
        data, items, places = transformed_items(
            transformer,
            lambda item: self._read(*records[item], item_rng(rng, item, _CHANGES), resize),
            shape,
            rng,
            dtype=self._dtype,
            fix="set transform_param.resize_param { height: 300 width: 300 }, or batch_size: 1",
        )
        if not self.has_boxes:
            return data, np.array([label for _, label, _ in items], self._dtype).reshape(-1, 1, 1, 1)
        rows = [np.empty((0, 8))]
        for i, ((read_shape, objects, where), (crop, mirrored)) in enumerate(zip(items, places, strict=True)):
            placed = self._placed(objects, read_shape, np.array(crop, np.float32), mirrored, where, resize)
            rows.append(placed.rows(i))
        if self._yolo:
            return data, yolo_rows(rows[1:], self._difficult).astype(self._dtype)
        found = np.concatenate(rows).astype(self._dtype)
        return data, found if len(found) else np.full((1, 8), -1, self._dtype)

    def _placed(
        self,
        objects: Objects,
        shape: tuple[int, ...],
        crop: np.ndarray,
        mirrored: bool,
        where: Where,
        resize: ResizeParameter | None,
    ) -> Objects:
        """Let the objects of a picture of `shape` (C, H, W) follow its transformation."""
        if resize is not None:
            objects = objects.resized(resize, shape[1], shape[2])
        objects = objects.cropped(crop, self._emit)
        objects = objects.mirrored() if mirrored else objects
        if resize is None:
            return objects
        try:
            return objects.rescaled(resize, shape[1], shape[2], crop)
        except DataError as error:
            raise error.at(file=where.file) from None

    def _read(self, key: bytes, record: bytes, rng: np.random.Generator, resize: ResizeParameter | None) -> Item:
        """Return a picture with other colours, on a larger canvas and cropped, as far as asked for, and its objects."""
        annotated, array, where = self._decoded(key, record)
        objects = objects_of(annotated, source=self.source, key=key)
        if self._distort is not None or self._expand is not None or self._samplers or self._jitter:
            try:
                array, objects = self._changed(array, objects, rng, resize)
            except CaffeError as error:
                raise error.at(file=where.file) from error.__cause__
        return array, objects if self.has_boxes else annotated.datum.label, where

    def _changed(
        self, array: np.ndarray, objects: Objects, rng: np.random.Generator, resize: ResizeParameter | None
    ) -> tuple[np.ndarray, Objects]:
        if self._distort is not None:
            if array.dtype != np.uint8:
                raise DataError(
                    f"distort_param changes pictures of bytes, not {array.dtype} values",
                    fix="store the pictures as bytes, or remove distort_param",
                )
            array = to_planes(distort(to_pixels(array), self._distort, rng))
        if self._expand is not None and rng.random() <= self._expand.prob:
            fill = per_channel(self._transformer.mean_values, len(array), "mean_value")
            array, canvas = expand(array, self._expand.max_expand_ratio, fill, rng)
            objects = objects.cropped(canvas, self._emit)
        if self._samplers or self._jitter:
            padded = resize is not None and resize.resize_mode == ResizeParameter.FIT_LARGE_SIZE_AND_PAD
            drawn = (
                draw_boxes(self._samplers, objects.boxes, rng)
                if self._samplers
                else jittered(self._jitter, padded, rng)
            )
            if len(drawn):
                box = drawn[int(rng.integers(len(drawn)))]
                array, objects = _window(array, box), objects.cropped(box, self._emit)
        return array, objects

    def _decoded(self, key: bytes, record: bytes) -> tuple[AnnotatedDatum, np.ndarray, Where]:
        annotated = parse_annotated(record, source=self.source, key=key)
        if self.has_boxes and not (self._boxes_given or annotated.HasField("type")):
            raise DataError(
                "the record has no type of annotation, but the first one has",
                where=record_place(self.source, key),
                fix="write the database again, or set annotated_data_param.anno_type: BBOX",
            )
        colour, gray = self._transformer.force_color, self._transformer.force_gray
        array = datum_array(annotated.datum, source=self.source, key=key, force_color=colour, force_gray=gray)
        return annotated, array, record_place(self.source, key)

    def _decode(self, key: bytes, record: bytes) -> tuple[Datum, np.ndarray, Where]:
        """Decode the first record, of which the base class takes the shape."""
        annotated, array, where = self._decoded(key, record)
        self.has_boxes = self._boxes_given or annotated.HasField("type")
        self._first_item = array.shape
        return annotated.datum, array, where


def yolo_rows(rows: Sequence[np.ndarray], difficult: bool) -> np.ndarray:
    """Return float64 (B, 1, 300, 5): of each object its class - 1, its centre x, y and its width and height, then 0.

    rows: of each picture, as `Objects.rows`. Objects after the 300th are left out. difficult: keep difficult ones.
    Source: eric612/MobileNet-YOLO, src/caffe/layers/annotated_data_layer.cpp (behaviour).
    """
    out = np.zeros((len(rows), 1, YOLO_OBJECTS, 5))
    for item, found in zip(out[:, 0], rows, strict=True):
        kept = (found if difficult else found[found[:, 7] == 0])[:YOLO_OBJECTS]
        low, high = kept[:, 3:5], kept[:, 5:7]
        item[: len(kept)] = np.concatenate([kept[:, 1:2] - 1, (low + high) / 2, high - low], axis=1)
    return out


def _window(array: np.ndarray, box: np.ndarray) -> np.ndarray:
    """Return the pixels of an array (C, H, W) within a box, rounded as in the fork, but at least one."""
    sides = np.array([array.shape[2], array.shape[1]], np.float32)
    low, high = box[:2] * sides, box[2:] * sides
    size = np.maximum((high - low).astype(int), 1)
    left, top = np.minimum(low.astype(int), sides.astype(int) - size)
    return array[:, top : top + size[1], left : left + size[0]]
