"""Pooling: maxima or averages of windows."""

from __future__ import annotations

import numpy as np

from ..ops.geometry import PoolGeometry, pool_output_size
from ..proto import caffe_pb2
from .base import Layer, Lives, Needs, between, exactly
from .registry import register_layer


@register_layer("Pooling")
class PoolingLayer(Layer):
    """MAX: y = the window's maximum (the first in row-major order; never a NaN, nor padding; -FLT_MAX of nothing).
    AVE: y = the window's sum / its size, where near padding counts in full and far padding up to the pad border.

    Bottom 0: (N, C, H, W). Top 0: (N, C, oh, ow) with o = ceil((in + 2 pad - kernel) / stride) + 1 (round_mode FLOOR:
    floor), less a last window that would start beyond in + pad. Top 1 (MAX only, no gradient): the index h * W + w of
    each maximum inside its plane, -1 of nothing. global_pooling: the kernel is H x W.
    Backward reads no data, only the saved index of each maximum.
    `engine` is accepted and changes nothing.
    Raises: LayerParamError for contradicting or impossible fields, or STOCHASTIC; ShapeError for other than 4 axes or
    an input that no window fits.
    Source: BVLC/caffe, src/caffe/layers/pooling_layer.cpp.
    """

    bottoms = exactly(1)
    tops = between(1, 2)

    def setup(self, bottom_shapes):
        pool = self.param.pooling_param
        self.max = pool.pool == caffe_pb2.PoolingParameter.MAX
        self.ceil = pool.round_mode == caffe_pb2.PoolingParameter.CEIL
        self.whole = pool.global_pooling
        if pool.pool == caffe_pb2.PoolingParameter.STOCHASTIC:
            raise self.error("stochastic pooling is not supported yet", fix="use pool: MAX or pool: AVE")
        if len(self.param.top) > 1 and not self.max:
            raise self.error("only MAX pooling has a second top", fix="remove the second top, or use pool: MAX")
        self.stride = self._pair(pool, "stride", 1)
        self.pad = self._pair(pool, "pad", 0)
        if self.whole:
            given = [f for f in ("kernel_size", "kernel_h", "kernel_w") if pool.HasField(f)]
            if given:
                raise self.error(f"has global_pooling and {' and '.join(given)}", fix=f"remove {' and '.join(given)}")
            if self.pad != (0, 0) or self.stride != (1, 1):
                raise self.error("global_pooling takes no pad, and stride 1 only", fix="remove pad and stride")
            return
        self.kernel = self._pair(pool, "kernel", None)
        for field, values in (("kernel", self.kernel), ("stride", self.stride)):
            if 0 in values:
                raise self.error(f"a pooling {field} is 0", fix=f"give a {field} of at least 1")
        if any(p >= k for p, k in zip(self.pad, self.kernel, strict=True)):
            raise self.error(
                f"pad {self.pad} is not smaller than kernel {self.kernel}", fix="use a smaller pad or a larger kernel"
            )

    def _pair(self, pool, field: str, default: int | None) -> tuple[int, int]:
        """(height, width) of one field, from one value for both or from its _h/_w pair."""
        square = "kernel_size" if field == "kernel" else field
        pair = [name for name in (f"{field}_h", f"{field}_w") if pool.HasField(name)]
        if pair and pool.HasField(square):
            raise self.error(f"has both {square} and {' and '.join(pair)}", fix=f"keep either {square} or {pair[0]}")
        if pair:
            if default is None and len(pair) < 2:
                missing = f"{field}_w" if pair[0].endswith("_h") else f"{field}_h"
                raise self.error(f"has {pair[0]} but no {missing}", fix=f"add {missing}, or use {square} for both")
            # a missing partner counts as not given (Caffe would take a stride of 0, and divide by it)
            return tuple(getattr(pool, n) if n in pair else default for n in (f"{field}_h", f"{field}_w"))
        if default is None and not pool.HasField(square):
            raise self.error("has no kernel size", fix="add pooling_param { kernel_size: ... } or global_pooling: true")
        return (getattr(pool, square),) * 2

    def infer_shapes(self, bottom_shapes):
        shape = tuple(bottom_shapes[0])
        if len(shape) != 4:
            raise self.shape_error(
                f"has shape {shape}, but pooling works on 4 axes (items, channels, height, width)",
                bottom=0,
                fix="reshape the bottom to 4 axes",
            )
        window, out = self._window(shape), []
        for size, kernel, stride, pad in zip(shape[2:], window, self.stride, self.pad, strict=True):
            n = pool_output_size(size, kernel, stride, pad, self.ceil)
            if any(self.pad) and (n - 1) * stride >= size + pad:
                n -= 1  # as in Caffe, only where there is padding: a last window wholly inside it is cut off
            out.append(n)
        if min(out) < 1 or min(shape[2:]) < 1:
            raise self.shape_error(
                f"has spatial size {shape[2:]}, which no window of {window} with pad {self.pad} fits",
                bottom=0,
                fix="use a smaller kernel, more pad, or a larger input",
            )
        return [(*shape[:2], *out)] * len(self.param.top)

    def _window(self, shape) -> tuple[int, int]:
        return tuple(shape[2:]) if self.whole else self.kernel

    def declare(self, bottom_shapes, top_shapes, ops):
        bottom, top = bottom_shapes[0], top_shapes[0]
        self.geometry = PoolGeometry(
            planes=bottom[0] * bottom[1],
            in_spatial=tuple(bottom[2:]),
            out_spatial=tuple(top[2:]),
            kernel=self._window(bottom),
            stride=self.stride,
            pad=self.pad,
        )
        if self.max:
            self.scratch("mask", top, dtype=np.int32, lives=Lives.SAVED)

    def backward_needs(self, propagate_down, param_propagate):
        return Needs()

    def forward(self, io):
        x, y = io.bottom[0], io.top[0]
        if self.max:
            top_mask = io.top[1] if len(io.top) > 1 else None
            io.ops.max_pool_forward(x, y, io.scratch.get("mask"), top_mask, self.geometry)
        else:
            io.ops.average_pool_forward(x, y, self.geometry)

    def backward(self, io):
        dy, dx = io.top_diff[0], io.bottom_diff[0]
        if dx is None:
            return
        if dy is None:  # only the second top has a gradient, which counts for nothing
            io.ops.fill(dx, 0.0)
        elif self.max:
            io.ops.max_pool_backward(dy, io.scratch["mask"], dx, self.geometry)
        else:
            io.ops.average_pool_backward(dy, dx, self.geometry)
