"""CenterLoss: the distance of features to the learned centres of their classes."""

from __future__ import annotations

from dataclasses import replace

from ..base import Lives, Ops, Pass, Shapes, count
from ..registry import register_layer
from .base import Labels, LossLayer


@register_layer("CenterLoss")
class CenterLossLayer(LossLayer):
    """loss = sum of |x_i - C[label_i]|^2 / (2 M), M = items of the batch.

    Bottom 0: features x, (M, ...) of K elements each. Bottom 1: labels, M numbers from 0 to num_output - 1. Top 0: the
    loss, no axes. Parameters: centres C (num_output, K), first center_filler.
    Backward reads x, labels and C: dx_i = (x_i - C[label_i]) * loss weight / M. What a centre gets as its gradient is
    not that of the loss, but the sum of C - x_i over the items of its class, divided by 1 + their number, whatever the
    loss weight; lr_mult is how far centres move. It is added to gradients from elsewhere.
    A label out of range makes the loss NaN, and moves no centre.
    Raises: LayerParamError for num_output 0 or another axis than 1; ShapeError for other than one label an item.
    Source: ydwen/caffe-face, src/caffe/layers/center_loss_layer.cpp.
    """

    declares = replace(LossLayer.declares, full_precision=frozenset({1}))

    def setup(self, bottom_shapes: Shapes) -> None:
        p = self.param.center_loss_param
        if not p.num_output:
            raise self.error(
                "num_output is 0", fix="write center_loss_param { num_output: ... }, the number of classes"
            )
        if p.axis != 1:
            raise self.error(f"axis is {p.axis}", fix="delete it: features begin at axis 1")
        self.check_axes(bottom_shapes[0], 1)
        self.classes, self.columns = p.num_output, count(bottom_shapes[0], 1)
        self.add_param((self.classes, self.columns), p.center_filler)

    def infer_shapes(self, bottom_shapes: Shapes) -> Shapes:
        self.items, labels = self.check_batch(bottom_shapes), tuple(bottom_shapes[1])
        if count(labels, 1) != 1:
            raise self.shape_error(f"has shape {labels}, but an item has one label", bottom=1, fix="give M labels")
        columns = count(bottom_shapes[0], 1)
        if columns != self.columns:
            raise self.shape_error(
                f"has {columns} elements per item, but a centre has {self.columns}", bottom=0, fix="build the net anew"
            )
        self._class_labels = Labels(1, self.classes)
        return [()]

    def declare(self, bottom_shapes: Shapes, top_shapes: Shapes, ops: Ops) -> None:
        self.loss_scratch()
        self.scratch("centers", (self.items, self.columns), lives=Lives.CALL)
        self.scratch("moves", (self.items, self.columns), lives=Lives.CALL, forward=False)

    def _look_up(self, io: Pass) -> None:
        """Write the centre of every item to the scratch `centers`."""
        io.ops.embed.forward(
            io.bottom[1], io.param[0], None, io.scratch["centers"], self.items, self.columns, self.classes
        )

    def forward(self, io: Pass) -> None:
        self._look_up(io)
        scale = 0.5 / max(1, self.items)
        io.ops.euclidean_loss.forward(io.bottom[0], io.scratch["centers"], io.top[0], io.scratch["work"], scale)

    def backward(self, io: Pass) -> None:
        dx, dcenters = io.bottom_diff[0], io.param_diff[0]
        centers, moves, sizes = io.scratch["centers"], io.scratch["moves"], (self.items, self.columns)
        self._look_up(io)
        if dx is not None and io.top_diff[0] is None:
            io.ops.fill(dx, 0)
        elif dx is not None:
            io.ops.euclidean_loss.backward(io.bottom[0], centers, io.top_diff[0], dx, None, 1 / max(1, self.items))
        if dcenters is not None:
            io.ops.center_moves(io.bottom[1], io.bottom[0], centers, moves, *sizes)
            io.ops.embed.backward(io.bottom[1], moves, dcenters, io.accumulate[0], *sizes, self.classes)
