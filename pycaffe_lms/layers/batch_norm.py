"""BatchNorm."""

from __future__ import annotations

from ..ops.parts import reduction_parts
from ..proto import caffe_pb2
from .base import TEST, InPlace, Layer, Lives, Needs, count, exactly
from .registry import register_layer

_ZERO = caffe_pb2.FillerParameter(type="constant", value=0)


@register_layer("BatchNorm")
class BatchNormLayer(Layer):
    """y = (x - mean) / sqrt(var + eps), statistics per channel (axis 1) over all other axes; no scale, no shift.

    With the batch's statistics (TRAIN, or use_global_stats: false) every forward also moves the running sums:
    factor = f * factor + 1, mean = f * mean + batch mean, var = f * var + m / (m - 1) * batch var, where
    f = moving_average_fraction and m = values per channel. With global statistics mean and var are the running sums
    over factor; a factor of 0 makes both 0.
    Bottom 0: x, (N, C, ...), or (N) as one channel. Top 0: y, the shape of x; may be in place.
    Parameters: mean (C), var (C), factor (1), never learned. Backward reads the top (batch statistics) or nothing.
    Raises: LayerParamError for a ParamSpec whose lr_mult is not 0; ShapeError for no axes, or when C changes.
    Source: BVLC/caffe, src/caffe/layers/batch_norm_layer.cpp (there (N) is refused).
    """

    bottoms = tops = exactly(1)
    in_place = InPlace.ALLOWED

    def setup(self, bottom_shapes):
        bn = self.param.batch_norm_param
        self.use_global = bn.use_global_stats if bn.HasField("use_global_stats") else self.phase == TEST
        self.fraction, self.eps = bn.moving_average_fraction, bn.eps
        for i, spec in enumerate(self.param.param):
            if spec.lr_mult != 0:
                raise self.error(
                    f"param {i} has lr_mult {spec.lr_mult:g}, but running statistics are not learned",
                    fix="write `param { lr_mult: 0 }` three times, or no param at all",
                )
        self.channels = self._channels(bottom_shapes[0])
        for shape in ((self.channels,), (self.channels,), (1,)):
            self.add_param(shape, _ZERO, lr_mult=0)

    def _channels(self, shape):
        if not shape:
            raise self.shape_error("has no axes", bottom=0, fix="give a bottom of shape (N, C, ...)")
        return shape[1] if len(shape) > 1 else 1

    def infer_shapes(self, bottom_shapes):
        shape = tuple(bottom_shapes[0])
        if self._channels(shape) != self.channels:
            raise self.shape_error(
                f"has shape {shape}, but the layer was set up for {self.channels} channels",
                bottom=0,
                fix="keep the number of channels, or build the net anew",
            )
        return [shape]

    def declare(self, bottom_shapes, top_shapes, ops):
        shape, c = bottom_shapes[0], self.channels
        self.size = shape[0], c, count(shape, 2)
        self.scratch("inv_std", (c,), lives=Lives.SAVED if self.needs_backward else Lives.CALL)
        self.scratch("mean", (c,), lives=Lives.CALL, backward=False)
        if not self.use_global:
            self.scratch("work", (2 * c * (reduction_parts(*self.size) + 1),), lives=Lives.CALL)

    def forward_needs(self):
        return Needs(bottoms=frozenset({0}), params=frozenset({0, 1, 2}) if self.use_global else frozenset())

    def forward_updates(self):
        return frozenset() if self.use_global else frozenset({0, 1, 2})

    def backward_needs(self, propagate_down, param_propagate):
        return Needs(tops=frozenset({0}) if propagate_down[0] and not self.use_global else frozenset())

    def forward(self, io):
        arrays = (io.bottom[0], io.top[0], io.scratch["inv_std"], io.scratch["mean"], *io.param)
        if self.use_global:
            io.ops.batch_norm_global_forward(*arrays, self.eps, *self.size)
        else:
            io.ops.batch_norm_train_forward(*arrays, self.fraction, self.eps, io.scratch["work"], *self.size)

    def backward(self, io):
        # the net may run this for a parameter's sake, though none is learned: force_backward asks for every gradient
        for diff, accumulate in zip(io.param_diff, io.accumulate, strict=True):
            if diff is not None and not accumulate:
                io.ops.fill(diff, 0)
        if io.bottom_diff[0] is None:
            return
        dy, dx, inv_std = io.top_diff[0], io.bottom_diff[0], io.scratch["inv_std"]
        if self.use_global:
            io.ops.batch_norm_global_backward(dy, dx, inv_std, *self.size)
        else:
            io.ops.batch_norm_backward(io.top[0], dy, dx, inv_std, io.scratch["work"], *self.size)
