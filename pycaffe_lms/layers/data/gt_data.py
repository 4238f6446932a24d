"""ImageGtData, DetectionData, EvalData: pictures with the boxes of their objects, for MS-CNN and Cascade R-CNN.

A thread reads them ahead.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from ...data.feed.truth.detection_batches import MARKS, DetectionBatches, EvalBatches
from ...data.feed.truth.gt_batches import NO_OBJECT, Cut, GtBatches
from ...data.feed.truth.labels import BoxField
from ...data.feed.truth.lists import GtList
from ..base import TRAIN, Pass, Shapes, at_least, between
from ..registry import register_layer
from .data import DataLayer

_LEAST_ROWS = 8
_READ = ("mirror", "mean_value")


class _TruthLayer(DataLayer):
    """A data layer with rows of objects, whose number changes from batch to batch.

    Each change makes the net plan again, so rows leave room: there are 8, or a power of 2 that has held the objects of
    every batch so far."""

    _rows = _LEAST_ROWS
    _no_object: Sequence[float] = (-1,) * 8  # fills the rows after the last object

    def _check_transform(self, read: Sequence[str]) -> None:
        """Raise LayerParamError for other fields of transform_param than these, or too many mean values."""
        transform = self.param.transform_param
        for field, _ in transform.ListFields():
            if field.name not in read:
                raise self.error(f"transform_param.{field.name} has no effect here", fix="remove it")
        if len(transform.mean_value) not in (0, 1, 3):
            raise self.error(f"{len(transform.mean_value)} mean_value for 3 colours", fix="give one, or three")

    def _check_detectors(self, p: Any, stride: str) -> int:
        """Return how many detectors there are. stride: the name of that field. Raises LayerParamError."""
        strides = getattr(p, stride)
        number = len(strides)
        if not number == len(p.field_w) == len(p.field_h) or not all((*strides, *p.field_w, *p.field_h)):
            raise self.error(
                f"has {number} {stride}, {len(p.field_w)} field_w and {len(p.field_h)} field_h",
                fix="give one of each for every detector, above 0",
            )
        if p.coord_num != 4:
            raise self.error(f"coord_num is {p.coord_num}", fix="delete it: there are 4")
        wanted = 1 + number + p.output_gt_boxes
        if len(self.param.top) != wanted:
            raise self.error(
                f"has {len(self.param.top)} tops, for {number} detectors"
                + (" and output_gt_boxes" if p.output_gt_boxes else ""),
                fix=f"give {wanted}",
            )
        return number

    def _check_pairs(self, p: Any, *pairs: tuple[str, str]) -> None:
        """Raise LayerParamError where one of two fields that belong together is missing."""
        for one, other in pairs:
            if bool(getattr(p, one)) != bool(getattr(p, other)):
                raise self.error(f"has one of {one} and {other}", fix="give both, or none")

    @property
    def _shows_objects(self) -> bool:
        """Return whether the last top is the rows of objects."""
        raise NotImplementedError

    def infer_shapes(self, bottom_shapes: Shapes) -> Shapes:
        """Return the shapes of the next batch."""
        if self._next is None:
            self._next = self._prefetcher.next()
        data, others, objects = self._next
        shapes = [data.shape, *(values.shape for values in others)]
        if not self._shows_objects:
            return shapes
        if self._rows < len(objects):
            self._rows = 1 << (2 * len(objects) - 1).bit_length()
        return [*shapes, (self._rows, len(self._no_object), 1, 1)]

    def forward(self, io: Pass) -> None:
        data, others, objects = self._take()
        self._show(io.top, [data, *others], objects)

    def _show(self, tops: Sequence[Any], values: Sequence[Any], objects: Any) -> None:
        """Write values into the first tops, objects into the last one, if they are shown."""
        for top, array in zip(tops, values, strict=False):
            np.copyto(top, array)
        if self._shows_objects:
            rows = tops[-1].reshape(-1, len(self._no_object))
            rows[: len(objects)], rows[len(objects) :] = objects, self._no_object


@register_layer("ImageGtData")
class ImageGtDataLayer(_TruthLayer):
    """Pictures of the list image_gt_data_param.source, as MS-CNN's detectors of boxes of several sizes are trained.

    The list has, for each picture: `# number path channels height width`, how many objects and for each
    `class ignored x1 y1 x2 y2`, how many regions of no interest and for each `x1 y1 x2 y2`. A picture is flipped at
    random (transform_param.mirror), resized to resize_width x resize_height, with do_multiple_scale at random scaled
    so that one of its objects has another size from min_scale to max_scale (and another ratio of sides, min_whaspect
    to max_whaspect), and cut to crop_width x crop_height around that object, moved by up to 10 pixels. What it does
    not fill is 0. Values get transform_param.mean_value and scale.
    Top 0: (batch_size, 3, height, width). Top i: labels for the boxes of field_w(i - 1) x field_h(i - 1), positions
    downsample_rate(i - 1) pixels apart, (batch_size, 6, h, w): class, x, y, width, height of the object that the box
    overlaps most, if by more than fg_threshold and not to be ignored, else class 0; and how much it overlaps it, 1 in
    regions of no interest. An object that no box overlaps enough gets the position of its centre, in the detector whose
    box overlaps it most. The last top, with output_gt_boxes: rows of (picture, x1, y1, x2, y2, class, ignored),
    (G, 7, 1, 1); rows after the last object are (0, 1, 1, 2, 2, 1, 1), which is ignored: G is 8, or a power of 2 that
    has held the objects of every batch so far. Objects are ignored that the list says so of, that are smaller than
    min_gt_width or min_gt_height, or whose centres are cut off.
    cache_images has no effect. All else is as for ImageData: order, ranks, resuming, prefetch.
    Raises: LayerParamError for impossible fields; DataError for a list or picture that cannot be read; BlobCountError
    for another number of tops; MissingDependency without OpenCV.
    Source: zhaoweicai/mscnn, src/caffe/layers/image_gt_data_layer.cpp (where G is the number of objects).
    """

    declares = replace(DataLayer.declares, tops=at_least(2))
    _no_object = NO_OBJECT

    @property
    def _shows_objects(self) -> bool:
        return bool(self.param.image_gt_data_param.output_gt_boxes)

    def setup(self, bottom_shapes: Shapes) -> None:
        p = self.param.image_gt_data_param
        self._check_source("image_gt_data_param", "the list of pictures")
        self._check_pairs(p, ("resize_width", "resize_height"), ("min_scale", "max_scale"))
        if not self._check_detectors(p, "downsample_rate"):
            raise self.error("has no detectors", fix="give downsample_rate, field_w and field_h")
        self._check_transform(_READ)
        self._warn_of_unused("image_gt_data_param", "mean_file", "mirror", "cache_images")
        self._start()

    def _open(self) -> None:
        p, transform = self.param.image_gt_data_param, self.param.transform_param
        pictures = GtList(p.source, p.root_folder, multiple=p.fg_img_multiple)
        resize = (p.resize_height, p.resize_width) if p.resize_height else None
        height, width = resize or pictures.sizes[-1]
        if p.crop_height > height or p.crop_width > width:
            raise self.error(
                f"the crop {p.crop_height} x {p.crop_width} is larger than {height} x {width}", fix="make it smaller"
            )
        size = (p.crop_height or height, p.crop_width or width)
        scales = (p.min_scale, p.max_scale) if p.do_multiple_scale and p.min_scale else None
        given = p.HasField("min_whaspect") and p.HasField("max_whaspect")
        aspects = (p.min_whaspect, p.max_whaspect) if given else None
        cut = Cut(size, resize, scales, aspects, transform.mirror, (p.min_gt_width, p.min_gt_height))
        fields = zip(p.field_w, p.field_h, p.downsample_rate, strict=True)
        batches = GtBatches(
            pictures,
            p.batch_size,
            cut,
            [BoxField(*field) for field in fields],
            threshold=p.fg_threshold,
            mean=transform.mean_value,
            scale=p.scale,
            shuffle=p.shuffle,
            dtype=self.dtype,
            rank=self.context.solver_rank if self.phase == TRAIN else 0,
            seed=self._seed,
        )
        self._prefetch(batches)


@register_layer("DetectionData")
class DetectionDataLayer(_TruthLayer):
    """Pictures of the list detection_data_param.source, as Cascade R-CNN's detectors are trained.

    The list has, for each picture: `# number path channels height width`, how many objects and for each
    `class ignored difficult x1 y1 x2 y2`, how many regions of no interest and for each `x1 y1 x2 y2`. A picture is
    changed by distort_param, flipped at random (transform_param.mirror) and resized: to resize_width x resize_height,
    or to resize_ratio of its size, or so that its shorter side is short_size. With probability multiscale_prob it is
    scaled by something from low_scale_ratio to high_scale_ratio, or so that one of its objects, drawn, has a size from
    min_scale to max_scale; a picture without objects then by 2, as in the fork. min_whaspect and max_whaspect: by what
    the ratio of width and height is multiplied then. Last it is cut around that object, moved by up to 10 pixels, to
    crop_width x crop_height, or crop_short_size x crop_long_size, or short_size x long_size; long is the height if the
    first picture of the batch is at least as high as wide, else the width. Without them the size is that picture's.
    What a picture does not fill is 0. template_ratio: one of these, drawn for each batch, multiplies short_size and
    long_size, which count as the nearest multiples of 32. Values get transform_param.mean_value and scale.
    Top 0: (batch_size, 3, height, width). Top i: labels for the boxes of field_w(i - 1) x field_h(i - 1), positions
    stride(i - 1) pixels apart, (batch_size, 6, h, w): class, x, y, width, height of the object that the box overlaps
    most, if by more than fg_threshold and not to be ignored, else class 0; and how much it overlaps it. That is 1 where
    the box is no background either: outside of the picture, ignore_fg_threshold or more in regions of no interest, or
    by anchor_ignore_margin_ratio or anchor_ignore_iou_thr. An object that no box overlaps enough gets the position of
    its centre, in the detector whose box overlaps it most, if by pickup_iou_thr. Boxes count both ends in. The last
    top, with output_gt_boxes: rows of (picture, x1, y1, x2, y2, class, ignored, difficult), (G, 8, 1, 1); rows after
    the last object are -1: G is 8, or a power of 2 that has held the objects of every batch so far. Objects are ignored
    that the list says so of, that are smaller than min_gt_width or min_gt_height, or whose centres are cut off.
    shuffle, if given: each epoch has an order of its own: `random`; `random_aspect`, high pictures apart from wide
    ones; `random_mix_aspect`, mix_group_size of each in turn.
    cache_images has no effect. All else is as for ImageData: ranks, resuming, prefetch.
    Raises: LayerParamError for impossible fields; DataError for a list or picture that cannot be read; BlobCountError
    for another number of tops; MissingDependency without OpenCV.
    Source: zhaoweicai/cascade-rcnn, src/caffe/layers/detection_data_layer.cpp (where G is the number of objects).
    """

    declares = replace(DataLayer.declares, tops=at_least(1))

    @property
    def _shows_objects(self) -> bool:
        return bool(self.param.detection_data_param.output_gt_boxes)

    def setup(self, bottom_shapes: Shapes) -> None:
        p = self.param.detection_data_param
        self._check_source("detection_data_param", "the list of pictures")
        self._check_pairs(
            p,
            ("resize_width", "resize_height"),
            ("crop_width", "crop_height"),
            ("short_size", "long_size"),
            ("crop_short_size", "crop_long_size"),
            ("min_scale", "max_scale"),
            ("low_scale_ratio", "high_scale_ratio"),
            ("min_whaspect", "max_whaspect"),
        )
        for names in (
            ("resize_width", "resize_ratio", "short_size"),
            ("crop_width", "crop_short_size"),
            ("min_scale", "low_scale_ratio"),
        ):
            given = [name for name in names if getattr(p, name)]
            if len(given) > 1:
                raise self.error(f"has {' and '.join(given)}", fix="keep one")
        for low, high in (("short_size", "long_size"), ("min_scale", "max_scale"), ("min_whaspect", "max_whaspect")):
            if not 0 <= getattr(p, low) <= getattr(p, high):
                raise self.error(f"{low} is above {high}, or below 0", fix="exchange them")
        if p.batch_size > 1 and not (p.crop_width or p.crop_short_size or p.short_size or p.resize_width):
            raise self.error(
                "pictures of a batch have sizes of their own", fix="give short_size and long_size, or a crop"
            )
        if p.shuffle not in ("random", "random_aspect", "random_mix_aspect"):
            raise self.error(f'shuffle is "{p.shuffle}"', fix="use random, random_aspect or random_mix_aspect")
        self._check_detectors(p, "stride")
        self._check_transform((*_READ, "scale"))
        self._warn_of_unused("detection_data_param", "scale", "cache_images")
        self._start()

    def _open(self) -> None:
        p = self.param.detection_data_param
        self._prefetch(
            DetectionBatches(
                GtList(p.source, p.root_folder, marks=MARKS),
                p,
                self.param.transform_param,
                dtype=self.dtype,
                rank=self.context.solver_rank if self.phase == TRAIN else 0,
                seed=self._seed,
            )
        )


@register_layer("EvalData")
class EvalDataLayer(_TruthLayer):
    """Pictures of the list eval_data_param.source, one after the other, with their objects (Cascade R-CNN).

    The list is that of DetectionData. A picture is resized to resize_width x resize_height, or so that its shorter side
    is short_size, but no side longer than long_size; then both sides to multiples of 32. With batch_size above 1
    resize_width and resize_height are needed. Values get transform_param.mean_value and scale.
    Top 0: (batch_size, 3, height, width). Top 1: objects, (G, 8, 1, 1), as DetectionData's. Top 2, if given: height and
    width of each picture as top 0 has it, (batch_size, 2, 1, 1).
    All else is as for ImageData: resuming, prefetch.
    Raises: LayerParamError for impossible fields; DataError for a list or picture that cannot be read;
    MissingDependency without OpenCV.
    Source: zhaoweicai/cascade-rcnn, src/caffe/layers/eval_data_layer.cpp (where G is the number of objects).
    """

    declares = replace(DataLayer.declares, tops=between(2, 3))
    _shows_objects = True

    def setup(self, bottom_shapes: Shapes) -> None:
        p = self.param.eval_data_param
        self._check_source("eval_data_param", "the list of pictures")
        self._check_pairs(p, ("resize_width", "resize_height"), ("short_size", "long_size"))
        if p.batch_size > 1 and not p.resize_width:
            raise self.error("pictures of a batch have sizes of their own", fix="write batch_size: 1")
        self._check_transform(("mean_value", "scale"))
        self._warn_of_unused("eval_data_param", "scale")
        self._start()

    def _open(self) -> None:
        p = self.param.eval_data_param
        pictures = GtList(p.source, p.root_folder, marks=MARKS)
        self._prefetch(EvalBatches(pictures, p, self.param.transform_param, dtype=self.dtype, rank=0, seed=self._seed))

    def infer_shapes(self, bottom_shapes: Shapes) -> Shapes:
        data, sizes, objects = super().infer_shapes(bottom_shapes)
        return [data, objects, (*sizes, 1, 1)][: len(self.param.top)]

    def forward(self, io: Pass) -> None:
        data, (sizes,), objects = self._take()
        self._show(io.top[:2], [data], objects)
        if len(io.top) == 3:
            io.top[2][...] = sizes.reshape(io.top[2].shape)
