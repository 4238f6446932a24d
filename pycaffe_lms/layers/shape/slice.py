"""Slice."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from ...ops.axes import around_axis
from ..base import Declaration, Layer, Needs, Ops, Pass, Runs, Shapes, at_least
from ..registry import register_layer


@register_layer("Slice")
class SliceLayer(Layer):
    """The bottom cut along slice_param.axis (default 1; older name: slice_dim) into as many pieces as there are tops.

    The cuts lie before each slice_point; without slice_point all pieces are equal.
    Bottom 0: any shape with that axis. Tops: the pieces in order; with one top it is the bottom itself.
    Backward reads nothing; a top without a gradient counts as zeros. Where every axis before that one, in the order in
    which memory holds them, has size 1, the tops are views of the bottom.
    Raises: LayerParamError for a bad axis, axis and slice_dim together, or slice points that are too few or many, not
    rising, or beyond the end; ShapeError where the axis cannot be cut into equal pieces.
    Source: BVLC/caffe, src/caffe/layers/slice_layer.cpp.
    """

    declares = Declaration(tops=at_least(1))

    def setup(self, bottom_shapes: Shapes) -> None:
        options, ndim, n_top = self.param.slice_param, len(bottom_shapes[0]), len(self.param.top)
        if options.HasField("axis") and options.HasField("slice_dim"):
            raise self.error("axis and slice_dim are both set", fix="keep axis alone")
        if options.HasField("slice_dim"):
            if options.slice_dim >= ndim:
                raise self.error(
                    f"slice_dim {options.slice_dim} is out of range for a bottom of {ndim} axes",
                    fix=f"use axis: {-ndim} to {ndim - 1}",
                )
            self.axis = options.slice_dim
        else:
            self.axis = self.canonical_axis(options.axis, ndim)
        self.points = list(options.slice_point)
        if self.points and len(self.points) != n_top - 1:
            raise self.error(
                f"has {len(self.points)} slice_point(s), but {n_top} top(s)",
                fix=f"give {n_top - 1} slice_point(s), one before each top but the first, or none for equal pieces",
            )
        if any(b <= a for a, b in zip([0, *self.points], self.points, strict=False)):
            raise self.error(f"slice points {self.points} do not rise from above 0", fix="list them in rising order")
        if n_top == 1:
            self.declares = replace(self.declares, runs_on=Runs.NOWHERE)

    @property
    def splits_over_batch(self) -> bool:
        return self.axis >= 1

    def infer_shapes(self, bottom_shapes: Shapes) -> Shapes:
        shape, n = tuple(bottom_shapes[0]), len(self.param.top)
        if self.axis >= len(shape):
            raise self.shape_error(
                f"has shape {shape}, but is cut along axis {self.axis}",
                bottom=0,
                fix="keep the number of axes",
            )
        size = shape[self.axis]
        if self.points and self.points[-1] > size:
            raise self.error(
                f"slice_point {self.points[-1]} is beyond the end of axis {self.axis}, whose size is {size}",
                fix=f"use slice points below {size}",
            )
        if not self.points and size % n:
            raise self.shape_error(
                f"has shape {shape}: axis {self.axis} of size {size} cannot be cut into {n} equal pieces",
                bottom=0,
                fix="give slice_point values, or another number of tops",
            )
        cuts = [0, *self.points, size] if self.points else [size // n * i for i in range(n + 1)]
        return [(*shape[: self.axis], b - a, *shape[self.axis + 1 :]) for a, b in zip(cuts, cuts[1:], strict=False)]

    def takes_channels_last(self, bottom_shapes: Shapes, top_shapes: Shapes, ops: Ops) -> bool:
        return len(bottom_shapes[0]) >= 4

    def takes_half(self, bottom_shapes: Shapes, top_shapes: Shapes, ops: Ops) -> bool:
        return True

    def declare(self, bottom_shapes: Shapes, top_shapes: Shapes, ops: Ops) -> None:
        self.outer, along, inner = around_axis(bottom_shapes[0], self.axis, self.context.channels_last)
        self.total = along * inner
        self.widths = [shape[self.axis] * inner for shape in top_shapes]

    @property
    def view_offsets(self) -> Sequence[int]:
        return self._starts() if self.outer == 1 and len(self.param.top) > 1 else ()

    def shares(self) -> dict[int, int]:
        return {0: 0} if len(self.param.top) == 1 else {}

    def forward_needs(self) -> Needs:
        return Needs() if self.shares() else super().forward_needs()

    def backward_needs(self, propagate_down: Sequence[bool], param_propagate: Sequence[bool]) -> Needs:
        return Needs()

    def _starts(self) -> list[int]:
        return [sum(self.widths[:i]) for i in range(len(self.widths))]

    def forward(self, io: Pass) -> None:
        for y, width, start in zip(io.top, self.widths, self._starts(), strict=True):
            if y is not None:
                io.ops.copy_block_out(io.bottom[0], y, self.outer, width, self.total, start)

    def backward(self, io: Pass) -> None:
        dx = io.bottom_diff[0]
        if dx is None:
            return
        if any(dy is None for dy in io.top_diff):
            io.ops.fill(dx, 0)
        for dy, width, start in zip(io.top_diff, self.widths, self._starts(), strict=True):
            if dy is not None:
                io.ops.copy_block_in(dy, dx, self.outer, width, self.total, start)
