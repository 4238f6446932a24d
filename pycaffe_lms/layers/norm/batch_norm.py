"""BatchNorm."""

from __future__ import annotations

from collections.abc import Sequence

from ...ops.axes import around_axis
from ...ops.norm_arguments import Affine, AffineGradients, Moments, RunningSums
from ...ops.sum_parts import reduction_parts
from ...proto import caffe_pb2
from ..base import TEST, Declaration, InPlace, Layer, Lives, Needs, Ops, Pass, Role, Shape, Shapes, count
from ..registry import register_layer

_ZERO, _ONE = (caffe_pb2.FillerParameter(type="constant", value=v) for v in (0, 1))


@register_layer("BatchNorm")
class BatchNormLayer(Layer):
    """y = (x - mean) / sqrt(var + eps), statistics per channel (axis 1) over all other axes.
    With batch_norm_param.scale_bias (or a scale_filler or bias_filler): y = that * scale + bias, both learned.

    With the batch's statistics (TRAIN, or use_global_stats: false) every forward also moves the running sums:
    factor = f * factor + 1, mean = f * mean + batch mean, var = f * var + m / (m - 1) * batch var, where
    f = moving_average_fraction and m = values per channel. With global statistics mean and var are the running sums
    over factor; a factor of 0 makes both 0.
    Bottom 0: x, (N, C, ...), or (N) as one channel. Top 0: y, the shape of x; may be in place.
    Parameters: mean (C), var (C), factor (1), never learned; with scale_bias scale (C), first 1, and bias (C), first 0.
    Backward reads, for x's gradient: the top (batch statistics) or nothing; with scale_bias the scale, and the bottom
    (batch statistics). For that of the scale: the bottom.
    Raises: LayerParamError for a ParamSpec of a statistic whose lr_mult is not 0, or scale_bias: false with a filler;
    ShapeError for no axes, or when C changes.
    Source: BVLC/caffe, src/caffe/layers/batch_norm_layer.cpp (there (N) is refused); scale_bias: NVIDIA/caffe, same
    file (there the running values are averages, with a factor that stays 1: its weights load as they are).
    """

    declares = Declaration(in_place=InPlace.ALLOWED)

    def setup(self, bottom_shapes: Shapes) -> None:
        bn = self.param.batch_norm_param
        self.use_global = bn.use_global_stats if bn.HasField("use_global_stats") else self.phase == TEST
        self.fraction, self.eps = bn.moving_average_fraction, bn.eps
        fillers = [f for f in ("scale_filler", "bias_filler") if bn.HasField(f)]
        if fillers and bn.HasField("scale_bias") and not bn.scale_bias:
            raise self.error(
                f"has scale_bias: false and {fillers[0]}", fix=f"write scale_bias: true or no {fillers[0]}"
            )
        self.scaled = bn.scale_bias or bool(fillers)
        for i, spec in enumerate(self.param.param[:3]):
            if spec.lr_mult != 0:
                raise self.error(
                    f"param {i} has lr_mult {spec.lr_mult:g}, but running statistics are not learned",
                    fix="write `param { lr_mult: 0 }` three times, or no param at all",
                )
        self.channels = self._channels(bottom_shapes[0])
        for shape in ((self.channels,), (self.channels,), (1,)):
            self.add_param(shape, _ZERO, lr_mult=0)
        if self.scaled:
            self.add_param((self.channels,), bn.scale_filler if bn.HasField("scale_filler") else _ONE)
            self.add_param((self.channels,), bn.bias_filler if bn.HasField("bias_filler") else _ZERO)

    @property
    def role(self) -> Role | None:
        return None if self.scaled else Role.NORMALISE

    def _channels(self, shape: Shape) -> int:
        if not shape:
            raise self.shape_error("has no axes", bottom=0, fix="give a bottom of shape (N, C, ...)")
        return shape[1] if len(shape) > 1 else 1

    def infer_shapes(self, bottom_shapes: Shapes) -> Shapes:
        shape = tuple(bottom_shapes[0])
        if self._channels(shape) != self.channels:
            raise self.shape_error(
                f"has shape {shape}, but the layer was set up for {self.channels} channels",
                bottom=0,
                fix="keep the number of channels, or build the net anew",
            )
        return [shape]

    def takes_channels_last(self, bottom_shapes: Shapes, top_shapes: Shapes, ops: Ops) -> bool:
        return len(bottom_shapes[0]) >= 4

    def takes_half(self, bottom_shapes: Shapes, top_shapes: Shapes, ops: Ops) -> bool:
        return True

    def declare(self, bottom_shapes: Shapes, top_shapes: Shapes, ops: Ops) -> None:
        shape, c = bottom_shapes[0], self.channels
        self.size = around_axis(shape, 1, self.context.channels_last) if len(shape) > 1 else (count(shape), c, 1)
        if self.use_global:
            self.operation = ops.batch_norm_scaled_global if self.scaled else ops.batch_norm_global
        else:
            self.operation = ops.batch_norm_scaled_train if self.scaled else ops.batch_norm_train
        kept = self.saved_if_needed
        self.scratch("inv_std", (c,), lives=kept, remat_reads=not self.use_global)
        self.scratch("mean", (c,), lives=kept, backward=self.scaled, remat_reads=not self.use_global)
        if self.scaled or not self.use_global:
            self.scratch(
                "work", (2 * c * (reduction_parts(*self.size) + 1),), lives=Lives.CALL, forward=not self.use_global
            )

    def forward_needs(self) -> Needs:
        statistics = {0, 1, 2} if self.use_global else set()
        return Needs(bottoms=frozenset({0}), params=frozenset(statistics | set(range(3, len(self.params)))))

    def forward_updates(self) -> frozenset[int]:
        return frozenset() if self.use_global else frozenset({0, 1, 2})

    def remat_needs(self) -> Needs | None:
        return Needs(bottoms=frozenset({0}), params=frozenset(range(0 if self.use_global else 3, len(self.params))))

    def backward_needs(self, propagate_down: Sequence[bool], param_propagate: Sequence[bool]) -> Needs:
        values = frozenset({0}) if propagate_down[0] and not self.use_global else frozenset()
        if not self.scaled:
            return Needs(tops=values)
        scale = frozenset({3}) if propagate_down[0] else frozenset()
        return Needs(bottoms=frozenset({0}) if param_propagate[3] else values, params=scale)

    def forward(self, io: Pass) -> None:
        affine = (Affine(*io.param[3:]),) if self.scaled else ()
        arrays = (io.bottom[0], io.top[0], self._moments(io), RunningSums(*io.param[:3]), *affine)
        if self.use_global:
            self.operation.forward(*arrays, self.eps, self.size)
        else:
            self.operation.forward(*arrays, self.fraction, self.eps, io.scratch["work"], self.size)

    def _moments(self, io: Pass) -> Moments:
        return Moments(io.scratch["mean"], io.scratch["inv_std"])

    def effort(self, forward: bool, again: bool) -> tuple[float, float]:
        if again or self.use_global:
            return 1.0, 1.0
        return (1.4 if forward else 1.6), 1.0  # statistics first, then the values

    def rematerialize(self, io: Pass) -> None:
        if self.use_global:
            self.forward(io)
            return
        x, y, mean, inv_std = io.bottom[0], io.top[0], io.scratch["mean"], io.scratch["inv_std"]
        if self.scaled:
            io.ops.batch_norm_scaled_apply(x, y, self._moments(io), Affine(*io.param[3:]), self.size)
        else:
            io.ops.batch_norm_apply(x, y, inv_std, mean, *self.size)

    def backward(self, io: Pass) -> None:
        # the net may run this for a statistic's sake, though none is learned: force_backward asks for every gradient
        for diff, accumulate in zip(io.param_diff[:3], io.accumulate[:3], strict=True):
            if diff is not None and not accumulate:
                io.ops.fill(diff, 0)
        dy, dx, inv_std = io.top_diff[0], io.bottom_diff[0], io.scratch["inv_std"]
        if self.scaled:
            gradients = AffineGradients(*io.param_diff[3:], *(bool(a) for a in io.accumulate[3:]))
            values = io.bottom[0], dy, dx, self._moments(io), io.param[3], gradients
            io.ops.batch_norm_scaled.backward(*values, not self.use_global, io.scratch["work"], self.size)
        elif dx is not None and self.use_global:
            io.ops.batch_norm_global.backward(dy, dx, inv_std, *self.size)
        elif dx is not None:
            io.ops.batch_norm.backward(io.top[0], dy, dx, inv_std, io.scratch["work"], *self.size)
