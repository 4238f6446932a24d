"""ReLU, plain and leaky."""

from __future__ import annotations

from .base import InPlace, Layer, Needs, exactly
from .masked import Masked
from .registry import register_layer
from .roles import Role


@register_layer("ReLU")
class ReLULayer(Masked, Layer):
    """y = max(x, 0) + negative_slope * min(x, 0) (relu_param.negative_slope, default 0).

    Bottom 0: x, any shape. Top 0: y, the shape of x; may be in place.
    Backward reads the top while negative_slope >= 0 (y > 0 exactly where x > 0), else the bottom; or saved bits, where
    the net finds that no other layer's backward reads that value.
    Source: BVLC/caffe, src/caffe/layers/relu_layer.cpp.
    """

    bottoms = tops = exactly(1)
    in_place = InPlace.ALLOWED
    order_free = True
    splits_over_batch = True

    def setup(self, bottom_shapes):
        self.slope = self.param.relu_param.negative_slope
        self.mask_planes = 2 if self.slope else 1

    @property
    def role(self):
        return Role.RECTIFY if self.slope == 0 else None

    def infer_shapes(self, bottom_shapes):
        return [tuple(bottom_shapes[0])]

    def declare(self, bottom_shapes, top_shapes, ops):
        self.declare_bits(top_shapes[0])

    def backward_needs(self, propagate_down, param_propagate):
        if not propagate_down[0] or self.masked:
            return Needs()
        return Needs(tops=frozenset({0})) if self.slope >= 0 else Needs(bottoms=frozenset({0}))

    def forward(self, io):
        bits = io.scratch.get("bits")
        if bits is None:
            io.ops.relu_forward(io.bottom[0], io.top[0], self.slope)
        else:
            io.ops.relu_bits_forward(io.bottom[0], io.top[0], bits, self.slope)

    def backward(self, io):
        if io.bottom_diff[0] is None:
            return
        if self.masked:
            io.ops.bits_backward(io.scratch["bits"], io.top_diff[0], io.bottom_diff[0], self.slope)
        else:
            value = io.top[0] if self.slope >= 0 else io.bottom[0]
            io.ops.relu_backward(value, io.top_diff[0], io.bottom_diff[0], self.slope)
