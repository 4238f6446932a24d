"""Layers that apply one function to every element (ReLU, PReLU and Dropout have files of their own)."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np

from ..base import AnyArray, Declaration, InPlace, Layer, Needs, Ops, Pass, Reads, Shapes
from ..mixins import Masked
from ..registry import register_layer


class _Pointwise(Layer):
    """One bottom, and one top of its shape.

    Any of them may run in place: if a backward reads the bottom, the net keeps that value elsewhere.
    """

    declares = Declaration(
        in_place=InPlace.ALLOWED, backward_reads=Reads.BOTTOM_DATA, splits_over_batch=True, layout_agnostic=True
    )

    def log_of_base(self, base: float) -> float:
        """Return ln(base); base -1 means e, as in exp_param and log_param. Raises LayerParamError."""
        if base == -1:
            return 1.0
        if not 0 < base < math.inf:
            raise self.error(f"base {base:g} has no logarithm", fix="use a base above 0, or -1 for e")
        return math.log(base)


@register_layer("AbsVal")
class AbsValLayer(_Pointwise):
    """y = |x|.

    Bottom 0: x, any shape. Top 0: y, the shape of x; not in place, as in Caffe.
    Backward reads the bottom: dx = dy * sign(x), where sign(0) is 0.
    Source: BVLC/caffe, src/caffe/layers/absval_layer.cpp.
    """

    declares = replace(_Pointwise.declares, in_place=InPlace.REFUSED)

    def forward(self, io: Pass) -> None:
        io.ops.absval.forward(io.bottom[0], io.top[0])

    def gradient(self, io: Pass, dy: AnyArray, dx: AnyArray) -> None:
        io.ops.absval.backward(io.bottom[0], dy, dx)


@register_layer("BNLL")
class BNLLLayer(_Pointwise):
    """y = log(1 + e^x) (binomial normal log likelihood), computed so that e^x does not overflow.

    Bottom 0: x, any shape. Top 0: y, the shape of x; may be in place.
    Backward reads the bottom: dx = dy * e / (e + 1) with e = exp(min(x, 50)).
    Source: BVLC/caffe, src/caffe/layers/bnll_layer.cpp.
    """

    def forward(self, io: Pass) -> None:
        io.ops.bnll.forward(io.bottom[0], io.top[0])

    def gradient(self, io: Pass, dy: AnyArray, dx: AnyArray) -> None:
        io.ops.bnll.backward(io.bottom[0], dy, dx)


@register_layer("Clip")
class ClipLayer(Masked, _Pointwise):
    """y = max(min, min(x, max)) (clip_param.min, clip_param.max; without a clip_param both are 0, as in Caffe).

    Bottom 0: x, any shape; NaN becomes `min`, as in Caffe. Top 0: y, the shape of x; may be in place.
    Backward reads the bottom: dx = dy where min <= x <= max, both ends included, else 0; or saved bits, if the net
    finds that no other layer's backward reads the bottom.
    Source: BVLC/caffe, src/caffe/layers/clip_layer.cpp.
    """

    def setup(self, bottom_shapes: Shapes) -> None:
        self.ends = self.param.clip_param.min, self.param.clip_param.max

    def declare(self, bottom_shapes: Shapes, top_shapes: Shapes, ops: Ops) -> None:
        self.declare_bits(top_shapes[0])

    def forward(self, io: Pass) -> None:
        if "bits" in io.scratch:
            io.ops.clip_bits.forward(io.bottom[0], io.top[0], io.scratch["bits"], *self.ends)
        else:
            io.ops.clip.forward(io.bottom[0], io.top[0], *self.ends)

    def gradient(self, io: Pass, dy: AnyArray, dx: AnyArray) -> None:
        if self.context.saves_bits:
            io.ops.bits.backward(io.scratch["bits"], dy, dx, 0.0)
        else:
            io.ops.clip.backward(io.bottom[0], dy, dx, *self.ends)


@register_layer("ELU")
class ELULayer(_Pointwise):
    """y = max(x, 0) + alpha * (e^min(x, 0) - 1) (elu_param.alpha, default 1).

    Bottom 0: x, any shape. Top 0: y, the shape of x; may be in place.
    Backward reads the top if alpha >= 0 (y > 0 exactly where x > 0), else the bottom:
    dx = dy * (1 where x > 0, else alpha + y, which is alpha * e^x).
    Source: BVLC/caffe, src/caffe/layers/elu_layer.cpp.
    """

    def setup(self, bottom_shapes: Shapes) -> None:
        self.alpha = self.param.elu_param.alpha
        reads = Reads.TOP_DATA if self.alpha >= 0 else Reads.BOTTOM_DATA
        self.declares = replace(self.declares, backward_reads=reads)

    def forward(self, io: Pass) -> None:
        io.ops.elu.forward(io.bottom[0], io.top[0], self.alpha)

    def gradient(self, io: Pass, dy: AnyArray, dx: AnyArray) -> None:
        if self.alpha >= 0:
            io.ops.elu.backward_top(io.top[0], dy, dx, self.alpha)
        else:
            io.ops.elu.backward_bottom(io.bottom[0], dy, dx, self.alpha)


@register_layer("Exp")
class ExpLayer(_Pointwise):
    """y = base^(shift + scale * x) (exp_param: base -1, which means e; scale 1; shift 0).

    Bottom 0: x, any shape. Top 0: y, the shape of x; may be in place.
    Backward reads the top: dx = dy * y * ln(base) * scale.
    Raises: LayerParamError for a base that is neither above 0 nor -1.
    Source: BVLC/caffe, src/caffe/layers/exp_layer.cpp.
    """

    declares = replace(_Pointwise.declares, backward_reads=Reads.TOP_DATA)

    def setup(self, bottom_shapes: Shapes) -> None:
        options = self.param.exp_param
        log_base = self.log_of_base(options.base)
        self.scale, self.shift = log_base * options.scale, log_base * options.shift  # y = e^(scale * x + shift)

    def forward(self, io: Pass) -> None:
        io.ops.exp.forward(io.bottom[0], io.top[0], self.scale, self.shift)

    def gradient(self, io: Pass, dy: AnyArray, dx: AnyArray) -> None:
        io.ops.exp.backward(io.top[0], dy, dx, self.scale)


@register_layer("Log")
class LogLayer(_Pointwise):
    """y = log_base(shift + scale * x) (log_param: base -1, which means e; scale 1; shift 0).

    Bottom 0: x, any shape. Top 0: y, the shape of x, -inf for the logarithm of 0, NaN of less; may be in place.
    Backward reads the bottom: dx = dy * scale / (ln(base) * (shift + scale * x)).
    Raises: LayerParamError for a base that is 1, or neither above 0 nor -1.
    Source: BVLC/caffe, src/caffe/layers/log_layer.cpp.
    """

    def setup(self, bottom_shapes: Shapes) -> None:
        options = self.param.log_param
        log_base = self.log_of_base(options.base)
        if log_base == 0:
            raise self.error("there are no logarithms to the base 1", fix="use another base above 0, or -1 for e")
        self.constants = options.scale, options.shift, 1 / log_base

    def forward(self, io: Pass) -> None:
        io.ops.log.forward(io.bottom[0], io.top[0], *self.constants)

    def gradient(self, io: Pass, dy: AnyArray, dx: AnyArray) -> None:
        io.ops.log.backward(io.bottom[0], dy, dx, *self.constants)


@register_layer("Power")
class PowerLayer(_Pointwise):
    """y = (shift + scale * x)^power (power_param: power 1, scale 1, shift 0).

    Bottom 0: x, any shape. Top 0: y, the shape of x, NaN or infinite where the power does not exist; may be in place.
    With power or scale 0, y is a constant (1 for power 0, else shift^power) that does not depend on x.
    Backward reads the bottom: dx = dy * scale * power * (shift + scale * x)^(power - 1); no values if y is a constant
    (dx = 0) or power is 1. Caffe divides y by shift + scale * x instead, which gives NaN where that is 0.
    Source: BVLC/caffe, src/caffe/layers/power_layer.cpp.
    """

    def setup(self, bottom_shapes: Shapes) -> None:
        options = self.param.power_param
        self.constants = options.power, options.scale, options.shift
        self.is_constant = options.power == 0 or options.scale == 0
        if self.is_constant or options.power == 1:
            self.declares = replace(self.declares, backward_reads=Reads.NONE)
        with np.errstate(all="ignore"):  # a shift of 0 to a negative power is infinite, as it is for x
            self.value = float(np.power(self.dtype.type(options.shift), self.dtype.type(options.power)))

    def forward_needs(self) -> Needs:
        return Needs() if self.is_constant else super().forward_needs()

    def forward(self, io: Pass) -> None:
        if self.is_constant:
            io.ops.fill(io.top[0], self.value)
        else:
            io.ops.power.forward(io.bottom[0], io.top[0], *self.constants)

    def gradient(self, io: Pass, dy: AnyArray, dx: AnyArray) -> None:
        if self.is_constant:
            io.ops.fill(dx, 0)
        else:
            io.ops.power.backward(io.bottom[0], dy, dx, *self.constants)


@register_layer("Sigmoid")
class SigmoidLayer(_Pointwise):
    """y = 1 / (1 + e^-x), accurate in float32 to a few units in the last place, even for tiny y.

    Bottom 0: x, any shape. Top 0: y, the shape of x; may be in place.
    Backward reads the top: dx = dy * y * (1 - y). For large x, 1 - y has the rounding error of y.
    Source: BVLC/caffe, src/caffe/layers/sigmoid_layer.cpp.
    """

    declares = replace(_Pointwise.declares, backward_reads=Reads.TOP_DATA)

    def forward(self, io: Pass) -> None:
        io.ops.sigmoid.forward(io.bottom[0], io.top[0])

    def gradient(self, io: Pass, dy: AnyArray, dx: AnyArray) -> None:
        io.ops.sigmoid.backward(io.top[0], dy, dx)


@register_layer("Swish")
class SwishLayer(_Pointwise):
    """y = x * s with s = sigmoid(beta * x) (swish_param.beta, default 1).

    Bottom 0: x, any shape. Top 0: y, the shape of x; may be in place.
    Backward reads the bottom: dx = dy * s * (1 + beta * x * (1 - s)); s is computed again.
    Source: BVLC/caffe, src/caffe/layers/swish_layer.cpp.
    """

    def setup(self, bottom_shapes: Shapes) -> None:
        self.beta = self.param.swish_param.beta

    def forward(self, io: Pass) -> None:
        io.ops.swish.forward(io.bottom[0], io.top[0], self.beta)

    def gradient(self, io: Pass, dy: AnyArray, dx: AnyArray) -> None:
        io.ops.swish.backward(io.bottom[0], dy, dx, self.beta)


@register_layer("TanH")
class TanHLayer(_Pointwise):
    """y = tanh(x).

    Bottom 0: x, any shape. Top 0: y, the shape of x; may be in place.
    Backward reads the top: dx = dy * (1 - y^2).
    Source: BVLC/caffe, src/caffe/layers/tanh_layer.cpp.
    """

    declares = replace(_Pointwise.declares, backward_reads=Reads.TOP_DATA)

    def forward(self, io: Pass) -> None:
        io.ops.tanh.forward(io.bottom[0], io.top[0])

    def gradient(self, io: Pass, dy: AnyArray, dx: AnyArray) -> None:
        io.ops.tanh.backward(io.top[0], dy, dx)


@register_layer("Threshold")
class ThresholdLayer(_Pointwise):
    """y = 1 where x > threshold, else 0 (threshold_param.threshold, default 0).

    Bottom 0: x, any shape. Top 0: y, the shape of x; may be in place. No backward.
    Source: BVLC/caffe, src/caffe/layers/threshold_layer.cpp.
    """

    declares = replace(_Pointwise.declares, backward_reads=Reads.NONE, no_backward=None)

    def setup(self, bottom_shapes: Shapes) -> None:
        self.threshold = self.param.threshold_param.threshold

    def forward(self, io: Pass) -> None:
        io.ops.threshold.forward(io.bottom[0], io.top[0], self.threshold)
