"""Reduction and ArgMax: one number, or the places of the largest, for many values."""

from __future__ import annotations

from collections.abc import Sequence

from ...ops.axes import around_axis
from ...ops.records import Grid
from ...ops.sum_parts import reduction_parts
from ...proto import caffe_pb2
from ..base import AnyArray, Declaration, Layer, Lives, Needs, Ops, Pass, Reads, Shapes, count
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


@register_layer("ArgMax")
class ArgMaxLayer(Layer):
    """The top_k (default 1) largest values of each item, largest first; of equal values the one with the larger index.

    Bottom 0: one axis or more. Top 0 without argmax_param.axis, where the first axis counts the items: indices,
    (N, 1, top_k), or with out_max_val indices and then values, (N, 2, top_k), followed by axes of size 1 up to the
    bottom's number of axes. Top 0 with axis: the bottom's shape with top_k along that axis; indices, or with
    out_max_val values.
    A NaN counts as larger than any number. No backward.
    Raises: LayerParamError for an axis out of range, or top_k below 1 or above the number of values; ShapeError for a
    bottom without axes.
    Source: BVLC/caffe, src/caffe/layers/argmax_layer.cpp.
    """

    declares = Declaration(no_backward=None, backward_reads=Reads.NONE)

    def infer_shapes(self, bottom_shapes: Shapes) -> Shapes:
        shape, options = tuple(bottom_shapes[0]), self.param.argmax_param
        self.check_axes(shape, 1)
        self.k, values = options.top_k, options.out_max_val
        if options.HasField("axis"):
            axis = self.canonical_axis(options.axis, len(shape))
            self.grid = around_axis(shape, axis)
            self.outputs = (not values, values)
            top = (*shape[:axis], self.k, *shape[axis + 1 :])
        else:
            self.grid = Grid(shape[0], count(shape, 1), 1)
            self.outputs = (True, values)
            top = (shape[0], 1 + values, self.k, *(1,) * (len(shape) - 3))
        most = self.grid.channels
        if not 1 <= self.k <= most:
            raise self.error(
                f"top_k is {self.k}, but there are {most} values to choose from",
                fix=f"set argmax_param.top_k to 1..{most}" if most else "give a bottom with values",
            )
        return [top]

    def forward(self, io: Pass) -> None:
        io.ops.argmax.forward(io.bottom[0], io.top[0], *self.outputs, self.k, self.grid)
