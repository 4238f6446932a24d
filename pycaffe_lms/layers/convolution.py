"""Convolution: a layer that turns convolution_param into a ConvGeometry and leaves the work to `io.ops.conv_*`."""

from __future__ import annotations

import numpy as np

from ..errors import CaffeError, ShapeError
from ..ops.geometry import ConvGeometry, conv_output_size
from .base import Layer, Lives, Needs, at_least, count
from .registry import register_layer
from .spatial import kernel_fields


@register_layer("Convolution")
@register_layer("NdConvolution")
class ConvolutionLayer(Layer):
    """y[o] = b[o] + sum over c, taps t of w[o, c, t] * x[c, position * stride - pad + t * dilation].

    Bottoms: (items..., C, spatial...), all of one shape; `axis` is C's. Tops, one per bottom:
    (items..., num_output, out...) with out = (in + 2 pad - (dilation (kernel - 1) + 1)) / stride + 1, rounded down.
    Any number of spatial axes. With `group` g, the i-th g-th of the outputs sees only the i-th g-th of the channels.
    Parameters: weights (num_output, C / group, kernel...), bias (num_output) unless bias_term is false.
    Backward reads: bottoms for the weights' gradient, weights for the bottoms' gradients, never the bias or tops.
    kernel_shape, stride_shape, pad_shape: a value per spatial axis, in place of kernel_size, stride and pad.
    `engine` and `force_nd_im2col` are accepted and change nothing.
    Raises: LayerParamError for kernels, strides, groups or outputs that make no sense; ShapeError for bottoms that
    differ, that are smaller than the kernel, or whose channels change after set-up.
    Source: BVLC/caffe, src/caffe/layers/{base_conv,conv}_layer.cpp. NdConvolution: chuckcho/video-caffe.
    """

    bottoms = tops = at_least(1)
    same_count = True

    def setup(self, bottom_shapes):
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
        """Into how many groups channels and outputs are split."""
        return self.param.convolution_param.group

    def infer_shapes(self, bottom_shapes):
        shape = tuple(bottom_shapes[0])
        for i, other in enumerate(bottom_shapes):
            if tuple(other) != shape:
                raise self.shape_error(
                    f"has shape {tuple(other)}, but the first bottom has {shape}",
                    bottom=i,
                    fix="give this layer bottoms of one shape, or use a layer for each",
                )
        if len(shape) != self.ndim or shape[self.axis] != self.channels:
            raise self.shape_error(
                f"has shape {shape}, but the layer was set up for {self.ndim} axes and {self.channels} channels",
                bottom=0,
                fix="only items and spatial sizes may change after set-up",
            )
        return [(*shape[: self.axis], self.num_output, *self._out_spatial(shape))] * len(bottom_shapes)

    def _out_spatial(self, shape):
        spatial = shape[self.axis + 1 :]
        fields = zip(spatial, self.kernel, self.stride, self.pad, self.dilation, strict=True)
        out = tuple(conv_output_size(*one) for one in fields)
        if any(n < 1 for n in out):
            raise self.error(
                f"has spatial size {spatial}, too small for kernel {self.kernel}, pad {self.pad} and dilation "
                f"{self.dilation}",
                kind=ShapeError,
                blob=self.param.bottom[0],
                fix="use a smaller kernel or dilation, more pad, or a larger input",
            )
        return out

    def declare(self, bottom_shapes, top_shapes, ops):
        bottom, top = bottom_shapes[0], top_shapes[0]
        geometry = ConvGeometry(
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
        self.choose_operations(geometry, ops)

    def choose_operations(self, geometry: ConvGeometry, ops) -> None:
        """Plan for direct kernels where an output sees one channel only, else for products of matrices."""
        kind = "depthwise" if geometry.depthwise else "conv"
        self.names = {what: f"{kind}_{what}" for what in ("forward", "backward_data", "backward_filter")}
        try:
            self.plan = getattr(ops, f"{kind}_plan")(geometry, self.dtype, ops.workspace_limit)
        except CaffeError as error:
            error.at(layer=self.name, type=self.param.type)
            raise
        if self.plan.workspace_bytes:
            self.scratch("work", (self.plan.workspace_bytes,), dtype=np.uint8, lives=Lives.CALL)

    def convolve(self, io, what: str, *args) -> None:
        """Queue "forward", "backward_data" or "backward_filter"."""
        getattr(io.ops, self.names[what])(self.plan, *args)

    def backward_needs(self, propagate_down, param_propagate):
        weights = bool(param_propagate) and param_propagate[0]
        return Needs(
            bottoms=frozenset(range(len(self.param.bottom))) if weights else frozenset(),
            params=frozenset({0}) if any(propagate_down) else frozenset(),
        )

    def flops(self, bottom_shapes, top_shapes):
        return sum(2 * count(top) * count(self.params[0].shape, 1) for top in top_shapes)

    def forward(self, io):
        bias = io.param[1] if self.bias else None
        for x, y in zip(io.bottom, io.top, strict=True):
            self.convolve(io, "forward", x, io.param[0], bias, y, io.scratch.get("work"))

    def backward(self, io):
        work, accumulate = io.scratch.get("work"), list(io.accumulate)
        for x, dy, dx in zip(io.bottom, io.top_diff, io.bottom_diff, strict=True):
            if dy is None:  # this top reaches no loss
                if dx is not None:
                    io.ops.fill(dx, 0.0)
                continue
            if dx is not None:
                self.convolve(io, "backward_data", dy, io.param[0], dx, work)
            if self.bias and io.param_diff[1] is not None:
                io.ops.conv_backward_bias(self.plan, dy, io.param_diff[1], accumulate[1])
            if io.param_diff[0] is not None:
                self.convolve(io, "backward_filter", x, dy, io.param_diff[0], work, accumulate[0])
            accumulate = [True] * len(accumulate)  # the gradients of further bottoms are added
