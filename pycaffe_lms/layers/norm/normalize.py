"""Normalize and MVN: normalisation of each item by itself."""

from __future__ import annotations

from collections.abc import Sequence

from ...ops.records import Grid, L2Norm
from ...ops.sum_parts import reduction_parts
from ..base import AnyArray, Declaration, InPlace, Layer, Lives, Needs, Ops, Pass, Shapes, count
from ..registry import register_layer


@register_layer("Normalize")
class NormalizeLayer(Layer):
    """y = scale * x / sqrt(sum of x^2 + eps), the sum over the channels at each place; over all of an item with
    norm_param.across_spatial (the default).

    Bottom 0: x, (N, C, ...). Top 0: y, the shape of x.
    Parameters: scale, one number () with channel_shared (the default), else (C); first scale_filler, or 1.
    Backward reads x, and the scale for the gradient of x.
    Raises: ShapeError for fewer than 2 axes, or another number of channels than before.
    Source: weiliu89/caffe (SSD), src/caffe/layers/normalize_layer.cpp. There the gradient of x is right only
    where all channels have the same scale.
    """

    declares = Declaration(splits_over_batch=True)

    def setup(self, bottom_shapes: Shapes) -> None:
        norm = self.param.norm_param
        self.across, self.shared, self.eps = norm.across_spatial, norm.channel_shared, norm.eps
        self.check_axes(bottom_shapes[0], 2)
        self.channels = bottom_shapes[0][1]
        self.add_param(() if self.shared else (self.channels,), self.filler_or(norm, "scale_filler", 1))

    def infer_shapes(self, bottom_shapes: Shapes) -> Shapes:
        shape = tuple(bottom_shapes[0])
        self.check_axes(shape, 2)
        if not self.shared:
            self.check_kept("channels", shape[1], self.channels)
        return [shape]

    def declare(self, bottom_shapes: Shapes, top_shapes: Shapes, ops: Ops) -> None:
        n, c, *places = bottom_shapes[0]
        s = count(places)
        self.norm = L2Norm(Grid(n, c, s), self.eps, self.across)
        norms = n if self.across else n * s
        rows = n * reduction_parts(1, n, c * s)
        columns = reduction_parts(n, 1, c * s) if self.shared else c * reduction_parts(n, c, s)
        self.scratch("squares", (norms,), lives=self.saved_if_needed)
        self.scratch("dots", (norms,), lives=Lives.CALL, forward=False)
        self.scratch("work", (max(rows, columns),), lives=Lives.CALL)

    def backward_needs(self, propagate_down: Sequence[bool], param_propagate: Sequence[bool]) -> Needs:
        return Needs(
            bottoms=frozenset({0}) if propagate_down[0] or param_propagate[0] else frozenset(),
            params=frozenset({0}) if propagate_down[0] else frozenset(),
        )

    def forward(self, io: Pass) -> None:
        arrays = io.bottom[0], io.param[0], io.top[0], io.scratch["squares"], io.scratch["work"]
        io.ops.normalize.forward(*arrays, self.norm)

    def backward(self, io: Pass) -> None:
        x, dy, squares, work = io.bottom[0], io.top_diff[0], io.scratch["squares"], io.scratch["work"]
        if io.param_diff[0] is not None:
            sums = x, dy, io.param_diff[0], io.accumulate[0], squares, work
            io.ops.normalize.backward_scale(*sums, self.norm)
        if io.bottom_diff[0] is not None:
            arrays = x, io.param[0], dy, io.bottom_diff[0], squares, io.scratch["dots"], work
            io.ops.normalize.backward_data(*arrays, self.norm)


@register_layer("MVN")
class MVNLayer(Layer):
    """y = (x - mean) / (std + eps), or x - mean without normalize_variance (default true); std is the biased one.

    Statistics of each channel of each item over H and W, or of each item over C, H and W with across_channels.
    Bottom 0: x, up to 4 axes. Top 0: y, always 4 axes (N, C, H, W), missing ones 1; may be in place.
    Backward reads the top with normalize_variance, else nothing: dx = (dy - mean(dy) - y * mean(dy * y)) / (std + eps),
    as in Caffe, which is exact up to the factor std / (std + eps) in the last term.
    Raises: ShapeError for more than 4 axes.
    Source: BVLC/caffe, src/caffe/layers/mvn_layer.cpp.
    """

    declares = Declaration(in_place=InPlace.ALLOWED, splits_over_batch=True)

    def infer_shapes(self, bottom_shapes: Shapes) -> Shapes:
        shape, options = tuple(bottom_shapes[0]), self.param.mvn_param
        if len(shape) > 4:
            raise self.shape_error(f"has shape {shape}, more than 4 axes", bottom=0, fix="reshape it to (N, C, H, W)")
        n, c, h, w = top = (*shape, *(1,) * (4 - len(shape)))
        self.variance, self.eps = options.normalize_variance, options.eps
        self.size = (n, c * h * w) if options.across_channels else (n * c, h * w)
        return [top]

    def declare(self, bottom_shapes: Shapes, top_shapes: Shapes, ops: Ops) -> None:
        rows, dim = self.size
        self.scratch("work", (2 * rows * (reduction_parts(1, rows, dim) + 1),), lives=Lives.CALL)
        self.scratch("inv_std", (rows,), lives=Lives.SAVED if self._saves() else Lives.CALL, backward=self._saves())

    def _saves(self) -> bool:
        return self.context.needs_backward and self.variance

    def backward_needs(self, propagate_down: Sequence[bool], param_propagate: Sequence[bool]) -> Needs:
        return Needs(tops=frozenset({0}) if propagate_down[0] and self.variance else frozenset())

    def forward(self, io: Pass) -> None:
        arrays = (io.bottom[0], io.top[0], io.scratch["inv_std"], io.scratch["work"])
        io.ops.mvn.forward(*arrays, self.variance, self.eps, *self.size)

    def gradient(self, io: Pass, dy: AnyArray, dx: AnyArray) -> None:
        inv_std = io.scratch["inv_std"] if self.variance else None
        io.ops.mvn.backward(io.top[0], dy, dx, inv_std, io.scratch["work"], *self.size)
