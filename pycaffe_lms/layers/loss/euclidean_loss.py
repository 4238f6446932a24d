"""EuclideanLoss."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from ..base import Needs, Ops, Pass, Shapes, count
from ..registry import register_layer
from .base import LossLayer


@register_layer("EuclideanLoss")
class EuclideanLossLayer(LossLayer):
    """loss = sum of (a - b)^2 / (2 N), N = items of the batch.

    Bottoms 0 and 1: a and b, N items of equally many elements each. Top 0: the loss, no axes.
    Backward reads both bottoms: da = (a - b) * loss weight / N, db = -da; force_backward may ask for either.
    Raises: ShapeError for batches or items of different sizes.
    Source: BVLC/caffe, src/caffe/layers/euclidean_loss_layer.cpp.
    """

    declares = replace(LossLayer.declares, no_backward=frozenset(), ignores_force_backward=frozenset())

    def infer_shapes(self, bottom_shapes: Shapes) -> Shapes:
        self.items = max(1, self.check_batch(bottom_shapes))
        a, b = (tuple(shape) for shape in bottom_shapes)
        if count(a, 1) != count(b, 1):
            raise self.shape_error(
                f'has shape {b}: {count(b, 1)} elements per item, but "{self.param.bottom[0]}" of shape {a} has '
                f"{count(a, 1)}",
                bottom=1,
                fix="give both bottoms items of the same size",
            )
        return [()]

    def declare(self, bottom_shapes: Shapes, top_shapes: Shapes, ops: Ops) -> None:
        self.loss_scratch()

    def backward_needs(self, propagate_down: Sequence[bool], param_propagate: Sequence[bool]) -> Needs:
        return Needs(bottoms=frozenset({0, 1}) if any(propagate_down) else frozenset())

    def forward(self, io: Pass) -> None:
        io.ops.euclidean_loss.forward(*io.bottom, io.top[0], io.scratch["work"], 0.5 / self.items)

    def backward(self, io: Pass) -> None:
        if any(dx is not None for dx in io.bottom_diff):
            io.ops.euclidean_loss.backward(*io.bottom, io.top_diff[0], *io.bottom_diff, 1 / self.items)
