"""Upsample: unpooling with a mask, or repetition."""

from __future__ import annotations

from collections.abc import Sequence

from ..base import AnyArray, Declaration, Layer, Needs, Ops, Pass, Shapes, between
from ..registry import register_layer
from ..spatial import check_images


@register_layer("Upsample")
class UpsampleLayer(Layer):
    """Two bottoms, unpooling: y[n, c, mask[n, c, i]] = x[n, c, i], 0 elsewhere.
    One bottom, repetition: y[n, c, h, w] = x[n, c, h / scale, w / scale], rounded down.

    Bottom 0: x, (N, C, H, W). Bottom 1: the mask, x's shape: the index h * W + w inside y's plane (the second top of
    the Pooling that is undone). Top 0: (N, C, oh, ow): upsample_param.upsample_h and upsample_w (two bottoms; they win
    over a scale), or H * scale_h and W * scale_w (scale, default 2, is both), less one row or column for pad_out_h or
    pad_out_w (two bottoms and a scale of 2).
    Where several values have one index the last one is written. A value whose index is outside y is left out.
    Gradient with a mask: dx[n, c, i] = dy[n, c, mask[n, c, i]], 0 for a value that was left out; else the sum over the
    block. The mask gets a gradient of zeros. Backward reads the mask, or nothing.
    Raises: LayerParamError for contradicting or impossible fields; ShapeError for other than 4 axes, or a mask of
    another shape than x.
    Source: alexgkendall/caffe-segnet (two bottoms; there an index out of range ends the program on the CPU, and which
    value is written is not defined on a GPU), eric612/MobileNet-YOLO (one bottom), src/caffe/layers/upsample_layer.cpp.
    """

    declares = Declaration(
        bottoms=between(1, 2),
        ignores_force_backward=frozenset({1}),
        splits_over_batch=True,
        full_precision=frozenset({1}),
    )

    def setup(self, bottom_shapes: Shapes) -> None:
        p, self.masked = self.param.upsample_param, len(bottom_shapes) == 2
        self.out = self._both("upsample_h", "upsample_w")
        scales = self._both("scale_h", "scale_w")
        if scales and p.HasField("scale"):
            raise self.error("has scale, and scale_h and scale_w", fix="give either scale or the other two")
        self.scale = scales or (p.scale, p.scale)
        pads = [f for f in ("pad_out_h", "pad_out_w") if getattr(p, f)]
        self.less = (int(p.pad_out_h), int(p.pad_out_w))
        if 0 in (self.out or ()) or 0 in self.scale:
            raise self.error("asks for a size or a scale of 0", fix="give at least 1")
        if not self.masked and (pads or self.out):
            raise self.error(
                f"has one bottom, and {pads[0] if pads else 'upsample_h'}, which goes with a mask",
                fix="use scale, or add the mask as second bottom",
            )
        if pads and self.out:
            raise self.error(f"has upsample_h and {pads[0]}", fix=f"remove {pads[0]}")
        for field, less, scale in zip(("pad_out_h", "pad_out_w"), self.less, self.scale, strict=True):
            if less and scale != 2:
                raise self.error(f"{field} goes with a scale of 2, not {scale}", fix="use upsample_h and upsample_w")

    def _both(self, *fields: str) -> tuple[int, int] | None:
        p = self.param.upsample_param
        given = [f for f in fields if p.HasField(f)]
        if len(given) == 1:
            raise self.error(f"has {given[0]} alone", fix=f"give {' and '.join(fields)}")
        return (getattr(p, fields[0]), getattr(p, fields[1])) if given else None

    def infer_shapes(self, bottom_shapes: Shapes) -> Shapes:
        check_images(self, bottom_shapes[:1], "upsampling")
        shape = tuple(bottom_shapes[0])
        if self.masked and tuple(bottom_shapes[1]) != shape:
            raise self.shape_error(
                f"has shape {tuple(bottom_shapes[1])}, but the values of bottom 0 have shape {shape}",
                bottom=1,
                fix="give the mask of a Pooling whose top has the shape of bottom 0",
            )
        out = [n * s - less for n, s, less in zip(shape[2:], self.scale, self.less, strict=True)]
        return [(*shape[:2], *(self.out or (max(0, n) for n in out)))]

    def declare(self, bottom_shapes: Shapes, top_shapes: Shapes, ops: Ops) -> None:
        (n, c, *size), (*_, height, width) = bottom_shapes[0], top_shapes[0]
        self.planes, self.size = n * c, tuple(size)
        self.counts = size[0] * size[1], height * width

    def backward_needs(self, propagate_down: Sequence[bool], param_propagate: Sequence[bool]) -> Needs:
        return Needs(bottoms=frozenset({1}) if self.masked and propagate_down[0] else frozenset())

    def forward(self, io: Pass) -> None:
        if self.masked:
            io.ops.unpool.forward(io.bottom[0], io.bottom[1], io.top[0], self.planes, *self.counts)
        else:
            io.ops.repeat.forward(io.bottom[0], io.top[0], self.planes, self.size, self.scale)

    def gradient(self, io: Pass, dy: AnyArray, dx: AnyArray) -> None:
        if self.masked:
            io.ops.unpool.backward(dy, io.bottom[1], dx, self.planes, *self.counts)
        else:
            io.ops.repeat.backward(dy, dx, self.planes, self.size, self.scale)
