"""PReLU: ReLU with learned slopes."""

from __future__ import annotations

from collections.abc import Sequence

from ...ops.axes import around_axis
from ...ops.sum_parts import reduction_parts
from ..base import Declaration, InPlace, Layer, Lives, Needs, Ops, Pass, Shapes, count
from ..registry import register_layer


@register_layer("PReLU")
class PReLULayer(Layer):
    """y = max(x, 0) + a_c * min(x, 0), with a learned slope a_c for each channel c, or one for all (channel_shared).

    Bottom 0: x, two axes or more, channels in axis 1. Top 0: y, the shape of x; may be in place.
    Parameter 0: a, of shape (C), or () if shared; filled by prelu_param.filler, by default with 0.25.
    Backward reads x, and for the gradient of x also a: da_c (+)= sum of dy * x where x <= 0; dx = dy * (1 where x > 0,
    a_c where x <= 0).
    Raises: ShapeError for fewer than two axes, or if the number of channels is not that of set-up.
    Source: BVLC/caffe, src/caffe/layers/prelu_layer.cpp.
    """

    declares = Declaration(in_place=InPlace.ALLOWED, splits_over_batch=True)

    def setup(self, bottom_shapes: Shapes) -> None:
        options, shape = self.param.prelu_param, tuple(bottom_shapes[0])
        self.shared = options.channel_shared
        self.check_axes(shape, 2)
        self.add_param(() if self.shared else shape[1:2], self.filler_or(options, "filler", 0.25))

    def infer_shapes(self, bottom_shapes: Shapes) -> Shapes:
        shape = tuple(bottom_shapes[0])
        self.check_axes(shape, 2)
        if not self.shared and shape[1:2] != self.params[0].shape:
            raise self.shape_error(
                f"has {shape[1]} channels, but the layer has {self.params[0].shape[0]} slopes",
                bottom=0,
                fix="keep the number of channels, set prelu_param.channel_shared, or build the net anew",
            )
        return [shape]

    def takes_channels_last(self, bottom_shapes: Shapes, top_shapes: Shapes, ops: Ops) -> bool:
        return len(bottom_shapes[0]) >= 4

    def takes_half(self, bottom_shapes: Shapes, top_shapes: Shapes, ops: Ops) -> bool:
        return True

    def declare(self, bottom_shapes: Shapes, top_shapes: Shapes, ops: Ops) -> None:
        shape = tuple(bottom_shapes[0])
        self.size = (shape[0], 1, count(shape, 1)) if self.shared else around_axis(shape, 1, self.context.channels_last)
        dim = self.size[1]
        self.scratch("work", (dim * reduction_parts(*self.size),), lives=Lives.CALL, forward=False)

    def backward_needs(self, propagate_down: Sequence[bool], param_propagate: Sequence[bool]) -> Needs:
        bottoms = frozenset({0}) if propagate_down[0] or param_propagate[0] else frozenset()
        return Needs(bottoms=bottoms, params=frozenset({0}) if propagate_down[0] else frozenset())

    def forward(self, io: Pass) -> None:
        io.ops.prelu.forward(io.bottom[0], io.param[0], io.top[0], *self.size)

    def backward(self, io: Pass) -> None:
        dx, da = io.bottom_diff[0], io.param_diff[0]
        if dx is not None or da is not None:
            sums = da, io.accumulate[0], io.scratch["work"]
            io.ops.prelu.backward(io.bottom[0], io.param[0], io.top_diff[0], dx, *sums, *self.size)
