"""Axpy."""

from __future__ import annotations

from collections.abc import Sequence

from ...ops.sum_parts import reduction_parts
from ..base import Declaration, Layer, Lives, Needs, Ops, Pass, Shapes, count, exactly
from ..registry import register_layer


@register_layer("Axpy")
class AxpyLayer(Layer):
    """top = a * x + y, one factor for each channel of each item.

    Bottom 0: a, (N, C) or (N, C, 1, 1). Bottom 1: x, (N, C, ...). Bottom 2: y, the shape of x. Top 0: the shape of x.
    Backward reads x for the gradient of a, a for that of x, nothing for that of y.
    Raises: ShapeError for shapes other than these.
    Source: hujie-frank/SENet, src/caffe/layers/axpy_layer.cpp.
    """

    declares = Declaration(bottoms=exactly(3), splits_over_batch=True)

    def infer_shapes(self, bottom_shapes: Shapes) -> Shapes:
        a, x, y = (tuple(shape) for shape in bottom_shapes)
        if len(x) < 2 or a[:2] != x[:2] or count(a, 2) != 1:
            raise self.shape_error(
                f'has shape {a}, but "{self.param.bottom[1]}" has {x}',
                bottom=0,
                fix="give one factor per channel: (N, C) or (N, C, 1, 1) for an x of shape (N, C, ...)",
            )
        if x != y:
            raise self.shape_error(
                f'has shape {y}, but "{self.param.bottom[1]}" has {x}', bottom=2, fix="give x and y the same shape"
            )
        self.size = count(x, 0, 2), count(x, 2)
        return [x]

    def declare(self, bottom_shapes: Shapes, top_shapes: Shapes, ops: Ops) -> None:
        rows, dim = self.size
        self.scratch("work", (rows * reduction_parts(1, rows, dim),), lives=Lives.CALL, forward=False)

    def backward_needs(self, propagate_down: Sequence[bool], param_propagate: Sequence[bool]) -> Needs:
        return Needs(bottoms=frozenset(1 - i for i in (0, 1) if propagate_down[i]))

    def forward(self, io: Pass) -> None:
        io.ops.axpy.forward(*io.bottom, io.top[0], *self.size)

    def backward(self, io: Pass) -> None:
        (a, x, _), (da, dx, dy), dtop = io.bottom, io.bottom_diff, io.top_diff[0]
        if da is not None or dx is not None or dy is not None:
            io.ops.axpy.backward(a, x, dtop, da, dx, dy, io.scratch["work"], *self.size)
