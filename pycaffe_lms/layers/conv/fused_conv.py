"""Convolution and ReLU as one: what a solver's iterations run in place of these layers.

Not a type of its own: `net/passes/fusion.py` makes it from layers of a net, which stay there under their names.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from ...arrays import AnyArray
from ...proto.caffe_pb2 import LayerParameter
from ..base import Needs, Ops, Pass, Shapes
from ..masked import Masked
from .convolution import ConvolutionLayer


class FusedConvolutionLayer(Masked, ConvolutionLayer):
    """y = max(convolution of x, 0), with the bias and ReLU applied where the sums are still at hand.

    Bottom: x. Top: y. Parameters and needs: the Convolution's, and backward reads y or saved bits. The gradient of y is
    overwritten with that of the convolution's own value, whose buffer it is as well (both have one name).
    """

    # for the second pass would find the gradient of y overwritten
    declares = replace(ConvolutionLayer.declares, overwrites_top_diffs=True, split_backward=False)

    def __init__(self, param: LayerParameter, convolution: ConvolutionLayer):
        super().__init__(param, convolution.context)
        own = {"param", "name", "where", "scratches", "context"}
        self.__dict__.update({k: v for k, v in vars(convolution).items() if k not in own})
        self.rectifies = True

    def backward_needs(self, propagate_down: Sequence[bool], param_propagate: Sequence[bool]) -> Needs:
        needs = super().backward_needs(propagate_down, param_propagate)
        tops = frozenset() if self.context.saves_bits else frozenset({0})
        return Needs(bottoms=needs.bottoms, tops=tops, params=needs.params)

    def declare(self, bottom_shapes: Shapes, top_shapes: Shapes, ops: Ops) -> None:
        super().declare(bottom_shapes, top_shapes, ops)
        self.declare_bits(top_shapes[0])

    def forward(self, io: Pass) -> None:
        super().forward(io)
        if "bits" in io.scratch:
            io.ops.positive_bits(io.top[0], io.scratch["bits"])

    def gradient(self, io: Pass, dy: AnyArray, y: AnyArray, db: AnyArray, accumulate: bool) -> AnyArray:
        sums, bits = io.scratch.get("sums"), io.scratch.get("bits")
        io.ops.conv_bias_relu.backward(y, dy, dy, db, accumulate, sums, *self.planes, bits)
        return dy
