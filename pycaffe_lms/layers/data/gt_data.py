"""ImageGtData: pictures with labels for detectors of boxes of several sizes; a thread reads them ahead (MS-CNN)."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from ...data.feed.gt_pictures import NO_OBJECT, BoxField, Cut, GtBatches, GtList
from ..base import TRAIN, Pass, Shapes, at_least
from ..registry import register_layer
from .data import DataLayer

_LEAST_ROWS = 8
_READ = ("mirror", "mean_value")


@register_layer("ImageGtData")
class ImageGtDataLayer(DataLayer):
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
    _rows = _LEAST_ROWS

    def setup(self, bottom_shapes: Shapes) -> None:
        p, transform = self.param.image_gt_data_param, self.param.transform_param
        self._check_source("image_gt_data_param", "the list of pictures")
        for one, other in (("resize_width", "resize_height"), ("min_scale", "max_scale")):
            if bool(getattr(p, one)) != bool(getattr(p, other)):
                raise self.error(f"has one of {one} and {other}", fix="give both, or none")
        number = len(p.downsample_rate)
        if not number or not number == len(p.field_w) == len(p.field_h) or not all((*p.downsample_rate, *p.field_w)):
            raise self.error(
                f"has {number} downsample_rate, {len(p.field_w)} field_w and {len(p.field_h)} field_h",
                fix="give one of each for every detector, above 0",
            )
        wanted = 1 + number + p.output_gt_boxes
        if len(self.param.top) != wanted:
            raise self.error(
                f"has {len(self.param.top)} tops, for {number} detectors"
                + (" and output_gt_boxes" if p.output_gt_boxes else ""),
                fix=f"give {wanted}",
            )
        if p.coord_num != 4:
            raise self.error(f"coord_num is {p.coord_num}", fix="delete it: there are 4")
        for field, _ in transform.ListFields():
            if field.name not in _READ:
                raise self.error(f"transform_param.{field.name} has no effect here", fix="remove it")
        if len(transform.mean_value) not in (0, 1, 3):
            raise self.error(f"{len(transform.mean_value)} mean_value for 3 colours", fix="give one, or three")
        self._warn_of_unused("image_gt_data_param", "mean_file", "mirror", "cache_images")
        self._start()

    def _open(self) -> None:
        p, transform = self.param.image_gt_data_param, self.param.transform_param
        pictures = GtList(p.source, p.root_folder, p.fg_img_multiple)
        resize = (p.resize_height, p.resize_width) if p.resize_height else None
        height, width = resize or pictures.last_size
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
        self._shape, self._label_shapes = (p.batch_size, 3, *size), batches.label_shapes
        self._prefetch(batches)

    def infer_shapes(self, bottom_shapes: Shapes) -> Shapes:
        """Return the shapes of the next batch. Each change makes the net plan again, so rows leave room."""
        shapes = [self._shape, *self._label_shapes]
        if not self.param.image_gt_data_param.output_gt_boxes:
            return shapes
        if self._next is None:
            self._next = self._prefetcher.next()
        objects = self._next[2]
        if self._rows < len(objects):
            self._rows = 1 << (2 * len(objects) - 1).bit_length()
        return [*shapes, (self._rows, 7, 1, 1)]

    def forward(self, io: Pass) -> None:
        data, labels, objects = self._take()
        for top, values in zip(io.top, (data, *labels), strict=False):
            np.copyto(top, values)
        if self.param.image_gt_data_param.output_gt_boxes:
            rows = io.top[-1].reshape(-1, 7)
            rows[: len(objects)], rows[len(objects) :] = objects, NO_OBJECT
