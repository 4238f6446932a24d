"""BN: batch normalisation with a scale and a shift in one layer, in the two dialects of the forks."""

from __future__ import annotations

from collections.abc import Sequence

from ...arrays import AnyArray
from ...ops.axes import around_axis
from ...ops.norm_arguments import Moments, RunningSums
from ...ops.sum_parts import reduction_parts
from ...proto import caffe_pb2
from ..base import TEST, Declaration, InPlace, Layer, Lives, Needs, Ops, Pass, Shape, Shapes
from ..registry import register_layer

_SEGNET = ("scale_filler", "shift_filler", "bn_mode")
_YJXIONG = ("slope_filler", "bias_filler", "momentum", "eps", "frozen", "engine")
_SEGNET_EPS = 1e-9


def _constant(value: float) -> caffe_pb2.FillerParameter:
    return caffe_pb2.FillerParameter(type="constant", value=value)


@register_layer("BN")
class BNLayer(Layer):
    """y = scale * (x - mean) / sqrt(var + eps) + shift, per channel (axis 1); var is the biased variance.

    The fields of bn_param tell the dialect. With scale_filler, shift_filler or bn_mode it is SegNet's: always the
    batch's statistics, eps 1e-9; bn_mode INFERENCE: y = scale * x + shift. Else yjxiong's: the batch's statistics in
    TRAIN, which move mean = momentum * mean + (1 - momentum) * batch mean (var likewise); the running ones in TEST, or
    everywhere with `frozen`, which also stops learning: the lr_mult of every blob becomes 0 whatever is written.
    Bottom 0: x, (N, C, ...). Top 0: the shape of x; may be in place.
    Parameters, all (1, C, 1, 1): scale, shift, and in yjxiong's running mean and var, never learned. Without a filler
    scale starts at 1, shift at 0 (in the forks scale would start, and stay useless, at 0).
    Backward reads the scale, and x in INFERENCE; the normalised x is saved.
    Raises: LayerParamError for fields of both dialects; ShapeError for fewer than 2 axes, or when C changes.
    Source: alexgkendall/caffe-segnet, and yjxiong/caffe as hszhao/PSPNet has it, src/caffe/layers/bn_layer.cpp.
    """

    declares = Declaration(in_place=InPlace.ALLOWED)

    def setup(self, bottom_shapes: Shapes) -> None:
        bn = self.param.bn_param
        given = [[name for name in names if bn.HasField(name)] for names in (_SEGNET, _YJXIONG)]
        if all(given):
            raise self.error(
                f"bn_param mixes {given[0][0]} of SegNet's BN with {given[1][0]} of yjxiong's",
                fix="keep the fields of the fork that the model comes from",
            )
        segnet = bool(given[0])
        self.channels = c = self._channels(bottom_shapes[0])
        self.affine = segnet and bn.bn_mode == caffe_pb2.BNParameter.INFERENCE
        self.frozen = bn.frozen and not segnet
        self.use_global = not segnet and (self.frozen or self.phase == TEST)
        self.moves = not segnet and not self.use_global
        self.momentum, self.eps = bn.momentum, _SEGNET_EPS if segnet else bn.eps
        shape = (1, c, 1, 1)
        for name, first in zip(_SEGNET if segnet else _YJXIONG, (1, 0), strict=False):
            filler = getattr(bn, name) if bn.HasField(name) else _constant(first)
            self.add_param(shape, filler, lr_mult=0 if self.frozen else 1)
        if not segnet:
            self.add_param(shape, _constant(0), lr_mult=0)
            self.add_param(shape, _constant(1 if self.frozen else 0), lr_mult=0)
        for spec in self.param.param[0 if self.frozen else 2 :]:
            spec.lr_mult = spec.decay_mult = 0

    def _channels(self, shape: Shape) -> int:
        if len(shape) < 2:
            raise self.shape_error(f"has shape {tuple(shape)}", bottom=0, fix="give a bottom of shape (N, C, ...)")
        return shape[1]

    def infer_shapes(self, bottom_shapes: Shapes) -> Shapes:
        shape = tuple(bottom_shapes[0])
        if self._channels(shape) != self.channels:
            raise self.shape_error(
                f"has {shape[1]} channels, but the layer was set up for {self.channels}",
                bottom=0,
                fix="keep the number of channels, or build the net anew",
            )
        return [shape]

    def takes_channels_last(self, bottom_shapes: Shapes, top_shapes: Shapes, ops: Ops) -> bool:
        return len(bottom_shapes[0]) >= 4

    def declare(self, bottom_shapes: Shapes, top_shapes: Shapes, ops: Ops) -> None:
        shape, c = tuple(bottom_shapes[0]), self.channels
        self.size = around_axis(shape, 1, self.context.channels_last)
        self.scratch("work", (2 * c * (reduction_parts(*self.size) + 1),), lives=Lives.CALL)
        if self.affine:
            return
        self.scratch("inv_std", (c,), lives=self.saved_if_needed)
        self.scratch("mean", (c,), lives=Lives.CALL, backward=False)
        self.scratch("running", (2 * c + 1,), lives=Lives.CALL, backward=False)
        if not self.frozen:
            self.scratch("normal", shape)

    def forward_needs(self) -> Needs:
        return Needs(bottoms=frozenset({0}), params=frozenset(range(4 if self.use_global else 2)))

    def forward_updates(self) -> frozenset[int]:
        return frozenset({2, 3}) if self.moves else frozenset()

    def backward_needs(self, propagate_down: Sequence[bool], param_propagate: Sequence[bool]) -> Needs:
        return Needs(
            bottoms=frozenset({0}) if self.affine and param_propagate[0] else frozenset(),
            params=frozenset({0}) if propagate_down[0] else frozenset(),
        )

    def forward(self, io: Pass) -> None:
        x, y = io.bottom[0], io.top[0]
        if not self.affine:
            x = self._normalise(io, x, io.scratch.get("normal", y))
        io.ops.scale.forward(x, io.param[0], io.param[1], y, *self.size)

    def _normalise(self, io: Pass, x: AnyArray, out: AnyArray) -> AnyArray:
        """out = the normalised x; moves the running statistics. Returns out."""
        c, running = self.channels, io.scratch["running"]
        arrays = x, out, Moments(io.scratch["mean"], io.scratch["inv_std"])
        if self.use_global:
            one = running[2 * c :]
            io.ops.fill(one, 1)
            sums = RunningSums(io.param[2].reshape(-1), io.param[3].reshape(-1), one)
            io.ops.batch_norm_global.forward(*arrays, sums, self.eps, self.size)
            return out
        # BatchNorm's sums, started at 0, are this batch's mean and its variance times m / (m - 1)
        io.ops.fill(running, 0)
        batch = RunningSums(running[:c], running[c : 2 * c], running[2 * c :])
        io.ops.batch_norm_train.forward(*arrays, batch, 0.0, self.eps, io.scratch["work"], self.size)
        items = self.size[0] * self.size[2]
        if self.moves and items:
            for i, unbias in ((0, 1.0), (1, (items - 1) / items if items > 1 else 1.0)):
                io.ops.moving_average(batch[i], io.param[2 + i], self.momentum, (1 - self.momentum) * unbias)
        return out

    def backward(self, io: Pass) -> None:
        dy, dx, work = io.top_diff[0], io.bottom_diff[0], io.scratch["work"]
        normal = io.bottom[0] if self.affine else io.scratch.get("normal")
        learned = 0 if self.frozen else 2
        for diff, accumulate in zip(io.param_diff[learned:], io.accumulate[learned:], strict=True):
            if diff is not None and not accumulate:
                io.ops.fill(diff, 0)
        ds, db = (None, None) if self.frozen else io.param_diff[:2]
        if dx is not None or ds is not None or db is not None:
            sums = ds, db, bool(io.accumulate[0]), bool(io.accumulate[1]), work
            io.ops.scale.backward(normal, io.param[0], dy, dx, *sums, *self.size)
        if dx is None:
            return
        if self.use_global:
            io.ops.batch_norm_global.backward(dx, dx, io.scratch["inv_std"], *self.size)
        elif not self.affine:
            io.ops.batch_norm.backward(normal, dx, dx, io.scratch["inv_std"], work, *self.size)
