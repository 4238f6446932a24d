"""GELU, and GatedUnit: an activation of one bottom, the gate, times another."""

from __future__ import annotations

from collections.abc import Sequence

from ..base import AnyArray, Declaration, InPlace, Layer, Needs, Pass, Reads, Shapes, between, count
from ..registry import register_layer


@register_layer("GELU")
class GELULayer(Layer):
    """y = x * Phi(x), where Phi is the normal distribution's share below x; with gelu_param.approximate TANH
    y = x / 2 * (1 + tanh(sqrt(2 / pi) * (x + 0.044715 * x^3))).

    Bottom 0: x, any shape. Top 0: y, the shape of x; may be in place.
    Backward reads the bottom: dx = dy * (the slope of y), computed again from x.
    Source: Hendrycks and Gimpel, Gaussian Error Linear Units (2016); ONNX's operator Gelu.
    """

    declares = Declaration(
        in_place=InPlace.ALLOWED, backward_reads=Reads.BOTTOM_DATA, splits_over_batch=True, layout_agnostic=True
    )

    def setup(self, bottom_shapes: Shapes) -> None:
        options = self.param.gelu_param
        self.tanh = options.approximate == options.TANH

    def forward(self, io: Pass) -> None:
        io.ops.gelu.forward(io.bottom[0], io.top[0], self.tanh)

    def gradient(self, io: Pass, dy: AnyArray, dx: AnyArray) -> None:
        io.ops.gelu.backward(io.bottom[0], dy, dx, self.tanh)


@register_layer("GatedUnit")
class GatedUnitLayer(Layer):
    """y = activation(gate) * value, in one pass; gated_unit_param.activation: SILU (the default, as in SwiGLU), GELU
    or GELU_TANH (GEGLU), or SIGMOID.

    Bottoms 0 and 1: gate and value, of one shape. Or bottom 0 alone: its first half along gated_unit_param.axis
    (default -1) is the gate, the second half the value. Top 0: y, the shape of the value.
    Backward reads the bottoms: dvalue = dy * activation(gate), dgate = dy * value * (the activation's slope).
    Raises: ShapeError for two shapes, or an axis that has no two halves; LayerParamError for a bad axis.
    Source: Shazeer, GLU Variants Improve Transformer (2020).
    """

    declares = Declaration(bottoms=between(1, 2), any_precision=True)

    def setup(self, bottom_shapes: Shapes) -> None:
        options = self.param.gated_unit_param
        self.activation: str = options.Activation.Name(options.activation)

    def infer_shapes(self, bottom_shapes: Shapes) -> Shapes:
        shape = tuple(bottom_shapes[0])
        if len(bottom_shapes) == 2:
            self.check_same(bottom_shapes)
            self.axis, self.size = 1, (1, count(shape))
            return [shape]
        self.axis = self.canonical_axis(self.param.gated_unit_param.axis, len(shape))
        if not shape or shape[self.axis] % 2:
            raise self.shape_error(
                f"has shape {shape}: axis {self.axis} cannot be halved",
                bottom=0,
                fix="give it an even size, or give the gate and the value as two bottoms",
            )
        half = shape[self.axis] // 2
        self.size = count(shape, 0, self.axis), half * count(shape, self.axis + 1)
        return [(*shape[: self.axis], half, *shape[self.axis + 1 :])]

    @property
    def splits_over_batch(self) -> bool:
        return self.axis >= 1

    def backward_needs(self, propagate_down: Sequence[bool], param_propagate: Sequence[bool]) -> Needs:
        if len(propagate_down) == 1:
            return Needs(bottoms=frozenset({0}))
        return Needs(bottoms=frozenset({0, 1} if propagate_down[0] else {0}))

    def forward(self, io: Pass) -> None:
        value = io.bottom[1] if len(io.bottom) == 2 else None
        io.ops.gated_unit.forward(io.bottom[0], value, io.top[0], self.activation, *self.size)

    def backward(self, io: Pass) -> None:
        gate, dgate = io.bottom[0], io.bottom_diff[0]
        if len(io.bottom) == 1:
            pair = gate, None, io.top_diff[0], dgate, None
        else:
            value = gate if io.bottom[1] is None else io.bottom[1]  # unread without dgate
            pair = gate, value, io.top_diff[0], dgate, io.bottom_diff[1]
        io.ops.gated_unit.backward(*pair, self.activation, *self.size)
