"""Convolution, depthwise convolution, and a convolution fused with the ReLU behind it.

These layers turn convolution_param into a ConvGeometry; `io.ops.conv` or `io.ops.depthwise` does the work.
`net/passes/fusion.py` makes the fused layer from two layers of a net.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from ...backend.bfloat16 import BFLOAT16
from ...errors import CaffeError
from ...ops.axes import memory_shape
from ...ops.geometry import ConvGeometry
from ...ops.sum_parts import reduction_parts
from ...proto.caffe_pb2 import TEST, LayerParameter
from ..base import (
    AnyArray,
    Declaration,
    Gradients,
    Layer,
    Lives,
    Needs,
    Ops,
    Pass,
    Role,
    Rows,
    Shape,
    Shapes,
    at_least,
    count,
)
from ..mixins import Masked
from ..registry import register_layer
from ..spatial import conv_output, kernel_fields


@register_layer("Convolution")
@register_layer("NdConvolution")
class ConvolutionLayer(Layer):
    """y[o] = b[o] + sum over c, taps t of w[o, c, t] * x[c, position * stride - pad + t * dilation].

    Bottoms: (items..., C, spatial...), all of one shape; C is axis `axis`. Tops, one per bottom:
    (items..., num_output, out...) with out = (in + 2 pad - (dilation (kernel - 1) + 1)) / stride + 1, rounded down.
    Any number of spatial axes. `group` splits channels and outputs into groups; outputs of group i read only channels
    of group i.
    Parameters: weights (num_output, C / group, kernel...), bias (num_output) unless bias_term is false.
    Backward reads: bottoms for the weights' gradient, weights for the bottoms' gradients, never the bias or tops.
    kernel_shape, stride_shape, pad_shape: a value per spatial axis, instead of kernel_size, stride and pad.
    `engine` and `force_nd_im2col` are accepted and have no effect.
    Raises: LayerParamError for impossible kernels, strides, groups or outputs; ShapeError for bottoms that differ, that
    are smaller than the kernel, or whose channels change after set-up.
    Source: BVLC/caffe, src/caffe/layers/{base_conv,conv}_layer.cpp. NdConvolution: chuckcho/video-caffe.
    """

    _planned: tuple[object, ...] | None = None  # what `plan` was made of
    declares = Declaration(
        bottoms=at_least(1),
        tops=at_least(1),
        same_count=True,
        split_backward=True,
        prefers_channels_last=True,
        channels_last_params=frozenset({0}),
        prefers_half=True,
    )
    rectifies = False  # whether it applies a ReLU to its outputs
    gradient_operations = frozenset({"backward_data", "backward_filter"})  # which of `ops.conv` its backward runs

    def setup(self, bottom_shapes: Shapes) -> None:
        conv, shape = self.param.convolution_param, bottom_shapes[0]
        self.axis = self.canonical_axis(conv.axis, len(shape))
        self.ndim, self.channels = len(shape), shape[self.axis]
        self.kernel, self.stride, self.pad, self.dilation = kernel_fields(self, conv, len(shape) - self.axis - 1)
        self.num_output, self.group = conv.num_output, self.groups()
        if self.num_output < 1:
            raise self.error("num_output is 0", fix="add convolution_param { num_output: ... } of at least 1")
        if self.group < 1:
            raise self.error("group is 0", fix="use group: 1, or leave it out")
        for what, n in (("channels of the bottom", self.channels), ("num_output", self.num_output)):
            if n % self.group or n < 1:
                raise self.error(
                    f"{what}, {n}, cannot be split into {self.group} equal group(s)",
                    fix="choose a group that divides the bottom's channels and num_output",
                )
        self.bias = conv.bias_term
        self.add_param((self.num_output, self.channels // self.group, *self.kernel), conv.weight_filler)
        if self.bias:
            self.add_param((self.num_output,), conv.bias_filler)

    def groups(self) -> int:
        """Return the number of groups into which channels and outputs are split."""
        return self.param.convolution_param.group

    def infer_shapes(self, bottom_shapes: Shapes) -> Shapes:
        shape = tuple(bottom_shapes[0])
        self.check_same(bottom_shapes)
        self.check_kept("axes", len(shape), self.ndim)
        self.check_kept("channels", shape[self.axis], self.channels)
        return [(*shape[: self.axis], self.num_output, *self._out_spatial(shape))] * len(bottom_shapes)

    def _out_spatial(self, shape: Shape) -> tuple[int, ...]:
        return conv_output(self, shape[self.axis + 1 :], self.kernel, self.stride, self.pad, self.dilation)

    @property
    def splits_over_batch(self) -> bool:
        return self.axis >= 1

    def rows_for(self, first: int, end: int, rows: int) -> Rows | None:
        if self.axis != 1:
            return None
        start, reach = first * self.stride[0] - self.pad[0], self.dilation[0] * (self.kernel[0] - 1) + 1
        return Rows((start, (end - 1) * self.stride[0] - self.pad[0] + reach), (first, end))

    def take_rows(self, first: int, end: int, rows: int) -> None:
        self.pad = (0, *self.pad[1:])  # the slab's bottom has rows of zeros in its place

    @property
    def role(self) -> Role | None:
        return Role.CONVOLVE if len(self.param.bottom) == 1 and self.axis == 1 else None

    def takes_channels_last(self, bottom_shapes: Shapes, top_shapes: Shapes, ops: Ops) -> bool:
        if self.axis != 1 or len(bottom_shapes[0]) < 4:
            return False
        geometry = self._geometry(bottom_shapes[0], top_shapes[0])
        if self.context.wants_half and ops.conv_half_plan(replace(geometry, channels_last=True), self.dtype):
            return True  # then it will run on bfloat16 arrays, and nothing needs to be known of others
        return bool(ops.conv_channels_last_plan(geometry, self.dtype))

    def prefers_channels_last(self, bottom_shapes: Shapes, top_shapes: Shapes) -> bool:
        return not self._geometry(bottom_shapes[0], top_shapes[0]).depthwise  # direct kernels do both orders

    def takes_half(self, bottom_shapes: Shapes, top_shapes: Shapes, ops: Ops) -> bool:
        return bool(ops.conv_half_plan(self._geometry_in_memory(bottom_shapes, top_shapes), self.dtype))

    def _geometry_in_memory(self, bottom_shapes: Shapes, top_shapes: Shapes) -> ConvGeometry:
        geometry = self._geometry(bottom_shapes[0], top_shapes[0])
        return replace(geometry, channels_last=True) if self.context.channels_last else geometry

    def declare(self, bottom_shapes: Shapes, top_shapes: Shapes, ops: Ops) -> None:
        geometry = self._geometry_in_memory(bottom_shapes, top_shapes)
        self.choose_operations(geometry, ops)
        adds, beside = None, None
        if self.by_products:
            adds, beside = ops.conv_add.backward_data_plan(self.plan), ops.conv_beside_plan(self.plan)
        self._accumulates_into = frozenset(range(len(bottom_shapes)) if adds is not None else ())
        if adds:
            of = Gradients.BOTTOMS
            self.scratch("added", (adds,), dtype=np.uint8, lives=Lives.CALL, forward=False, gradients=of)
        self.filter_beside = beside is not None and len(bottom_shapes) == 1
        if self.filter_beside and beside:
            of = Gradients.PARAMS
            self.scratch("filter_work", (beside,), dtype=np.uint8, lives=Lives.CALL, forward=False, gradients=of)
        self.grid = geometry.grid
        self._declare_workspace()

    def _declare_workspace(self) -> None:
        """Request scratch for the bias's gradient and for weights in the images' type. After `grid` is set."""
        if self.bias:
            sums = self.grid.channels * reduction_parts(*self.grid)
            self.scratch("sums", (sums,), lives=Lives.CALL, forward=False, gradients=Gradients.PARAMS)
        if self.context.half and self.by_products:  # direct kernels read weights of the net's type
            shape = memory_shape(self.params[0].shape, self.context.channels_last)
            self.scratch("weights", shape, dtype=BFLOAT16, lives=Lives.CALL, gradients=Gradients.BOTTOMS)

    def _geometry(self, bottom: Shape, top: Shape) -> ConvGeometry:
        return ConvGeometry(
            batch=count(bottom, 0, self.axis),
            channels=self.channels,
            out_channels=self.num_output,
            group=self.group,
            in_spatial=tuple(bottom[self.axis + 1 :]),
            out_spatial=tuple(top[self.axis + 1 :]),
            kernel=self.kernel,
            stride=self.stride,
            pad=self.pad,
            dilation=self.dilation,
        )

    def choose_operations(self, geometry: ConvGeometry, ops: Ops) -> None:
        """Choose direct kernels if each output reads one channel only, else matrix products; plan; request scratch."""
        self.by_products = not geometry.depthwise
        self.operation = ops.conv if self.by_products else ops.depthwise
        fused = {"bias": self.bias, "relu": self.rectifies, "seldom": self._seldom()} if self.by_products else {}
        asked = (self.operation, geometry, self.dtype, ops.workspace_limit, fused)
        if asked != self._planned:  # a net is declared anew where any blob of it changes its shape
            try:
                self.plan = self.operation.plan(
                    geometry, self.dtype, ops.workspace_limit, half=self.context.half, **fused
                )
            except CaffeError as error:
                error.at(layer=self.name, type=self.param.type)
                raise
            self._planned = asked
        if self.plan.workspace_bytes:
            self.scratch("work", (self.plan.workspace_bytes,), dtype=np.uint8, lives=Lives.CALL)

    def _seldom(self) -> frozenset[str]:
        """Return the operations that are not worth a search for their fastest algorithm."""
        backward = self.gradient_operations if self.phase == TEST else frozenset[str]()
        return backward | ({"ending"} if self.context.by_hand else set())

    def backward_needs(self, propagate_down: Sequence[bool], param_propagate: Sequence[bool]) -> Needs:
        weights = bool(param_propagate) and param_propagate[0]
        return Needs(
            bottoms=frozenset(range(len(self.param.bottom))) if weights else frozenset(),
            params=frozenset({0}) if any(propagate_down) else frozenset(),
        )

    def flops(self, bottom_shapes: Shapes, top_shapes: Shapes) -> int:
        return sum(2 * count(top) * count(self.params[0].shape, 1) for top in top_shapes)

    def effort(self, forward: bool, again: bool) -> tuple[float, float]:
        channels = self.params[0].shape[1]  # tensor cores multiply blocks of channels
        return 1.0, -(-channels // 32) * 32 / max(1, channels) * (1.5 if len(self.kernel) > 2 else 1.0)

    def forward(self, io: Pass) -> None:
        bias, weights = io.param[1] if self.bias else None, self._weights(io)
        for x, y in zip(io.bottom, io.top, strict=True):
            more = (True,) if self.rectifies else ()
            self.operation.forward(self.plan, x, weights, bias, y, io.scratch.get("work"), *more)

    def backward(self, io: Pass) -> None:
        work, accumulate = io.scratch.get("work"), list(io.accumulate)
        weights = self._weights(io) if any(dx is not None for dx in io.bottom_diff) else None
        for i, (x, y, dy, dx) in enumerate(zip(io.bottom, io.top, io.top_diff, io.bottom_diff, strict=True)):
            adds = bool(io.bottom_adds) and io.bottom_adds[i]
            if dy is None:  # this top reaches no loss
                if dx is not None and not adds:
                    io.ops.fill(dx, 0.0)
                continue
            db, add = (io.param_diff[1], accumulate[1]) if self.bias else (None, False)
            dy = self.output_gradient(io, dy, y, db, add)
            if io.param_diff[0] is not None and self.filter_beside:
                with io.beside():
                    self._backward_filter(io, x, dy, io.scratch.get("filter_work"), accumulate[0])
            if adds:
                io.ops.conv_add.backward_data(self.plan, dy, weights, dx, io.scratch.get("added"))
            elif dx is not None:
                self.operation.backward_data(self.plan, dy, weights, dx, work)
            if io.param_diff[0] is not None and not self.filter_beside:
                self._backward_filter(io, x, dy, work, accumulate[0])
            accumulate = [True] * len(accumulate)  # add the gradients from later bottoms

    def output_gradient(self, io: Pass, dy: AnyArray, y: AnyArray, db: AnyArray, accumulate: bool) -> AnyArray:
        """Return the gradient of the convolution's own outputs; db (+)= its sums per channel, unless db is None."""
        if db is not None:
            io.ops.conv_bias_relu.backward(None, dy, None, db, accumulate, io.scratch["sums"], self.grid)
        return dy

    def _weights(self, io: Pass) -> AnyArray:
        """Return the weights in the images' memory order and type, as the plan expects them."""
        if "weights" not in io.scratch:
            return io.param[0]
        io.ops.copy(io.param[0], io.scratch["weights"])
        return io.scratch["weights"]

    def _backward_filter(self, io: Pass, x: AnyArray, dy: AnyArray, work: AnyArray, accumulate: bool) -> None:
        self.operation.backward_filter(self.plan, x, dy, io.param_diff[0], work, accumulate)


