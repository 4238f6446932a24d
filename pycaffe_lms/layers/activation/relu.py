"""ReLU and ReLU6, plain and leaky."""

from __future__ import annotations

from collections.abc import Sequence

from ..base import Declaration, InPlace, Needs, Ops, Pass, Role, Shapes
from ..mixins import Masked
from ..registry import register_layer


class _Rectifier(Masked):
    """What ReLU and ReLU6 share. `setup` of a subclass sets `slope` and `mask_planes`."""

    slope: float  # for negative values
    declares = Declaration(in_place=InPlace.ALLOWED, splits_over_batch=True, layout_agnostic=True)

    def infer_shapes(self, bottom_shapes: Shapes) -> Shapes:
        return [tuple(bottom_shapes[0])]

    def declare(self, bottom_shapes: Shapes, top_shapes: Shapes, ops: Ops) -> None:
        self.declare_bits(top_shapes[0])

    def backward_needs(self, propagate_down: Sequence[bool], param_propagate: Sequence[bool]) -> Needs:
        if not propagate_down[0] or self.context.saves_bits:
            return Needs()
        return Needs(tops=frozenset({0})) if self.slope >= 0 else Needs(bottoms=frozenset({0}))


@register_layer("ReLU")
class ReLULayer(_Rectifier):
    """y = max(x, 0) + negative_slope * min(x, 0) (relu_param.negative_slope, default 0).

    Bottom 0: x, any shape. Top 0: y, the shape of x; may be in place.
    Backward reads the top if negative_slope >= 0 (y > 0 exactly where x > 0), else the bottom; or saved bits, if the
    net finds that no other layer's backward reads that value.
    Source: BVLC/caffe, src/caffe/layers/relu_layer.cpp.
    """

    def setup(self, bottom_shapes: Shapes) -> None:
        self.slope = self.param.relu_param.negative_slope
        self.mask_planes = 2 if self.slope else 1

    @property
    def role(self) -> Role | None:
        return Role.RECTIFY if self.slope == 0 else None

    def forward(self, io: Pass) -> None:
        bits = io.scratch.get("bits")
        if bits is None:
            io.ops.relu.forward(io.bottom[0], io.top[0], self.slope)
        else:
            io.ops.relu_bits.forward(io.bottom[0], io.top[0], bits, self.slope)

    def backward(self, io: Pass) -> None:
        if io.bottom_diff[0] is None:
            return
        if self.context.saves_bits:
            io.ops.bits.backward(io.scratch["bits"], io.top_diff[0], io.bottom_diff[0], self.slope)
        else:
            value = io.top[0] if self.slope >= 0 else io.bottom[0]
            io.ops.relu.backward(value, io.top_diff[0], io.bottom_diff[0], self.slope)


@register_layer("ReLU6")
class ReLU6Layer(_Rectifier):
    """y = min(max(x, 0), 6) + negative_slope * min(x, 0) (relu6_param or relu_param; default 0).

    Bottom 0: x, any shape. Top 0: y, the shape of x; may be in place.
    Backward reads the top if negative_slope >= 0 (0 < y < 6 exactly where 0 < x < 6), else the bottom; or saved bits,
    if the net finds that no other layer's backward reads that value.
    Raises: LayerParamError if the two messages give different slopes.
    Source: the ReLU6 layer of MobileNetV2 forks, src/caffe/layers/relu6_layer.cpp; relu6_param as in chinakook's.
    """

    def setup(self, bottom_shapes: Shapes) -> None:
        given = [getattr(self.param, name) for name in ("relu6_param", "relu_param") if self.param.HasField(name)]
        slopes = [message.negative_slope for message in given if message.HasField("negative_slope")]
        if len(set(slopes)) > 1:
            raise self.error(
                f"relu6_param has negative_slope {slopes[0]:g}, but relu_param has {slopes[1]:g}",
                fix="keep one of the two",
            )
        self.slope = slopes[0] if slopes else 0.0
        self.mask_planes = 2 if self.slope else 1

    def forward(self, io: Pass) -> None:
        bits = io.scratch.get("bits")
        if bits is None:
            io.ops.relu6.forward(io.bottom[0], io.top[0], self.slope)
        else:
            io.ops.relu6_bits.forward(io.bottom[0], io.top[0], bits, self.slope)

    def backward(self, io: Pass) -> None:
        if io.bottom_diff[0] is None:
            return
        if self.context.saves_bits:
            io.ops.bits.backward(io.scratch["bits"], io.top_diff[0], io.bottom_diff[0], self.slope)
        else:
            value = io.top[0] if self.slope >= 0 else io.bottom[0]
            io.ops.relu6.backward(value, io.top_diff[0], io.bottom_diff[0], self.slope)
