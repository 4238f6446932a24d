"""SigmoidCrossEntropyLoss."""

from __future__ import annotations

from collections.abc import Sequence

from ..base import Needs, Ops, Pass, Shapes, count
from ..registry import register_layer
from .base import BATCH_SIZE, LossLayer


@register_layer("SigmoidCrossEntropyLoss")
class SigmoidCrossEntropyLossLayer(LossLayer):
    """loss = -(1 / Z) * sum of (t log(p) + (1 - t) log(1 - p)), p = sigmoid(x), element by element.

    Z = max(1, ...) of: BATCH_SIZE (default) items; FULL elements; VALID elements that are not ignored; NONE 1. The
    older loss_param.normalize counts where normalization is not set: true VALID, false BATCH_SIZE. A target whose
    integer part is ignore_label is ignored: with ignore_label 0 that drops 0.4 and -0.5 too.
    Bottom 0: x. Bottom 1: the targets t, as many, usually 0 to 1, no gradient. Top 0: the loss, no axes.
    Backward reads both bottoms: dx = (p - t) * loss weight / Z, 0 at ignored targets.
    Raises: ShapeError for batches of different sizes or other numbers of elements.
    Source: BVLC/caffe, src/caffe/layers/sigmoid_cross_entropy_loss_layer.cpp (its CPU half on every device).
    """

    def setup(self, bottom_shapes: Shapes) -> None:
        self.read_normalization(BATCH_SIZE)

    def infer_shapes(self, bottom_shapes: Shapes) -> Shapes:
        items = self.check_batch(bottom_shapes)
        x, t = (tuple(shape) for shape in bottom_shapes)
        if count(x) != count(t):
            raise self.shape_error(
                f'has shape {t}: {count(t)} targets, but "{self.param.bottom[0]}" of shape {x} has {count(x)} elements',
                bottom=1,
                fix="give one target for each element",
            )
        self.size = items, count(x, 1)
        return [()]

    def declare(self, bottom_shapes: Shapes, top_shapes: Shapes, ops: Ops) -> None:
        self.loss_scratch(norm=True)

    def backward_needs(self, propagate_down: Sequence[bool], param_propagate: Sequence[bool]) -> Needs:
        return Needs(bottoms=frozenset({0, 1}) if propagate_down[0] else frozenset())

    def forward(self, io: Pass) -> None:
        arrays = (*io.bottom, io.top[0], io.scratch["norm"], io.scratch["work"])
        io.ops.sigmoid_loss.forward(*arrays, self.has_ignore, self.ignore, self.normalizer(*self.size))

    def backward(self, io: Pass) -> None:
        if io.bottom_diff[0] is not None:
            arrays = (*io.bottom, io.top_diff[0], io.scratch["norm"], io.bottom_diff[0])
            io.ops.sigmoid_loss.backward(*arrays, self.has_ignore, self.ignore)
