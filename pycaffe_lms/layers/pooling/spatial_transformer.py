"""SpatialTransformer."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from ...ops.records import SAMPLE_PARTS
from ..base import Declaration, Layer, Lives, Needs, Ops, Pass, Reads, Shapes, count, exactly
from ..registry import register_layer

_NUMBERS = ("theta_1_1", "theta_1_2", "theta_1_3", "theta_2_1", "theta_2_2", "theta_2_3")


@register_layer("SpatialTransformer")
class SpatialTransformerLayer(Layer):
    """y = x at the places to which an affine transformation takes a grid, bilinearly, with zeros around x.

    Output (p, q) is x at row (theta_1_1 g + theta_1_2 k + theta_1_3 + 1) / 2 * H and column (theta_2_1 g + theta_2_2 k
    + theta_2_3 + 1) / 2 * W, with g = 2 p / oh - 1 and k = 2 q / ow - 1; so rows come first, and 0.5 is added nowhere.
    st_param: output_H and output_W (oh, ow; default H, W); theta_1_1 to theta_2_3: those that are constants; with
    to_compute_dU: false the gradient of x is 0. transform_type is "affine", sampler_type "bilinear".
    Bottom 0: x, (N, C, H, W). Bottom 1: theta, N times those numbers, in order, that are no constants. Top 0:
    (N, C, oh, ow). Backward reads both bottoms.
    Raises: LayerParamError for other types, or an output without places; ShapeError for bottoms that do not fit.
    Source: daerduoCarey/SpatialTransformerLayer, src/caffe/layers/st_layer.cu.
    """

    declares = Declaration(bottoms=exactly(2), backward_reads=Reads.BOTTOM_DATA, splits_over_batch=True)

    def setup(self, bottom_shapes: Shapes) -> None:
        p = self.param.st_param
        for field, only in (("transform_type", "affine"), ("sampler_type", "bilinear")):
            if getattr(p, field) != only:
                raise self.error(f'{field} is "{getattr(p, field)}"', fix=f'use "{only}", the only one there is')
        self.affinity = tuple(float(getattr(p, name)) if p.HasField(name) else math.nan for name in _NUMBERS)

    def infer_shapes(self, bottom_shapes: Shapes) -> Shapes:
        x, theta = map(tuple, bottom_shapes)
        if len(x) != 4 or 0 in x[2:]:
            raise self.shape_error(f"has shape {x}", bottom=0, fix="give a bottom (N, C, H, W) with pixels")
        open_numbers = sum(map(math.isnan, self.affinity))
        if not theta or theta[0] != x[0] or count(theta, 1) != open_numbers:
            raise self.shape_error(
                f"has shape {theta}; needed: {x[0]} items of {open_numbers} numbers, six less those in st_param",
                bottom=1,
                fix="change num_output of the layer before, or the constants",
            )
        p = self.param.st_param
        out = tuple(getattr(p, f) if p.HasField(f) else n for f, n in zip(("output_H", "output_W"), x[2:], strict=True))
        if min(out) < 1:
            raise self.error(f"the output has size {out}", fix="give output_H and output_W of at least 1")
        return [(*x[:2], *out)]

    def declare(self, bottom_shapes: Shapes, top_shapes: Shapes, ops: Ops) -> None:
        work = (bottom_shapes[0][0], SAMPLE_PARTS, 6)
        self.scratch("work", work, dtype=np.float64, lives=Lives.CALL, forward=False)

    def backward_needs(self, propagate_down: Sequence[bool], param_propagate: Sequence[bool]) -> Needs:
        if propagate_down[1]:
            return Needs(bottoms=frozenset({0, 1}))
        return Needs(bottoms=frozenset({1})) if propagate_down[0] else Needs()

    def forward(self, io: Pass) -> None:
        io.ops.affine_sample.forward(*io.bottom, io.top[0], self.affinity)

    def backward(self, io: Pass) -> None:
        (x, theta), (dx, dtheta), dy = io.bottom, io.bottom_diff, io.top_diff[0]
        if dx is not None:
            if dy is None or not self.param.st_param.to_compute_dU:
                io.ops.fill(dx, 0)
            else:
                io.ops.affine_sample.backward(theta, dy, dx, self.affinity)
        if dtheta is not None:
            if dy is None:
                io.ops.fill(dtheta, 0)
            else:
                io.ops.affine_sample.backward_theta(x, theta, dy, dtheta, io.scratch["work"], self.affinity)
