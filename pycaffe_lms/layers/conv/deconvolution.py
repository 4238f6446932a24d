"""Deconvolution: a convolution's operations with forward and backward_data exchanged."""

from __future__ import annotations

from dataclasses import replace

from ...errors import ShapeError
from ...ops.geometry import ConvGeometry
from ...ops.records import Grid
from ..base import Ops, ParamRequest, Pass, Role, Rows, Shape, Shapes, count
from ..registry import register_layer
from .convolution import ConvolutionLayer


@register_layer("Deconvolution")
class DeconvolutionLayer(ConvolutionLayer):
    """y = b + the transpose of the convolution with these weights: x[c, i] * w[c, o, t] is added to
    y[o, i * stride - pad + t * dilation].

    Bottoms: (items..., C, spatial...), all of one shape; C is axis `axis`. Tops, one per bottom:
    (items..., num_output, out...) with out = stride (in - 1) + dilation (kernel - 1) + 1 - 2 pad.
    Any number of spatial axes. `group` splits channels and outputs into groups; outputs of group i read only channels
    of group i.
    Parameters: weights (C, num_output / group, kernel...), bias (num_output) unless bias_term is false.
    Backward reads: bottoms for the weights' gradient, weights for the bottoms' gradients, never the bias or tops.
    `engine` and `force_nd_im2col` are accepted and have no effect.
    Raises: as Convolution; ShapeError also if pad leaves no output.
    Source: BVLC/caffe, src/caffe/layers/{base_conv,deconv}_layer.cpp.
    """

    gradient_operations = frozenset({"forward", "backward_filter"})

    def setup(self, bottom_shapes: Shapes) -> None:
        super().setup(bottom_shapes)
        filler = self.param.convolution_param.weight_filler
        self.params[0] = ParamRequest((self.channels, self.num_output // self.group, *self.kernel), filler)

    def _out_spatial(self, shape: Shape) -> tuple[int, ...]:
        spatial = shape[self.axis + 1 :]
        fields = zip(spatial, self.kernel, self.stride, self.pad, self.dilation, strict=True)
        out = tuple(s * (size - 1) + d * (k - 1) + 1 - 2 * p for size, k, s, p, d in fields)
        if any(n < 1 for n in (*spatial, *out)):
            raise self.error(
                f"has spatial size {spatial}, which kernel {self.kernel}, stride {self.stride}, pad {self.pad} and "
                f"dilation {self.dilation} turn into {out}",
                kind=ShapeError,
                blob=self.param.bottom[0],
                fix="use less pad, or a larger kernel, stride or input",
            )
        return out

    def rows_for(self, first: int, end: int, rows: int) -> Rows | None:
        stride, pad, reach = self.stride[0], self.pad[0], self.dilation[0] * (self.kernel[0] - 1) + 1
        if self.axis != 1 or reach < stride:  # else some rows of the top read no row of the bottom
            return None
        low = max(0, -((reach - 1 - first - pad) // stride))
        high = min(rows, (end - 1 + pad) // stride + 1)
        return Rows((low, high), (low * stride - pad, (high - 1) * stride - pad + reach))

    @property
    def role(self) -> Role | None:
        return None

    def _geometry(self, bottom: Shape, top: Shape) -> ConvGeometry:
        """Return the convolution from top to bottom, which this layer transposes."""
        return replace(super()._geometry(top, bottom), channels=self.num_output, out_channels=self.channels)

    def declare(self, bottom_shapes: Shapes, top_shapes: Shapes, ops: Ops) -> None:
        transposed = self._geometry_in_memory(bottom_shapes, top_shapes)
        self.choose_operations(transposed, ops)
        items, channels, size = transposed.batch, self.num_output, transposed.in_size
        last = self.context.channels_last
        self.grid = Grid(items * size, channels, 1) if last else Grid(items, channels, size)
        self._declare_workspace()

    def flops(self, bottom_shapes: Shapes, top_shapes: Shapes) -> int:
        return sum(2 * count(bottom) * count(self.params[0].shape, 1) for bottom in bottom_shapes)

    def forward(self, io: Pass) -> None:
        weights = self._weights(io)
        for x, y in zip(io.bottom, io.top, strict=True):
            self.operation.backward_data(self.plan, x, weights, y, io.scratch.get("work"))
            if self.bias:
                io.ops.conv_add_bias(y, io.param[1], self.grid)

    def backward(self, io: Pass) -> None:
        work, accumulate = io.scratch.get("work"), list(io.accumulate)
        weights = self._weights(io) if any(dx is not None for dx in io.bottom_diff) else None
        for x, dy, dx in zip(io.bottom, io.top_diff, io.bottom_diff, strict=True):
            if dy is None:  # this top reaches no loss
                if dx is not None:
                    io.ops.fill(dx, 0.0)
                continue
            if dx is not None:
                self.operation.forward(self.plan, dy, weights, None, dx, work)
            if self.bias and io.param_diff[1] is not None:
                self.output_gradient(io, dy, None, io.param_diff[1], accumulate[1])
            if io.param_diff[0] is not None:
                self._backward_filter(io, dy, x, work, accumulate[0])
            accumulate = [True] * len(accumulate)  # add the gradients from later bottoms
