"""Reduction."""

from __future__ import annotations

from collections.abc import Sequence

from ...ops.sum_parts import reduction_parts
from ...proto import caffe_pb2
from ..base import AnyArray, Layer, Lives, Needs, Ops, Pass, Shapes, count
from ..registry import register_layer

_MEAN = caffe_pb2.ReductionParameter.MEAN


@register_layer("Reduction")
class ReductionLayer(Layer):
    """y = coeff * the sum of f(x) over all axes from reduction_param.axis (default 0) on.

    f by operation: SUM x (default), ASUM |x|, SUMSQ x^2, MEAN x / the number of values in a sum.
    Bottom 0: x, one axis or more. Top 0: x's axes before `axis` (none for axis 0). Sums of no values are 0, their mean
    too. Backward reads x for ASUM (the sign of 0 is 0) and SUMSQ, else nothing.
    Raises: LayerParamError for an axis out of range.
    Source: BVLC/caffe, src/caffe/layers/reduction_layer.cpp.
    """

    def infer_shapes(self, bottom_shapes: Shapes) -> Shapes:
        shape, options = tuple(bottom_shapes[0]), self.param.reduction_param
        self.check_axes(shape, 1)
        axis = self.canonical_axis(options.axis, len(shape))
        self.rows, self.dim = count(shape, 0, axis), count(shape, axis)
        mean = options.operation == _MEAN
        self.kind = "SUM" if mean else caffe_pb2.ReductionParameter.ReductionOp.Name(options.operation)
        self.coeff = options.coeff / max(1, self.dim) if mean else options.coeff
        return [shape[:axis]]

    def declare(self, bottom_shapes: Shapes, top_shapes: Shapes, ops: Ops) -> None:
        self.scratch("work", (self.rows * reduction_parts(1, self.rows, self.dim),), lives=Lives.CALL, backward=False)

    def backward_needs(self, propagate_down: Sequence[bool], param_propagate: Sequence[bool]) -> Needs:
        return Needs(bottoms=frozenset({0}) if propagate_down[0] and self.kind != "SUM" else frozenset())

    def forward(self, io: Pass) -> None:
        io.ops.reduction.forward(
            io.bottom[0], io.top[0], self.kind, self.coeff, io.scratch["work"], self.rows, self.dim
        )

    def gradient(self, io: Pass, dy: AnyArray, dx: AnyArray) -> None:
        args = (io.bottom[0], dy, dx, self.kind, self.coeff)
        io.ops.reduction.backward(*args, self.rows, self.dim)
