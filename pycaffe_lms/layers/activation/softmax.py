"""Softmax."""

from __future__ import annotations

from ...ops.axes import around_axis
from ..base import AnyArray, Declaration, InPlace, Layer, Pass, Reads, Rows, Shapes
from ..registry import register_layer


@register_layer("Softmax")
class SoftmaxLayer(Layer):
    """y = exp(x - max(x)) / sum(exp(x - max(x))) along softmax_param.axis (default 1).

    Bottom 0: x. Top 0: y, the shape of x; may be in place. Backward reads the top: dx = y * (dy - sum(dy * y)).
    Raises: LayerParamError for an axis out of range.
    Source: BVLC/caffe, src/caffe/layers/softmax_layer.cpp.
    """

    declares = Declaration(in_place=InPlace.ALLOWED, backward_reads=Reads.TOP_DATA)

    def infer_shapes(self, bottom_shapes: Shapes) -> Shapes:
        shape = tuple(bottom_shapes[0])
        self.axis = axis = self.canonical_axis(self.param.softmax_param.axis, len(shape))
        self.grid = around_axis(shape, axis)
        return [shape]

    @property
    def splits_over_batch(self) -> bool:
        return self.axis >= 1

    def rows_for(self, first: int, end: int, rows: int) -> Rows | None:
        return Rows((first, end), (first, end)) if self.axis != 2 else None

    def forward(self, io: Pass) -> None:
        io.ops.softmax.forward(io.bottom[0], io.top[0], self.grid)

    def gradient(self, io: Pass, dy: AnyArray, dx: AnyArray) -> None:
        io.ops.softmax.backward(io.top[0], dy, dx, self.grid)