@register_layer("DepthwiseConvolution")
@register_layer("ConvolutionDepthwise")
class DepthwiseConvolutionLayer(ConvolutionLayer):
    """Convolution with one group per channel: output o reads only channel o * C / num_output, rounded down.

    Bottoms, tops, parameters (weights (num_output, 1, kernel...), bias), fields and needs are Convolution's; `group` is
    C, and may be left out. Convolution with group C is the same layer, and as fast.
    Raises: as Convolution; LayerParamError for a group other than C.
    Source: yonghenglh6/DepthwiseConvolution (which writes group) and farmingyard/caffe-mobilenet (which does not).
    """

    def groups(self) -> int:
        conv = self.param.convolution_param
        if conv.HasField("group") and conv.group != self.channels:
            raise self.error(
                f"has group {conv.group}, but a depthwise convolution has one for each of the {self.channels} channels",
                fix=f'remove group, or use type: "Convolution" with group: {conv.group}',
            )
        return self.channels


class FusedConvolutionLayer(Masked, ConvolutionLayer):
    """y = max(convolution of x, 0) in one operation: bias and ReLU are applied as the sums are written.

    Not a layer type of its own. Bottom: x. Top: y. Parameters and needs: those of Convolution; backward also reads y or
    saved bits. Backward overwrites the gradient of y with that of the convolution's outputs: both are one buffer, since
    the ReLU runs in place.
    """

    # no split backward: its second part would find the gradient of y overwritten
    declares = replace(ConvolutionLayer.declares, overwrites_top_diffs=True, split_backward=False)

    def __init__(self, param: LayerParameter, convolution: ConvolutionLayer):
        super().__init__(param, convolution.context)
        own = {"param", "name", "where", "scratches", "context"}
        self.__dict__.update({k: v for k, v in vars(convolution).items() if k not in own})
        self.rectifies = True

    def backward_needs(self, propagate_down: Sequence[bool], param_propagate: Sequence[bool]) -> Needs:
        needs = ConvolutionLayer.backward_needs(self, propagate_down, param_propagate)
        tops = frozenset() if self.context.saves_bits else frozenset({0})
        return Needs(bottoms=needs.bottoms, tops=tops, params=needs.params)

    def declare(self, bottom_shapes: Shapes, top_shapes: Shapes, ops: Ops) -> None:
        super().declare(bottom_shapes, top_shapes, ops)
        self.declare_bits(top_shapes[0])

    def forward(self, io: Pass) -> None:
        super().forward(io)
        if "bits" in io.scratch:
            io.ops.positive_bits(io.top[0], io.scratch["bits"])

    def output_gradient(self, io: Pass, dy: AnyArray, y: AnyArray, db: AnyArray, accumulate: bool) -> AnyArray:
        sums, bits = io.scratch.get("sums"), io.scratch.get("bits")
        io.ops.conv_bias_relu.backward(y, dy, dy, db, accumulate, sums, self.grid, bits)
        return dy
