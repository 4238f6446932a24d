"""BoxAnnotatorOHEM: online hard example mining, which chooses the regions that a detector learns from."""

from __future__ import annotations

import numpy as np

from ...errors import DataError
from ..base import Declaration, Layer, Pass, Reads, Runs, Shapes, exactly
from ..registry import register_layer


@register_layer("BoxAnnotatorOHEM")
class BoxAnnotatorOHEMLayer(Layer):
    """The labels and weights of the roi_per_img regions of each image that have the largest losses; ignore_label and 0
    for all others.

    Bottom 0: regions (R, 5), whose first number is the image's. Bottom 1: their losses, (R). Bottom 2: labels, (R).
    Bottom 3: weights of the loss of boxes, (R, D). All may have two further axes of one size, (R, 5, H, W): then every
    position is a region. Top 0: labels, (R, 1, H, W). Top 1: weights, (R, D, H, W); H and W are 1 without these axes.
    Of equal losses the first region's counts as larger (in the fork that is undefined).
    Runs on the host. No bottom gets a gradient, even where a layer that learns makes it.
    Raises: LayerParamError without roi_per_img; ShapeError for bottoms that do not belong together; DataError for a
    negative or infinite image number.
    Source: daijifeng001/caffe-rfcn (R-FCN), src/caffe/layers/box_annotator_ohem_layer.cpp.
    """

    declares = Declaration(
        bottoms=exactly(4),
        tops=exactly(2),
        runs_on=Runs.HOST,
        no_backward=None,
        skips_backward=frozenset(range(4)),
        ignores_force_backward=frozenset(range(4)),
        backward_reads=Reads.NONE,
        full_precision=frozenset({0, 2}),
    )

    def setup(self, bottom_shapes: Shapes) -> None:
        p = self.param.box_annotator_ohem_param
        self.most, self.ignore = p.roi_per_img, p.ignore_label
        if self.most < 1:
            raise self.error("has no roi_per_img", fix="add box_annotator_ohem_param { roi_per_img: 128 }")

    def infer_shapes(self, bottom_shapes: Shapes) -> Shapes:
        shapes = [(*s, *(1,) * (4 - len(s))) for s in map(tuple, bottom_shapes)]  # as Caffe sees fewer axes
        regions, _, *places = shapes[0]
        for i, width in enumerate((5, 1, 1, shapes[3][1])):
            if shapes[i] != (regions, width, *places):
                raise self.shape_error(
                    f"has shape {tuple(bottom_shapes[i])}", bottom=i, fix=f"give it {(regions, width, *places)}"
                )
        return [(regions, 1, *places), shapes[3]]

    def forward(self, io: Pass) -> None:
        rois, losses, labels, weights = io.bottom
        kept, marked = io.top
        images = rois.reshape(len(rois), 5, *kept.shape[2:])[:, 0].reshape(-1)
        if not (np.isfinite(images) & (images > -1)).all():
            raise self.error(
                "a region has no image: its first number is negative or not finite",
                kind=DataError,
                blob=self.param.bottom[0],
                fix="give regions (image, x1, y1, x2, y2)",
            )
        images, order = np.trunc(images), np.argsort(-losses.reshape(-1), kind="stable")
        chosen = np.zeros(len(images), bool)
        for image in np.unique(images):
            chosen[order[images[order] == image][: self.most]] = True
        np.copyto(kept, np.where(chosen.reshape(kept.shape), labels.reshape(kept.shape), self.ignore))
        np.copyto(marked, np.where(chosen.reshape(kept.shape), weights.reshape(marked.shape), 0))
