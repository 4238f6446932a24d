"""Im2col: the windows of a convolution as columns."""

from __future__ import annotations

import math

from ...ops.geometry import ConvGeometry
from ..base import AnyArray, Declaration, Layer, Pass, Reads, Shapes, count
from ..registry import register_layer
from ..spatial import conv_output, kernel_fields


@register_layer("Im2col")
class Im2colLayer(Layer):
    """The windows that a convolution would read, as columns: y[c, tap, o] = x[c, o * stride + tap * dilation - pad].

    Bottom 0: x, (items..., C, spatial...); C is axis convolution_param.axis (default 1). Top 0: y, (items..., C * taps,
    out...); along the axis of C * taps the last spatial axis of the kernel varies fastest and the channel slowest; out
    as in Convolution. Outside of x, y is 0.
    Backward sums each element's gradient over the windows that contain it; it reads no values. Other fields of
    convolution_param have no effect.
    Raises: LayerParamError for impossible kernels or strides; ShapeError without spatial axes, if their number changes
    after set-up, or if the kernel does not fit.
    Source: BVLC/caffe, src/caffe/layers/im2col_layer.cpp.
    """

    declares = Declaration(backward_reads=Reads.NONE)

    def setup(self, bottom_shapes: Shapes) -> None:
        conv, shape = self.param.convolution_param, tuple(bottom_shapes[0])
        self.axis, self.ndim = self.canonical_axis(conv.axis, len(shape)), len(shape)
        axes = self.ndim - self.axis - 1
        if axes < 1:
            raise self.shape_error(
                f"has shape {shape}: no spatial axes behind axis {self.axis}",
                bottom=0,
                fix="give a bottom such as (N, C, H, W)",
            )
        self.kernel, self.stride, self.pad, self.dilation = kernel_fields(self, conv, axes)

    def infer_shapes(self, bottom_shapes: Shapes) -> Shapes:
        shape = tuple(bottom_shapes[0])
        self.check_kept("axes", len(shape), self.ndim)
        spatial = shape[self.axis + 1 :]
        windows = (self.kernel, self.stride, self.pad, self.dilation)
        out = conv_output(self, spatial, *windows)
        self.geometry = ConvGeometry(count(shape, 0, self.axis), shape[self.axis], 0, 1, spatial, out, *windows)
        return [(*shape[: self.axis], shape[self.axis] * math.prod(self.kernel), *out)]

    def forward(self, io: Pass) -> None:
        io.ops.im2col.forward(io.bottom[0], io.top[0], self.geometry)

    def gradient(self, io: Pass, dy: AnyArray, dx: AnyArray) -> None:
        io.ops.im2col.backward(dy, dx, self.geometry)
