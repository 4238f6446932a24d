"""Accuracy."""

from __future__ import annotations

import numpy as np

from ...ops.records import LabelGrid
from ..base import Declaration, Layer, Lives, Ops, Pass, Reads, Shapes, between, exactly
from ..registry import register_layer
from .base import Labels, class_grid


@register_layer("Accuracy")
class AccuracyLayer(Layer):
    """Share of the positions whose label is right: fewer than top_k other classes have a score as high as it or higher.

    So a tie counts against the label, and a label whose score is NaN counts as right, as in Caffe.
    Bottom 0: scores, classes along accuracy_param.axis (default 1). Bottom 1: labels, one for each position.
    Top 0: the accuracy, no axes (0 where no label counts). Top 1, if given: (C), each class alone (0 without samples).
    Labels equal to ignore_label do not count; a label outside 0..C-1 makes the accuracy NaN. No backward.
    Raises: ShapeError when the labels do not fit the scores; LayerParamError for an axis or a top_k out of range.
    Source: BVLC/caffe, src/caffe/layers/accuracy_layer.cpp.
    """

    declares = Declaration(bottoms=exactly(2), tops=between(1, 2), no_backward=None, backward_reads=Reads.NONE)

    def setup(self, bottom_shapes: Shapes) -> None:
        accuracy = self.param.accuracy_param
        self.top_k = accuracy.top_k
        self.has_ignore, self.ignore = accuracy.HasField("ignore_label"), accuracy.ignore_label

    def infer_shapes(self, bottom_shapes: Shapes) -> Shapes:
        self.grid = class_grid(self, bottom_shapes, self.param.accuracy_param.axis)
        classes = self.grid.channels
        self._class_labels = Labels(1, classes, self.ignore if self.has_ignore else None)
        if self.top_k > classes:
            raise self.error(
                f"top_k is {self.top_k}, but there are {classes} classes", fix="lower accuracy_param.top_k"
            )
        return [(), (classes,)][: len(self.param.top)]

    def declare(self, bottom_shapes: Shapes, top_shapes: Shapes, ops: Ops) -> None:
        self.scratch("counts", (3 + 2 * self.grid.channels,), dtype=np.int32, lives=Lives.CALL, backward=False)

    def forward(self, io: Pass) -> None:
        per_class = io.top[1] if len(io.top) > 1 else None
        arrays = (io.bottom[0], io.bottom[1], io.top[0], per_class, io.scratch["counts"])
        io.ops.accuracy.forward(*arrays, self.top_k, LabelGrid(*self.grid, self.has_ignore, self.ignore))
