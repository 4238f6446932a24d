"""Concat and Slice: blobs joined along an axis, and a blob cut along one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from ...ops.axes import around_axis
from ...proto.caffe_pb2 import ConcatParameter, SliceParameter
from ..base import AnyArray, Declaration, Layer, Ops, Pass, Reads, Rows, Runs, Shape, Shapes, at_least
from ..registry import register_layer


class _AlongAxis(Layer):
    """A layer that copies between one blob, the whole, and pieces that lie one after the other along an axis of it.

    Subclasses call `_read_axis` in `setup` and `_place` in `declare`.
    """

    axis: int

    def _read_axis(self, options: ConcatParameter | SliceParameter, old: str, ndim: int) -> None:
        """Set the axis from `axis` or from `old`, its older name. One piece alone is the whole: nothing runs."""
        if options.HasField("axis") and options.HasField(old):
            raise self.error(f"axis and {old} are both set", fix="keep axis alone")
        if options.HasField(old):
            self.axis = getattr(options, old)
            if self.axis >= ndim:
                raise self.error(
                    f"{old} {self.axis} is out of range for a bottom of {ndim} axes",
                    fix=f"use axis: {-ndim} to {ndim - 1}",
                )
        else:
            self.axis = self.canonical_axis(options.axis, ndim)
        if self.shares():
            self.declares = replace(self.declares, runs_on=Runs.NOWHERE)

    def shares(self) -> dict[int, int]:
        return {0: 0} if len(self.param.bottom) == len(self.param.top) == 1 else {}

    @property
    def splits_over_batch(self) -> bool:
        return self.axis >= 1

    def rows_for(self, first: int, end: int, rows: int) -> Rows | None:
        return Rows((first, end), (first, end)) if self.axis != 2 else None

    def takes_channels_last(self, bottom_shapes: Shapes, top_shapes: Shapes, ops: Ops) -> bool:
        return len(bottom_shapes[0]) >= 4

    def _place(self, whole: Shape, pieces: Shapes) -> None:
        """Set where each piece lies: (rows of the whole, elements of the piece in each, those of a row, first one)."""
        self.outer, along, inner = around_axis(whole, self.axis, self.context.channels_last)
        widths = [shape[self.axis] * inner for shape in pieces]
        self.places = [(self.outer, width, along * inner, sum(widths[:i])) for i, width in enumerate(widths)]

    @property
    def view_offsets(self) -> Sequence[int]:
        return [first for *_, first in self.places] if self.outer == 1 and not self.shares() else ()

    def _join(self, ops: Ops, pieces: Sequence[AnyArray | None], whole: AnyArray) -> None:
        """Copy the pieces into the whole."""
        for piece, place in zip(pieces, self.places, strict=True):
            if piece is not None:
                ops.copy_block_in(piece, whole, *place)

    def _cut(self, ops: Ops, whole: AnyArray, pieces: Sequence[AnyArray | None]) -> None:
        """Copy the whole into the pieces."""
        for piece, place in zip(pieces, self.places, strict=True):
            if piece is not None:
                ops.copy_block_out(whole, piece, *place)


@register_layer("Concat")
class ConcatLayer(_AlongAxis):
    """y = the bottoms one after the other along concat_param.axis (default 1; older name: concat_dim).

    Bottoms: one or more, equal in all other axes. Top 0: y; with one bottom it is the bottom itself.
    Backward reads nothing. Where every axis before that one, in memory order, has size 1, the bottoms are views of y.
    Raises: LayerParamError for a bad axis, or axis and concat_dim together; ShapeError for other axes that differ.
    Source: BVLC/caffe, src/caffe/layers/concat_layer.cpp.
    """

    declares = Declaration(bottoms=at_least(1), backward_reads=Reads.NONE, any_precision=True)

    def setup(self, bottom_shapes: Shapes) -> None:
        self._read_axis(self.param.concat_param, "concat_dim", len(bottom_shapes[0]))

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

    def declare(self, bottom_shapes: Shapes, top_shapes: Shapes, ops: Ops) -> None:
        self._place(top_shapes[0], bottom_shapes)

    def forward(self, io: Pass) -> None:
        self._join(io.ops, io.bottom, io.top[0])

    def backward(self, io: Pass) -> None:
        self._cut(io.ops, io.top_diff[0], io.bottom_diff)


@register_layer("Slice")
class SliceLayer(_AlongAxis):
    """The bottom cut along slice_param.axis (default 1; older name: slice_dim) into as many pieces as there are tops.

    A slice_point is the index at which the next piece begins; without slice_point all pieces are equal.
    Bottom 0: any shape with that axis. Tops: the pieces in order; with one top it is the bottom itself.
    Backward reads nothing; a top without a gradient counts as zeros. Where every axis before that one, in memory order,
    has size 1, the tops are views of the bottom.
    Raises: LayerParamError for a bad axis, axis and slice_dim together, or slice points that are too few or many, not
    rising, or beyond the end; ShapeError where the axis cannot be cut into equal pieces.
    Source: BVLC/caffe, src/caffe/layers/slice_layer.cpp.
    """

    declares = Declaration(tops=at_least(1), backward_reads=Reads.NONE, any_precision=True)

    def setup(self, bottom_shapes: Shapes) -> None:
        n_top = len(self.param.top)
        self._read_axis(self.param.slice_param, "slice_dim", len(bottom_shapes[0]))
        self.points = list(self.param.slice_param.slice_point)
        if self.points and len(self.points) != n_top - 1:
            raise self.error(
                f"has {len(self.points)} slice_point(s), but {n_top} top(s)",
                fix=f"give {n_top - 1} slice_point(s), one before each top but the first, or none for equal pieces",
            )
        if any(b <= a for a, b in zip([0, *self.points], self.points, strict=False)):
            raise self.error(f"slice points {self.points} do not rise from above 0", fix="list them in rising order")

    def infer_shapes(self, bottom_shapes: Shapes) -> Shapes:
        shape, n = tuple(bottom_shapes[0]), len(self.param.top)
        self.check_axes(shape, self.axis + 1)
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

    def declare(self, bottom_shapes: Shapes, top_shapes: Shapes, ops: Ops) -> None:
        self._place(bottom_shapes[0], top_shapes)

    def forward(self, io: Pass) -> None:
        self._cut(io.ops, io.bottom[0], io.top)

    def backward(self, io: Pass) -> None:
        dx = io.bottom_diff[0]
        if dx is None:
            return
        if any(dy is None for dy in io.top_diff):
            io.ops.fill(dx, 0)
        self._join(io.ops, io.top_diff, dx)
