"""Parameter."""

from __future__ import annotations

from collections.abc import Sequence

from ..base import Declaration, Layer, Needs, Pass, Shapes, exactly
from ..registry import register_layer


@register_layer("Parameter")
class ParameterLayer(Layer):
    """A learnable blob as a top: y = P.

    Bottoms: none. Top 0: y, of shape parameter_param.shape. Parameters: P, that shape, first 0.
    y's gradient is added to the gradient that P has from other layers. Backward reads nothing.
    Raises: LayerParamError for a negative size.
    Source: BVLC/caffe, include/caffe/layers/parameter_layer.hpp (there gradients overwrite instead of adding up).
    """

    declares = Declaration(bottoms=exactly(0))

    def setup(self, bottom_shapes: Shapes) -> None:
        self.shape = tuple(self.param.parameter_param.shape.dim)
        if any(d < 0 for d in self.shape):
            raise self.error(f"shape has a dim of {min(self.shape)}", fix="write sizes in parameter_param { shape }")
        self.add_param(self.shape, 0)

    def infer_shapes(self, bottom_shapes: Shapes) -> Shapes:
        return [self.shape]

    def backward_needs(self, propagate_down: Sequence[bool], param_propagate: Sequence[bool]) -> Needs:
        return Needs()

    def forward(self, io: Pass) -> None:
        io.ops.copy(io.param[0], io.top[0])

    def backward(self, io: Pass) -> None:
        dy, diff = io.top_diff[0], io.param_diff[0]
        if diff is None:
            return
        if io.accumulate[0]:
            io.ops.sum_arrays([diff, dy], diff)
        else:
            io.ops.copy(dy, diff)
