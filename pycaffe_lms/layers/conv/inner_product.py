"""InnerProduct: a fully connected layer."""

from __future__ import annotations

from collections.abc import Sequence

from ...arrays import AnyArray
from ...backend.bfloat16 import BFLOAT16
from ...ops.sum_parts import reduction_parts
from ..base import Declaration, Gradients, Layer, Lives, Needs, Ops, Pass, Shapes, count
from ..registry import register_layer

HALF_EFFORT = 0.74  # of a large bfloat16 product, beside a convolution: 693 to 510 TFLOP/s on an H200


@register_layer("InnerProduct")
class InnerProductLayer(Layer):
    """y = x W' + b, or x W + b with `transpose`.

    Bottom 0: x, whose axes from `axis` on are flattened into K values. Top 0: x's axes before `axis`, then num_output.
    Parameters: W (num_output, K), or (K, num_output) with `transpose`; b (num_output) unless bias_term is false.
    Backward reads: bottom 0 for W's gradient, W for the bottom's gradient, nothing for b's.
    With `-math bf16`, products over positions (`axis` 2 or more, as in transformers) are of bfloat16 values, with sums
    in float32.
    Raises: LayerParamError for num_output 0 or an axis out of range; ShapeError if K is 0 or changes after set-up.
    Source: BVLC/caffe, src/caffe/layers/inner_product_layer.cpp.
    """

    declares = Declaration(split_backward=True, prefers_half=True)
    _accumulates_into = frozenset({0})

    def setup(self, bottom_shapes: Shapes) -> None:
        ip = self.param.inner_product_param
        self.n, self.transpose, self.bias = ip.num_output, ip.transpose, ip.bias_term
        if self.n < 1:
            raise self.error("num_output is 0", fix="add inner_product_param { num_output: ... } of at least 1")
        self.axis = self.canonical_axis(ip.axis, len(bottom_shapes[0]))
        self.k = count(bottom_shapes[0], self.axis)
        if self.k < 1:
            raise self.shape_error(
                f"has shape {tuple(bottom_shapes[0])}: no values from axis {self.axis} on",
                bottom=0,
                fix="give a bottom with at least one value per item",
            )
        self.add_param((self.k, self.n) if self.transpose else (self.n, self.k), ip.weight_filler)
        if self.bias:
            self.add_param((self.n,), ip.bias_filler)

    def infer_shapes(self, bottom_shapes: Shapes) -> Shapes:
        shape = tuple(bottom_shapes[0])
        axis = self.canonical_axis(self.param.inner_product_param.axis, len(shape))
        self.check_kept(f"values from axis {axis} on", count(shape, axis), self.k)
        return [(*shape[:axis], self.n)]

    @property
    def splits_over_batch(self) -> bool:
        return self.axis >= 1

    def takes_half(self, bottom_shapes: Shapes, top_shapes: Shapes, ops: Ops) -> bool:
        return self.axis >= 2 and bool(ops.product_half_plan(self.dtype))

    @property
    def splits_over_outputs(self) -> int:
        return 0 if self.transpose else self.n  # transposed, a block of outputs would be columns of W

    def take_outputs(self, n: int) -> None:
        self.n = n

    def declare(self, bottom_shapes: Shapes, top_shapes: Shapes, ops: Ops) -> None:
        self.m = count(top_shapes[0][:-1])
        if self.context.half:
            self.scratch("weights", self.params[0].shape, dtype=BFLOAT16, lives=Lives.CALL, gradients=Gradients.BOTTOMS)
        if self.bias:
            sums = self.n * reduction_parts(self.m, self.n, 1)
            self.scratch("sums", (sums,), lives=Lives.CALL, forward=False, gradients=Gradients.PARAMS)

    def backward_needs(self, propagate_down: Sequence[bool], param_propagate: Sequence[bool]) -> Needs:
        return Needs(
            bottoms=frozenset({0}) if param_propagate[0] else frozenset(),
            params=frozenset({0}) if propagate_down[0] else frozenset(),
        )

    def flops(self, bottom_shapes: Shapes, top_shapes: Shapes) -> int:
        return 2 * count(top_shapes[0]) * self.k

    def effort(self, forward: bool, again: bool) -> tuple[float, float]:
        return 1.0, HALF_EFFORT if self.context.half else 1.0

    def forward(self, io: Pass) -> None:
        bias, size = io.param[1] if self.bias else None, (self.m, self.n, self.k, self.transpose)
        io.ops.inner_product.forward(io.bottom[0], self._weights(io), bias, io.top[0], *size)

    def backward(self, io: Pass) -> None:
        dy, size = io.top_diff[0], (self.m, self.n, self.k, self.transpose)
        if io.param_diff[0] is not None:
            io.ops.inner_product.backward_weight(io.bottom[0], dy, io.param_diff[0], *size, io.accumulate[0])
        if self.bias and io.param_diff[1] is not None:
            db, sums = io.param_diff[1], io.scratch["sums"]
            io.ops.inner_product.backward_bias(dy, db, self.m, self.n, io.accumulate[1], sums)
        if io.bottom_diff[0] is not None:
            adds = bool(io.bottom_adds) and io.bottom_adds[0]
            io.ops.inner_product.backward_data(dy, self._weights(io), io.bottom_diff[0], *size, adds)

    def _weights(self, io: Pass) -> AnyArray:
        """Return the weights in the bottom's type."""
        if "weights" not in io.scratch:
            return io.param[0]
        io.ops.copy(io.param[0], io.scratch["weights"])
        return io.scratch["weights"]
