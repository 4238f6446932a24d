"""MVN: mean-variance normalisation."""

from __future__ import annotations

from collections.abc import Sequence

from ...ops.sum_parts import reduction_parts
from ..base import AnyArray, Declaration, InPlace, Layer, Lives, Needs, Ops, Pass, Shapes
from ..registry import register_layer


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
