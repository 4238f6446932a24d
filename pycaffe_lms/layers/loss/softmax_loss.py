"""SoftmaxWithLoss: the multinomial logistic loss of a softmax."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ...arrays import AnyArray
from ...ops.label_grid import LabelGrid
from ...proto import caffe_pb2
from ..base import Declaration, Layer, Lives, Needs, Ops, Pass, Shapes, between, exactly
from ..registry import register_layer
from .base import Labels, class_sizes

_FULL, _VALID, _BATCH_SIZE = (
    caffe_pb2.LossParameter.NormalizationMode.Value(name) for name in ("FULL", "VALID", "BATCH_SIZE")
)


@register_layer("SoftmaxWithLoss")
class SoftmaxWithLossLayer(Layer):
    """loss = -(1 / Z) * sum of log(max(p[label], FLT_MIN)), p = softmax of bottom 0 along softmax_param.axis.

    Z = max(1, ...) of: VALID (default) labels other than ignore_label; FULL positions; BATCH_SIZE positions before the
    class axis; NONE 1. The older loss_param.normalize counts where normalization is not set: true VALID, false
    BATCH_SIZE. Labels are cut to integers; one outside 0..C-1 makes the loss NaN, and its position's gradient too.
    Bottom 0: scores. Bottom 1: labels, one for each position, no gradient.
    Top 0: the loss, no axes. Top 1, if given: p, the shape of bottom 0; it passes no gradient on.
    Backward reads the labels and p: dx = (p - onehot(label)) * loss weight / Z, 0 at ignored labels.
    Raises: ShapeError when the labels do not fit the scores; LayerParamError for an axis out of range.
    Source: BVLC/caffe, src/caffe/layers/softmax_loss_layer.cpp.
    """

    declares = Declaration(
        bottoms=exactly(2),
        tops=between(1, 2),
        is_loss=True,
        no_backward=frozenset({1}),
        ignores_force_backward=frozenset({1}),
    )

    def setup(self, bottom_shapes: Shapes) -> None:
        loss = self.param.loss_param
        self.has_ignore, self.ignore = loss.HasField("ignore_label"), loss.ignore_label
        self.mode: int = loss.normalization
        if loss.HasField("normalize") and not loss.HasField("normalization"):
            self.mode = _VALID if loss.normalize else _BATCH_SIZE

    def infer_shapes(self, bottom_shapes: Shapes) -> Shapes:
        scores, labels = tuple(bottom_shapes[0]), tuple(bottom_shapes[1])
        if scores[:1] != labels[:1]:
            raise self.shape_error(
                f'has shape {labels}, but "{self.param.bottom[0]}" has {scores}: the first axes differ',
                bottom=1,
                fix="give scores and labels of the same batch",
            )
        self.size = class_sizes(self, bottom_shapes, self.param.softmax_param.axis)
        self._class_labels = Labels(1, self.size[1], self.ignore if self.has_ignore else None)
        return [(), scores][: max(1, len(self.param.top))]

    def declare(self, bottom_shapes: Shapes, top_shapes: Shapes, ops: Ops) -> None:
        if len(top_shapes) == 1:
            self.scratch("prob", bottom_shapes[0], lives=Lives.SAVED if self.context.needs_backward else Lives.CALL)
        saved = Lives.SAVED if self.context.needs_backward else Lives.CALL
        self.scratch("norm", (1,), dtype=np.float64, lives=saved)
        self.scratch("work", (512,), dtype=np.float64, lives=Lives.CALL, backward=False)

    def backward_needs(self, propagate_down: Sequence[bool], param_propagate: Sequence[bool]) -> Needs:
        if not propagate_down[0]:
            return Needs()
        return Needs(bottoms=frozenset({1}), tops=frozenset({1}) if len(self.param.top) > 1 else frozenset())

    def _normalizer(self) -> int:
        """Z before its floor of 1; -1: the number of labels that are not ignored, counted on the device."""
        outer, _, inner = self.size
        if self.mode == _VALID:
            return -1 if self.has_ignore else outer * inner
        return {_FULL: outer * inner, _BATCH_SIZE: outer}.get(self.mode, 1)

    def _prob(self, io: Pass) -> AnyArray:
        return io.top[1] if len(io.top) > 1 else io.scratch["prob"]

    def forward(self, io: Pass) -> None:
        prob = self._prob(io)
        io.ops.softmax.forward(io.bottom[0], prob, *self.size)
        arrays = (prob, io.bottom[1], io.top[0], io.scratch["norm"], io.scratch["work"])
        io.ops.softmax_loss.forward(*arrays, self._normalizer(), LabelGrid(*self.size, self.has_ignore, self.ignore))

    def backward(self, io: Pass) -> None:
        dx = io.bottom_diff[0]
        if dx is None:
            return
        if io.top_diff[0] is None:
            io.ops.fill(dx, 0)
            return
        arrays = (self._prob(io), io.bottom[1], io.top_diff[0], io.scratch["norm"], dx)
        io.ops.softmax_loss.backward(*arrays, LabelGrid(*self.size, self.has_ignore, self.ignore))
