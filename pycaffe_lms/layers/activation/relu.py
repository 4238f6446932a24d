"""ReLU and ReLU6, plain and leaky, and PReLU with learned slopes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from ...ops.axes import around_axis
from ...ops.records import Grid
from ...ops.sum_parts import reduction_parts
from ..base import AnyArray, Declaration, InPlace, Layer, Lives, Needs, Ops, Pass, Reads, Role, Rows, Shapes, count
from ..mixins import Masked
from ..registry import register_layer


class _Rectifier(Masked):
    """What ReLU and ReLU6 share."""

    declares = Declaration(in_place=InPlace.ALLOWED, splits_over_batch=True, layout_agnostic=True)

    def setup(self, bottom_shapes: Shapes) -> None:
        self.slope = self._slope()
        self.mask_planes = 2 if self.slope else 1
        reads = Reads.TOP_DATA if self.slope >= 0 else Reads.BOTTOM_DATA
        self.declares = replace(self.declares, backward_reads=reads)

    def _slope(self) -> float:
        """Return the slope for negative values. Raises LayerParamError."""
        raise AssertionError(f"{type(self).__name__} has no _slope")

    def _operations(self, ops: Ops) -> tuple[Any, Any]:
        """Return the operation, and the one whose forward saves bits."""
        raise AssertionError(f"{type(self).__name__} has no _operations")

    def declare(self, bottom_shapes: Shapes, top_shapes: Shapes, ops: Ops) -> None:
        self.declare_bits(top_shapes[0])
        self.plain, self.saving = self._operations(ops)

    def forward(self, io: Pass) -> None:
        if "bits" in io.scratch:
            self.saving.forward(io.bottom[0], io.top[0], io.scratch["bits"], self.slope)
        else:
            self.plain.forward(io.bottom[0], io.top[0], self.slope)

    def gradient(self, io: Pass, dy: AnyArray, dx: AnyArray) -> None:
        if self.context.saves_bits:
            io.ops.bits.backward(io.scratch["bits"], dy, dx, self.slope)
        else:
            self.plain.backward(io.top[0] if self.slope >= 0 else io.bottom[0], dy, dx, self.slope)


@register_layer("ReLU")
class ReLULayer(_Rectifier):
    """y = max(x, 0) + negative_slope * min(x, 0) (relu_param.negative_slope, default 0).

    Bottom 0: x, any shape. Top 0: y, the shape of x; may be in place.
    Backward reads the top if negative_slope >= 0 (y > 0 exactly where x > 0), else the bottom; or saved bits, if the
    net finds that no other layer's backward reads that value.
    Source: BVLC/caffe, src/caffe/layers/relu_layer.cpp.
    """

    def _slope(self) -> float:
        return self.param.relu_param.negative_slope

    @property
    def role(self) -> Role | None:
        return Role.RECTIFY if self.slope == 0 else None

    def _operations(self, ops: Ops) -> tuple[Any, Any]:
        return ops.relu, ops.relu_bits


@register_layer("ReLU6")
class ReLU6Layer(_Rectifier):
    """y = min(max(x, 0), 6) + negative_slope * min(x, 0) (relu6_param or relu_param; default 0).

    Bottom 0: x, any shape. Top 0: y, the shape of x; may be in place.
    Backward reads the top if negative_slope >= 0 (0 < y < 6 exactly where 0 < x < 6), else the bottom; or saved bits,
    if the net finds that no other layer's backward reads that value.
    Raises: LayerParamError if the two messages give different slopes.
    Source: the ReLU6 layer of MobileNetV2 forks, src/caffe/layers/relu6_layer.cpp; relu6_param as in chinakook's.
    """

    def _slope(self) -> float:
        given = [getattr(self.param, name) for name in ("relu6_param", "relu_param") if self.param.HasField(name)]
        slopes = [message.negative_slope for message in given if message.HasField("negative_slope")]
        if len(set(slopes)) > 1:
            raise self.error(
                f"relu6_param has negative_slope {slopes[0]:g}, but relu_param has {slopes[1]:g}",
                fix="keep one of the two",
            )
        return slopes[0] if slopes else 0.0

    def _operations(self, ops: Ops) -> tuple[Any, Any]:
        return ops.relu6, ops.relu6_bits


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

    declares = Declaration(in_place=InPlace.ALLOWED, splits_over_batch=True, any_precision=True)

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

    def rows_for(self, first: int, end: int, rows: int) -> Rows | None:
        return Rows((first, end), (first, end))

    def takes_channels_last(self, bottom_shapes: Shapes, top_shapes: Shapes, ops: Ops) -> bool:
        return len(bottom_shapes[0]) >= 4

    def declare(self, bottom_shapes: Shapes, top_shapes: Shapes, ops: Ops) -> None:
        shape = tuple(bottom_shapes[0])
        one, last = Grid(shape[0], 1, count(shape, 1)), self.context.channels_last
        self.grid = one if self.shared else around_axis(shape, 1, last)
        self.scratch("work", (self.grid.channels * reduction_parts(*self.grid),), lives=Lives.CALL, forward=False)

    def backward_needs(self, propagate_down: Sequence[bool], param_propagate: Sequence[bool]) -> Needs:
        bottoms = frozenset({0}) if propagate_down[0] or param_propagate[0] else frozenset()
        return Needs(bottoms=bottoms, params=frozenset({0}) if propagate_down[0] else frozenset())

    def forward(self, io: Pass) -> None:
        io.ops.prelu.forward(io.bottom[0], io.param[0], io.top[0], self.grid)

    def backward(self, io: Pass) -> None:
        dx, da = io.bottom_diff[0], io.param_diff[0]
        if dx is not None or da is not None:
            sums = da, io.accumulate[0], io.scratch["work"]
            io.ops.prelu.backward(io.bottom[0], io.param[0], io.top_diff[0], dx, *sums, self.grid)
