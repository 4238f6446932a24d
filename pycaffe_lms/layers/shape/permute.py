"""Permute, ShuffleChannel, Reorg and Reverse: the same elements in another order."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from ...ops.axes import around_axis, inverse, merge_axes
from ..base import AnyArray, Declaration, Layer, Pass, Reads, Runs, Shapes
from ..registry import register_layer


class _Transposed(Layer):
    """A layer whose top is a transposition of its bottom; subclasses set it with `_transpose`."""

    declares = Declaration(backward_reads=Reads.NONE, any_precision=True)

    def _transpose(self, shape: Sequence[int], order: Sequence[int]) -> None:
        """Make axis i of the top axis order[i] of the bottom, which is seen as an array of `shape`."""
        self.view, self.order = merge_axes(tuple(shape), tuple(order))
        self.back = tuple(self.view[axis] for axis in self.order), inverse(self.order)

    def forward(self, io: Pass) -> None:
        io.ops.transpose(io.bottom[0], io.top[0], self.view, self.order)

    def gradient(self, io: Pass, dy: AnyArray, dx: AnyArray) -> None:
        io.ops.transpose(dy, dx, *self.back)


@register_layer("Permute")
class PermuteLayer(_Transposed):
    """Axis i of the top is axis permute_param.order[i] of the bottom; axes that are not named follow in their order.

    Bottom 0: x, any shape. Top 0: x reordered; the same memory where the order changes nothing.
    Backward reads nothing.
    Raises: LayerParamError for an axis that is out of range or named twice.
    Source: weiliu89/caffe (SSD), src/caffe/layers/permute_layer.cpp.
    """

    def setup(self, bottom_shapes: Shapes) -> None:
        named, ndim = list(self.param.permute_param.order), len(bottom_shapes[0])
        for axis in named:
            self.canonical_axis(axis, ndim, what="order")
            if named.count(axis) > 1:
                raise self.error(f"order names axis {axis} twice", fix="name every axis once at most")
        self.axes = (*named, *(axis for axis in range(ndim) if axis not in named))
        self.still = self.axes == tuple(range(ndim))
        if self.still:
            self.declares = replace(self.declares, runs_on=Runs.NOWHERE)

    def infer_shapes(self, bottom_shapes: Shapes) -> Shapes:
        shape = tuple(bottom_shapes[0])
        self.check_kept("axes", len(shape), len(self.axes))
        self._transpose(shape, self.axes)
        return [tuple(shape[axis] for axis in self.axes)]

    def shares(self) -> dict[int, int]:
        return {0: 0} if self.still else {}


@register_layer("ShuffleChannel")
class ShuffleChannelLayer(_Transposed):
    """Channel g * k + j goes to channel j * group + g, where k = C / group (shuffle_channel_param.group, default 1).

    Bottom 0: x, (N, C, ...). Top 0: the shape of x. Backward reads nothing.
    Raises: LayerParamError for a group of 0; ShapeError for fewer than 2 axes, or channels that group does not divide.
    Source: farmingyard/ShuffleNet, shuffle_channel_layer.cpp.
    """

    declares = replace(_Transposed.declares, splits_over_batch=True)

    def setup(self, bottom_shapes: Shapes) -> None:
        self.group = self.param.shuffle_channel_param.group
        if self.group < 1:
            raise self.error("group is 0", fix="set shuffle_channel_param.group to at least 1")

    def infer_shapes(self, bottom_shapes: Shapes) -> Shapes:
        shape = tuple(bottom_shapes[0])
        self.check_axes(shape, 2)
        n, c = shape[:2]
        if c % self.group:
            raise self.shape_error(
                f"has {c} channels, which cannot be split into {self.group} groups",
                bottom=0,
                fix="set shuffle_channel_param.group to a divisor",
            )
        self._transpose((n, self.group, c // self.group, *shape[2:]), (0, 2, 1, *range(3, len(shape) + 1)))
        return [shape]


@register_layer("Reorg")
class ReorgLayer(_Transposed):
    """(N, C, H, W) -> (N, C s^2, H / s, W / s) in darknet's order (s: reorg_param.stride); with `reverse` the inverse.

    x's memory read as (N, C / s^2, H, s, W, s) with axes (0, 3, 5, 1, 2, 4): what YOLOv2's weights were trained with.
    So it is a space-to-depth of that view, not of x.
    Bottom 0: x, 4 axes. Top 0: as above; with reverse: (N, C / s^2, H s, W s). Backward reads nothing.
    Raises: LayerParamError without a stride; ShapeError where sizes do not divide.
    Source: gklz1982/caffe-yolov2, src/caffe/layers/reorg_layer.cpp (its backward is not the inverse; ours is).
    """

    def setup(self, bottom_shapes: Shapes) -> None:
        self.stride = self.param.reorg_param.stride
        if self.stride < 1:
            raise self.error("stride is not given, or 0", fix="add reorg_param { stride: 2 }")

    def infer_shapes(self, bottom_shapes: Shapes) -> Shapes:
        shape, s = tuple(bottom_shapes[0]), self.stride
        reverse = self.param.reorg_param.reverse
        if len(shape) != 4 or shape[1] % (s * s) or (not reverse and (shape[2] % s or shape[3] % s)):
            raise self.shape_error(
                f"has shape {shape}; needed: 4 axes, channels that are a multiple of {s * s}"
                + ("" if reverse else f", height and width that are multiples of {s}"),
                bottom=0,
                fix="change the stride or the bottom",
            )
        n, c, h, w = shape
        if reverse:
            self._transpose((n, s, s, c // (s * s), h, w), (0, 3, 4, 1, 5, 2))
            return [(n, c // (s * s), h * s, w * s)]
        self._transpose((n, c // (s * s), h, s, w, s), (0, 3, 5, 1, 2, 4))
        return [(n, c * s * s, h // s, w // s)]


@register_layer("Reverse")
class ReverseLayer(Layer):
    """y has the elements of x in the opposite order along reverse_param.axis (default 0; negative: from the end).

    Bottom 0: x, any shape with axes. Top 0: the shape of x. Backward reads nothing.
    Raises: LayerParamError for an axis out of range.
    Source: ChWick/caffe, src/caffe/layers/reverse_layer.cpp.
    """

    declares = Declaration(backward_reads=Reads.NONE)

    def infer_shapes(self, bottom_shapes: Shapes) -> Shapes:
        shape = tuple(bottom_shapes[0])
        self.check_axes(shape, 1)
        self.grid = around_axis(shape, self.canonical_axis(self.param.reverse_param.axis, len(shape)))
        return [shape]

    def forward(self, io: Pass) -> None:
        io.ops.reverse(io.bottom[0], io.top[0], self.grid)

    def gradient(self, io: Pass, dy: AnyArray, dx: AnyArray) -> None:
        io.ops.reverse(dy, dx, self.grid)
