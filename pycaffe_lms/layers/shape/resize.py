"""DeephiResize, MaskResize: maps of another size."""

from __future__ import annotations

import numpy as np

from ...ops.records import Resize
from ...proto.caffe_pb2 import DeephiResizeParameter
from ..base import AnyArray, Declaration, Layer, Pass, Reads, Shapes
from ..registry import register_layer
from ..spatial import check_images

_PAIRS = (("new_height", "new_width"), ("scale_h", "scale_w"))


@register_layer("DeephiResize")
class DeephiResizeLayer(Layer):
    """y = x of another size, as OpenCV resizes pictures.

    Bottom 0: (N, C, H, W). Top 0: (N, C, new_height, new_width) where deephi_resize_param gives these, else
    (N, C, H * scale_h, W * scale_w), rounded down. With resize_type BILINEAR (the default) row o of y lies at
    (o + 0.5) * H / oh - 0.5 of x, within the first and the last row; with NEAREST it is row o * H / oh, rounded down.
    Backward reads nothing.
    Raises: LayerParamError where no pair is given, half of one, or a scale that is not above 0; ShapeError for other
    than 4 axes, or an empty top.
    Source: Vitis AI's Caffe, src/caffe/layers/deephi_resize_layer.cpp (which has no backward).
    """

    declares = Declaration(splits_over_batch=True, backward_reads=Reads.NONE)

    def setup(self, bottom_shapes: Shapes) -> None:
        p = self.param.deephi_resize_param
        for one, other in _PAIRS:
            if p.HasField(one) != p.HasField(other):
                raise self.error(f"has one of {one} and {other}", fix="give both, or none")
        if not p.HasField("new_height") and not p.HasField("scale_h"):
            raise self.error("has no size", fix="add deephi_resize_param { scale_h: 2 scale_w: 2 }")
        self.factors = None if p.HasField("new_height") else (p.scale_h, p.scale_w)
        if self.factors is not None and not min(self.factors) > 0:
            raise self.error("a scale is not above 0", fix="give scale_h and scale_w above 0")

    def infer_shapes(self, bottom_shapes: Shapes) -> Shapes:
        check_images(self, bottom_shapes, "resizing")
        p, (n, c, *size) = self.param.deephi_resize_param, tuple(bottom_shapes[0])
        out = [p.new_height, p.new_width]
        if self.factors is not None:
            out = [int(np.float32(s) * np.float32(f)) for s, f in zip(size, self.factors, strict=True)]
        if min(*out, *size) < 1:
            raise self.shape_error(
                f"of shape {(n, c, *size)} becomes {(n, c, *out)}", bottom=0, fix="give sizes of at least 1"
            )
        self.resize = Resize(n * c, tuple(size), tuple(out), p.resize_type == DeephiResizeParameter.NEAREST)
        return [(n, c, *out)]

    def forward(self, io: Pass) -> None:
        io.ops.resize.forward(io.bottom[0], io.top[0], self.resize)

    def gradient(self, io: Pass, dy: AnyArray, dx: AnyArray) -> None:
        io.ops.resize.backward(dy, dx, self.resize)


@register_layer("MaskResize")
class MaskResizeLayer(Layer):
    """y = x of another size: row o of y lies at o * H / output_height of x, interpolated, columns likewise (MNC).

    Bottom 0: (N, C, H, W). Top 0: (N, C, output_height, output_width). Backward reads nothing.
    Raises: LayerParamError where output_height or output_width is not given; ShapeError for other than 4 axes, or an
    output of more than twice the size, whose last rows the fork leaves 0.
    Source: daijifeng001/caffe-mnc, src/caffe/layers/mask_resize_layer.cu (whose backward leaves out some weights where
    the output is larger: docs/differences.md).
    """

    declares = Declaration(splits_over_batch=True, backward_reads=Reads.NONE)

    def infer_shapes(self, bottom_shapes: Shapes) -> Shapes:
        check_images(self, bottom_shapes, "resizing")
        p, (n, c, *size) = self.param.mask_resize_param, tuple(bottom_shapes[0])
        out = p.output_height, p.output_width
        if 0 in out:
            raise self.error("has no size", fix="add mask_resize_param { output_height: 14 output_width: 14 }")
        if any(wanted > 2 * given for wanted, given in zip(out, size, strict=True)):
            raise self.shape_error(
                f"of shape {(n, c, *size)} becomes {(n, c, *out)}", bottom=0, fix="enlarge to twice the size at most"
            )
        self.resize = Resize(n * c, tuple(size), out, nearest=False, corners=True)
        return [(n, c, *out)]

    def forward(self, io: Pass) -> None:
        io.ops.resize.forward(io.bottom[0], io.top[0], self.resize)

    def gradient(self, io: Pass, dy: AnyArray, dx: AnyArray) -> None:
        io.ops.resize.backward(dy, dx, self.resize)
