"""AnnotatedData: batches of pictures with the boxes of their objects, for detection as in SSD, read ahead by a thread.

Source: weiliu89/caffe (SSD) and eric612/MobileNet-YOLO, src/caffe/layers/annotated_data_layer.cpp (behaviour).
"""

from __future__ import annotations

import numpy as np

from ...data.feed.annotated_batches import AnnotatedBatches
from ...data.transform.augment import every_size
from ...data.transform.random_size import FIELDS as RANDOM_SIZE
from ...data.transform.sampler import check_sampler
from ...data.transform.transformer import DataTransformer
from ...errors import LayerParamError
from ...proto.caffe_pb2 import TRAIN, ResizeParameter
from ..base import Pass, Shapes
from ..registry import register_layer
from .data import ONLY_SEGMENTED, DataLayer

_LEAST_ROWS = 8


@register_layer("AnnotatedData")
class AnnotatedDataLayer(DataLayer):
    """AnnotatedDatum records of the database data_param.source, which convert_annoset writes, as Data reads Datums.

    Each picture gets, as far as these fields are given: other colours (transform_param.distort_param), a larger canvas
    (expand_param), a crop to one of the boxes that annotated_data_param.batch_sampler draw, another size
    (resize_param), noise (noise_param), a crop (crop_size, or crop_h and crop_w), mirroring, mean and scale. Its boxes
    follow; after each crop those remain that meet emit_constraint and lie partly within, and are clipped.
    Top 0: (batch_size, channels, height, width). Top 1 (optional): (1, 1, rows, 8), for each object its picture's
    number in the batch, class, number within the class, xmin, ymin, xmax, ymax as fractions of the picture, and 1 if it
    is difficult. Rows after the last object are -1: rows is 8, or a power of 2 that has held the objects of every batch
    so far. Where neither the first record nor anno_type says that there are boxes, top 1 is the labels,
    (batch_size, 1, 1, 1).
    MobileNet-YOLO: resize_param may be given again; one is drawn by its `prob` for every ten batches, on all ranks the
    same, and the shape of the data changes. With yolo_data_type: 1 top 1 is (batch_size, 1, 300, 5), of each object its
    class - 1, its centre x, y, its width and height, then zeros; without batch_sampler pictures are cropped to a box
    whose sides are 1 - yolo_data_jitter to 1 of the picture's; train_diffcult: false leaves out difficult objects.
    A sample_constraint with several parts must be met in full by one object. label_map_file and prob of resize_param
    and noise_param have no effect. All else is as for Data: ranks, resuming, prefetch.
    Raises: DataError for a missing or damaged database (with the key); LayerParamError for impossible fields;
    MissingDependency without OpenCV.
    """

    _rows = _LEAST_ROWS

    def setup(self, bottom_shapes: Shapes) -> None:
        self._check_source("data_param", "the database folder that convert_annoset wrote")
        self._warn_of_unused("data_param", "rand_skip", "force_encoded_color")
        self._warn_of_unused("transform_param", *ONLY_SEGMENTED)
        for field in filter(self.param.transform_param.HasField, RANDOM_SIZE):
            raise self.error(f"transform_param.{field} would not change the boxes", fix="use batch_sampler")
        p = self.param.annotated_data_param
        for number, sampler in enumerate(p.batch_sampler, 1):
            try:
                check_sampler(sampler, number)
            except LayerParamError as error:
                raise error.at(layer=self.name, type=self.param.type) from None
        batch_size = self.param.data_param.batch_size
        modes = {size.resize_mode for size in every_size(self.param.transform_param)}
        if p.yolo_data_type not in (0, 1):
            raise self.error(f"yolo_data_type {p.yolo_data_type} is not known", fix="write 0 or 1")
        if not 0 <= p.yolo_data_jitter < 1:
            raise self.error(f"yolo_data_jitter is {p.yolo_data_jitter:g}", fix="write a number from 0 to below 1")
        if ResizeParameter.FIT_SMALL_SIZE in modes and batch_size != 1 and not self._crops:
            raise self.error(
                f"resize_mode FIT_SMALL_SIZE gives pictures of several sizes, but batch_size is {batch_size}",
                fix="set batch_size: 1, or crop with crop_h and crop_w",
            )
        self._start()

    @property
    def _jitters(self) -> bool:
        """Return whether pictures are cropped as YOLO's are: where the fields, or a default of that dialect, say so."""
        p = self.param.annotated_data_param
        return p.HasField("yolo_data_jitter") or (bool(p.yolo_data_type) and self.phase == TRAIN)

    @property
    def _crops(self) -> bool:
        return bool(self.param.transform_param.crop_size or self.param.transform_param.crop_h)

    def _open(self) -> None:
        p, transform, annotated = self.param.data_param, self.param.transform_param, self.param.annotated_data_param
        transformer = DataTransformer(transform, self.phase, source=p.source)
        batches = AnnotatedBatches(
            p.source,
            p.backend,
            p.batch_size,
            transformer,
            transform_param=transform,
            samplers=annotated.batch_sampler,
            boxes_given=annotated.HasField("anno_type"),
            yolo=bool(annotated.yolo_data_type),
            jitter=annotated.yolo_data_jitter if self._jitters else 0,
            difficult=annotated.train_diffcult,
            dtype=self.dtype,
            rank=self.context.solver_rank,
            ranks=self.context.solver_count,
            seed=self._seed,
        )
        self._shape = batches.shape
        self._prefetch(batches, transformer.spare)

    def infer_shapes(self, bottom_shapes: Shapes) -> Shapes:
        """Return the shapes of the next batch. Each change of a shape makes the net take new memory and plan again, so
        rows do not follow every batch, and leave room when they grow."""
        if self._next is None:
            self._next = self._prefetcher.next()
        data, label = self._next
        if not self._batches.has_boxes:
            return [data.shape, label.shape][: len(self.param.top)]
        if self.param.annotated_data_param.yolo_data_type:
            return [data.shape, label.shape][: len(self.param.top)]
        if self._rows < len(label):
            self._rows = 1 << (2 * len(label) - 1).bit_length()
        return [data.shape, (1, 1, self._rows, 8)][: len(self.param.top)]

    def forward(self, io: Pass) -> None:
        data, label = self._take()
        np.copyto(io.top[0], data)
        self._give_back((data, label))
        if len(io.top) == 1:
            return
        if self._batches.has_boxes and not self.param.annotated_data_param.yolo_data_type:
            io.top[1][0, 0, : len(label)] = label
            io.top[1][0, 0, len(label) :] = -1
        else:
            np.copyto(io.top[1], label)
