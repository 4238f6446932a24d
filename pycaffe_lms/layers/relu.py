"""ReLU, plain and leaky."""

from __future__ import annotations

from .base import InPlace, Layer, Needs, exactly
from .registry import register_layer
from .roles import Role


@register_layer("ReLU")
class ReLULayer(Layer):
    """y = max(x, 0) + negative_slope * min(x, 0) (relu_param.negative_slope, default 0).

    Bottom 0: x, any shape. Top 0: y, the shape of x; may be in place.
    Backward reads the top while negative_slope >= 0 (y > 0 exactly where x > 0), else the bottom.
    Source: BVLC/caffe, src/caffe/layers/relu_layer.cpp.
    """

    bottoms = tops = exactly(1)
    in_place = InPlace.ALLOWED
    order_free = True

    def setup(self, bottom_shapes):
        self.slope = self.param.relu_param.negative_slope

    @property
    def role(self):
        return Role.RECTIFY if self.slope == 0 else None

    def infer_shapes(self, bottom_shapes):
        return [tuple(bottom_shapes[0])]

    def backward_needs(self, propagate_down, param_propagate):
        if not propagate_down[0]:
            return Needs()
        return Needs(tops=frozenset({0})) if self.slope >= 0 else Needs(bottoms=frozenset({0}))

    def forward(self, io):
        io.ops.relu_forward(io.bottom[0], io.top[0], self.slope)

    def backward(self, io):
        if io.bottom_diff[0] is not None:
            value = io.top[0] if self.slope >= 0 else io.bottom[0]
            io.ops.relu_backward(value, io.top_diff[0], io.bottom_diff[0], self.slope)
