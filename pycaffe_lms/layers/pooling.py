"""Pooling: maxima, averages or random elements of windows."""

from __future__ import annotations

from ..ops.geometry import PoolGeometry, pool_output_size
from ..ops.window_places import place_dtype
from ..proto import caffe_pb2
from .base import TRAIN, Lives, Needs, between, exactly
from .draws import RandomLayer
from .pool_fields import pool_windows, rounds_up
from .registry import register_layer


@register_layer("Pooling")
@register_layer("NdPooling")
class PoolingLayer(RandomLayer):
    """MAX: y = the window's maximum (the first in row-major order; never a NaN, nor padding; -FLT_MAX of nothing).
    AVE: y = the window's sum / its size, where near padding counts in full and far padding up to the pad border.
    STOCHASTIC, for values of at least 0 and without padding. TRAIN: y = one of the window's elements, x with
    probability x / sum (the first whose running sum reaches a random share of the sum); TEST: y = sum of x^2 / sum of
    x, 0 where the sum is not positive.

    Bottom 0: (N, C, spatial...), 1 or more spatial axes. Top 0: (N, C, out...) with out = ceil((in + 2 pad - kernel) /
    stride) + 1 (round_mode FLOOR or ceil_mode false: floor), less a last window that would start beyond in + pad.
    Top 1 (MAX only, no gradient): the row-major index of each maximum inside its plane (h * W + w), -1 of nothing.
    global_pooling: the kernel is the whole plane. kernel_shape, stride_shape, pad_shape: a value per spatial axis.
    Backward reads only the saved place of each chosen element; STOCHASTIC in TEST bottom 0, top 0 and saved sums.
    What TRAIN chooses is a function of `seed` (set by the net) and of the number of forwards before.
    `engine` is accepted and changes nothing.
    Raises: LayerParamError for contradicting or impossible fields; ShapeError for fewer than 3 axes, for another number
    of axes after set-up, or for an input that no window fits.
    Source: BVLC/caffe, src/caffe/layers/pooling_layer.{cpp,cu}; the generator is Dropout's. NdPooling: chuckcho/
    video-caffe, which has the _shape fields.
    """

    bottoms = exactly(1)
    tops = between(1, 2)
    random = False
    splits_over_batch = True

    def setup(self, bottom_shapes):
        pool, self.ndim = self.param.pooling_param, len(bottom_shapes[0])
        if self.ndim < 3:
            raise self.shape_error(
                f"has shape {tuple(bottom_shapes[0])}, but pooling works on 3 or more axes (items, channels, spatial "
                "axes)",
                bottom=0,
                fix="reshape the bottom to 3 or more axes",
            )
        self.max = pool.pool == caffe_pb2.PoolingParameter.MAX
        self.random = pool.pool == caffe_pb2.PoolingParameter.STOCHASTIC
        if len(self.param.top) > 1 and not self.max:
            raise self.error("only MAX pooling has a second top", fix="remove the second top, or use pool: MAX")
        self.ceil = rounds_up(self, pool)
        self.kernel, self.stride, self.pad = pool_windows(self, pool, self.ndim - 2)
        if self.random and any(self.pad):
            raise self.error("stochastic pooling takes no pad", fix="remove pad, or use pool: MAX or pool: AVE")

    def infer_shapes(self, bottom_shapes):
        shape = tuple(bottom_shapes[0])
        if len(shape) != self.ndim:
            raise self.shape_error(
                f"has shape {shape}, but the layer was set up for {self.ndim} axes", bottom=0, fix="keep their number"
            )
        window, out = self.kernel or shape[2:], []
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

    def takes_channels_last(self, bottom_shapes, top_shapes, ops):
        return self.ndim == 4 and not self.random

    def takes_half(self, bottom_shapes, top_shapes, ops):
        return not self.random and len(top_shapes) == 1  # places in a plane take more digits

    def declare(self, bottom_shapes, top_shapes, ops):
        bottom, top = tuple(bottom_shapes[0]), tuple(top_shapes[0])
        window = self.kernel or bottom[2:]
        geometry = PoolGeometry(bottom[0] * bottom[1], bottom[2:], top[2:], window, self.stride, self.pad)
        if self.ndim != 4:
            geometry = geometry.simpler(keep_planes=len(top_shapes) > 1)
        self.geometry = geometry
        self.suffix = "" if len(geometry.kernel) == 2 else "_nd"  # the operations for 2 axes, or for any number
        self.numbers = (geometry,)
        if self.channels_last:
            self.suffix, self.numbers = "_last", (bottom[1], geometry)
        if self.max or (self.random and self.phase == TRAIN):
            self.scratch("mask", top, dtype=place_dtype(geometry), lives=Lives.SAVED)
            if self.random:
                self.dial("key", 3)
        elif self.random:
            self.scratch("sum", top, lives=Lives.SAVED)

    def turn(self):
        return self.draw() if self.random and self.phase == TRAIN else {}

    def backward_needs(self, propagate_down, param_propagate):
        if self.random and self.phase != TRAIN:
            return Needs(bottoms=frozenset({0}), tops=frozenset({0}))
        return Needs()

    def forward(self, io):
        x, y, g = io.bottom[0], io.top[0], self.geometry
        if self.max:
            top_mask = io.top[1] if len(io.top) > 1 else None
            self._operation(io, "max_pool{}_forward")(x, y, io.scratch.get("mask"), top_mask, *self.numbers)
        elif not self.random:
            self._operation(io, "average_pool{}_forward")(x, y, *self.numbers)
        elif self.phase == TRAIN:
            io.ops.stochastic_pool_forward(x, y, io.scratch.get("mask"), io.scratch["key"], g)
        else:
            io.ops.stochastic_pool_mean_forward(x, y, io.scratch.get("sum"), g)

    def backward(self, io):
        dy, dx, g = io.top_diff[0], io.bottom_diff[0], self.geometry
        if dx is None:
            return
        if dy is None:  # only the second top has a gradient, which counts for nothing
            io.ops.fill(dx, 0.0)
        elif "mask" in io.scratch:
            self._operation(io, "max_pool{}_backward")(dy, io.scratch["mask"], dx, *self.numbers)
        elif self.random:
            io.ops.stochastic_pool_mean_backward(dy, io.bottom[0], io.top[0], io.scratch["sum"], dx, g)
        else:
            self._operation(io, "average_pool{}_backward")(dy, dx, *self.numbers)

    def _operation(self, io, name: str):
        return getattr(io.ops, name.format(self.suffix))
