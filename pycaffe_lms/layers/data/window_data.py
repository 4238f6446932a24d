"""WindowData: warped windows of pictures, for detection as in R-CNN, which a thread reads ahead.

Source: BVLC/caffe, src/caffe/layers/window_data_layer.cpp (behaviour).
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from ...data.feed.windows import Crop, WindowBatches, WindowList
from ...data.transform.mean import load_mean
from ...data.transform.random_size import FIELDS as RANDOM_SIZE
from ...errors import DataError, Where
from ..base import TRAIN, Shapes, exactly
from ..registry import register_layer
from .data import ONLY_ANNOTATED, ONLY_SEGMENTED, DataLayer


@register_layer("WindowData")
class WindowDataLayer(DataLayer):
    """Windows drawn at random from the window file window_data_param.source: background windows, then int(batch_size *
    fg_fraction) foreground windows.

    Top 0: (batch_size, 3, crop_size, crop_size), blue, green, red: (pixel - mean) * scale, zero outside the picture.
    Top 1: classes, (batch_size), 0 for background. crop_mode "warp" stretches a window, "square" takes the square
    around it; context_pad adds a border from the picture. Of mean_file the centre is used. crop_size, mirror, mean and
    scale are those of transform_param; window_data_param.scale is used if transform_param has none.
    Draws depend only on the layer's seed, the rank and the batch's number: a resumed run gets the same batches as an
    uninterrupted one. Every rank draws from all windows. data_param.prefetch batches (default 4) are prepared ahead.
    Raises: LayerParamError for impossible fields; DataError for a file or picture that cannot be used;
    MissingDependency without OpenCV.
    """

    declares = replace(DataLayer.declares, tops=exactly(2))

    def setup(self, bottom_shapes: Shapes) -> None:
        p, transform = self.param.window_data_param, self.param.transform_param
        self._check_source("window_data_param", "the window file")
        self._warn_of_unused("window_data_param", "mean_file", "crop_size", "mirror")
        self._warn_of_unused("transform_param", *ONLY_SEGMENTED, *RANDOM_SIZE)
        if transform.crop_size == 0:
            raise self.error("has no crop_size", fix="set transform_param.crop_size, the size that windows get")
        if p.context_pad * 2 >= transform.crop_size:
            raise self.error(
                f"context_pad {p.context_pad} on both sides leaves nothing of crop_size {transform.crop_size}",
                fix="set context_pad below half of crop_size",
            )
        if p.crop_mode not in ("warp", "square"):
            raise self.error(f'no crop_mode "{p.crop_mode}"', fix='use "warp" or "square"')
        if not 0 <= p.fg_fraction <= 1:
            raise self.error(f"fg_fraction is {p.fg_fraction:g}", fix="use 0 to 1")
        if transform.force_gray:
            raise self.error("force_gray has no effect: windows are read in colour", fix="remove force_gray")
        given = {field.name for field, _ in transform.ListFields()}
        for field in ("resize_param", "noise_param", "crop_h", "crop_w", *ONLY_ANNOTATED):
            if field in given:
                raise self.error(f"{field} has no effect on windows", fix=f"remove {field}")
        if p.HasField("scale") and transform.HasField("scale") and p.scale != transform.scale:
            raise self.error(
                f"window_data_param.scale is {p.scale:g} and transform_param.scale {transform.scale:g}",
                fix="keep the one in transform_param",
            )
        if transform.mean_file and transform.mean_value:
            raise self.error("mean_file and mean_value are both set", fix="keep one of them")
        if len(transform.mean_value) not in (0, 1, 3):
            raise self.error(f"{len(transform.mean_value)} mean_value for 3 channels", fix="give one, or three")
        self._start()

    def _open(self) -> None:
        p, transform = self.param.window_data_param, self.param.transform_param
        crop = Crop(
            transform.crop_size,
            p.context_pad,
            p.crop_mode == "square",
            transform.mirror,
            self._mean(),
            transform.scale if transform.HasField("scale") else p.scale,
        )
        batches = WindowBatches(
            WindowList(p.source, p.fg_threshold, p.bg_threshold, p.root_folder),
            p.batch_size,
            int(np.float32(p.batch_size) * np.float32(p.fg_fraction)),
            crop,
            cache=p.cache_images,
            dtype=self.dtype,
            rank=self.context.solver_rank if self.phase == TRAIN else 0,
            seed=self._seed,
        )
        self._shape = batches.shape
        self._prefetch(batches)

    def infer_shapes(self, bottom_shapes: Shapes) -> Shapes:
        return [self._shape, (self._shape[0],)]

    def _mean(self) -> np.ndarray | float:
        """Return the mean to subtract: shape (3, 1, 1) or (3, crop_size, crop_size), or 0. Raises DataError."""
        transform = self.param.transform_param
        if transform.mean_value:
            return np.broadcast_to(np.array(transform.mean_value, np.float32)[:, None, None], (3, 1, 1))
        if not transform.mean_file:
            return 0.0
        mean, size = load_mean(transform.mean_file), transform.crop_size
        offset = (mean.shape[2] - size) // 2  # as in Caffe, the width's offset serves both axes
        if mean.shape[0] != 3 or offset < 0 or mean.shape[1] < offset + size:
            raise DataError(
                f"the mean of shape {mean.shape} has no 3 x {size} x {size} at row and column {offset}",
                where=Where(file=transform.mean_file),
                fix="use a square mean of at least crop_size, or transform_param.mean_value",
            )
        return mean[:, offset : offset + size, offset : offset + size]
