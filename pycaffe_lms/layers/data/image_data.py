"""ImageData: batches of the picture files that a text file lists; a thread reads and transforms them ahead.

Source: BVLC/caffe, src/caffe/layers/image_data_layer.cpp (behaviour).
"""

from __future__ import annotations

from dataclasses import replace

from ...data.feed.image_list import ImageBatches, ImageList
from ...data.transform.transformer import DataTransformer
from ..base import TRAIN, Shapes, exactly
from ..registry import register_layer
from .data import ONLY_ANNOTATED, ONLY_SEGMENTED, DataLayer


@register_layer("ImageData")
class ImageDataLayer(DataLayer):
    """Pictures of the list image_data_param.source (lines `path label`), again and again.

    Top 0: (batch_size, 3 or 1 by is_color, height, width), resized to new_height x new_width, then transform_param.
    Top 1: labels, (batch_size). Pictures of several sizes need new_height and new_width, resize_param, crop_size or
    batch_size 1.
    Every rank reads the whole list. In a TRAIN net ranks draw different orders, starts (rand_skip) and crops. All draws
    depend only on the layer's seed, the rank and the numbers of epoch and batch: a resumed run gets the same batches as
    an uninterrupted one. data_param.prefetch batches (default 4) are prepared ahead; a GPU finishes them as Data's.
    Raises: LayerParamError for impossible fields; DataError for a list or picture that cannot be read (with the line);
    MissingDependency without OpenCV.
    """

    declares = replace(DataLayer.declares, tops=exactly(2))

    def setup(self, bottom_shapes: Shapes) -> None:
        p = self.param.image_data_param
        self._check_source("image_data_param", "the file that lists the pictures")
        if (p.new_height > 0) != (p.new_width > 0):
            given, missing = ("new_height", "new_width") if p.new_height else ("new_width", "new_height")
            raise self.error(f"has {given} but no {missing}", fix=f"add {missing}, or remove {given}")
        wrong = "force_gray" if p.is_color else "force_color"
        if getattr(self.param.transform_param, wrong):
            raise self.error(
                f"transform_param.{wrong} contradicts is_color: {str(p.is_color).lower()}", fix="keep is_color alone"
            )
        self._warn_of_unused("image_data_param", "scale", "mean_file", "crop_size", "mirror")
        self._warn_of_unused("transform_param", *ONLY_ANNOTATED, *ONLY_SEGMENTED)
        self._warn_of_unused("image_data_param", "label_type", "ignore_label")
        self._start()

    def _open(self) -> None:
        p = self.param.image_data_param
        transformer = DataTransformer(self.param.transform_param, self.phase, source=p.source)
        batches = ImageBatches(
            ImageList(p.source, p.root_folder),
            p.batch_size,
            transformer,
            is_color=p.is_color,
            size=(p.new_height, p.new_width) if p.new_height else None,
            shuffle=p.shuffle,
            rand_skip=p.rand_skip,
            dtype=self.dtype,
            rank=self.context.solver_rank if self.phase == TRAIN else 0,
            seed=self._seed,
            as_bytes=self._wants_bytes(p.batch_size),
            by_processes=not self._readers,
        )
        self._shape = batches.shape
        self._pictures = transformer
        self._prefetch(batches, transformer.spare)
