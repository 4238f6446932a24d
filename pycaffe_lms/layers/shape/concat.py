"""Concat."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from ...ops.axes import around_axis
from ..base import Declaration, Layer, Needs, Ops, Pass, Runs, Shapes, at_least
from ..registry import register_layer


@register_layer("Concat")
class ConcatLayer(Layer):
    """y = the bottoms one after the other along concat_param.axis (default 1; older name: concat_dim).

    Bottoms: one or more, equal in all other axes. Top 0: y; with one bottom it is the bottom itself.
    Backward reads nothing. Where every axis before that one, in the order in which memory holds them, has size 1, the
    bottoms are views of y.
    Raises: LayerParamError for a bad axis, or axis and concat_dim together; ShapeError for other axes that differ.
    Source: BVLC/caffe, src/caffe/layers/concat_layer.cpp.
    """

    declares = Declaration(bottoms=at_least(1))

    def setup(self, bottom_shapes: Shapes) -> None:
        concat, ndim = self.param.concat_param, len(bottom_shapes[0])
        if concat.HasField("axis") and concat.HasField("concat_dim"):
            raise self.error("axis and concat_dim are both set", fix="keep axis alone")
        if concat.HasField("concat_dim"):
            if concat.concat_dim >= ndim:
                raise self.error(
                    f"concat_dim {concat.concat_dim} is out of range for a bottom of {ndim} axes",
                    fix=f"use axis: {-ndim} to {ndim - 1}",
                )
            self.axis = concat.concat_dim
        else:
            self.axis = self.canonical_axis(concat.axis, ndim)
        if len(bottom_shapes) == 1:
            self.declares = replace(self.declares, runs_on=Runs.NOWHERE)

    @property
    def splits_over_batch(self) -> bool:
        return self.axis >= 1

    def infer_shapes(self, bottom_shapes: Shapes) -> Shapes:
        first, a = tuple(bottom_shapes[0]), self.axis
        for i, shape in enumerate(bottom_shapes):
            if len(shape) != len(first) or shape[:a] != first[:a] or shape[a + 1 :] != first[a + 1 :]:
                raise self.shape_error(
                    f'has shape {tuple(shape)}, which differs from {first} of "{self.param.bottom[0]}" in another axis '
                    f"than {a}",
                    bottom=i,
                    fix="give bottoms that are equal in all other axes, or change concat_param.axis",
                )
        return [(*first[:a], sum(shape[a] for shape in bottom_shapes), *first[a + 1 :])]

    def takes_channels_last(self, bottom_shapes: Shapes, top_shapes: Shapes, ops: Ops) -> bool:
        return len(bottom_shapes[0]) >= 4

    def takes_half(self, bottom_shapes: Shapes, top_shapes: Shapes, ops: Ops) -> bool:
        return True

    def declare(self, bottom_shapes: Shapes, top_shapes: Shapes, ops: Ops) -> None:
        self.outer, along, inner = around_axis(top_shapes[0], self.axis, self.context.channels_last)
        self.total = along * inner
        self.widths = [shape[self.axis] * inner for shape in bottom_shapes]

    @property
    def view_offsets(self) -> Sequence[int]:
        return self._starts() if self.outer == 1 and len(self.param.bottom) > 1 else ()

    def shares(self) -> dict[int, int]:
        return {0: 0} if len(self.param.bottom) == 1 else {}

    def forward_needs(self) -> Needs:
        return Needs() if self.shares() else super().forward_needs()

    def backward_needs(self, propagate_down: Sequence[bool], param_propagate: Sequence[bool]) -> Needs:
        return Needs()

    def _starts(self) -> list[int]:
        return [sum(self.widths[:i]) for i in range(len(self.widths))]

    def forward(self, io: Pass) -> None:
        for x, width, start in zip(io.bottom, self.widths, self._starts(), strict=True):
            if x is not None:
                io.ops.copy_block_in(x, io.top[0], self.outer, width, self.total, start)

    def backward(self, io: Pass) -> None:
        for dx, width, start in zip(io.bottom_diff, self.widths, self._starts(), strict=True):
            if dx is not None:
                io.ops.copy_block_out(io.top_diff[0], dx, self.outer, width, self.total, start)
