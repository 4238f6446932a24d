"""BatchNorm, Scale, a sum and ReLU as one layer, which a solver's iterations run in place of these layers.

No prototxt can name it: `net/passes/fusion.py` makes it from layers of a net, which keep their names for users.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ...ops.axes import around_axis
from ...ops.records import (
    Affine,
    AffineGradients,
    BatchNorm,
    FusedNormGradients,
    Grid,
    Moments,
    Rectified,
    RunningSums,
)
from ...ops.sum_parts import bits_come_free, fused_norm_work
from ...proto.caffe_pb2 import LayerParameter
from ..base import Lives, Needs, Ops, Pass, Shapes
from ..mixins import Masked
from .batch_norm import BatchNormLayer
from .scale import ScaleLayer


class FusedNormLayer(Masked):
    """y = act(xhat * scale + bias + r), xhat = (x - mean) / sqrt(var + eps) as in BatchNorm, act: max(., 0), or none.

    Bottoms: x, then r where there is a sum. Top: y. Parameters: those of the BatchNorm, then those of the Scale.
    Backward reads x and the scale, and for the sign of ReLU's input saved bits, else y (with r) or the bias (without).
    """

    def __init__(
        self, param: LayerParameter, norm: BatchNormLayer, affine: ScaleLayer | None, *, adds: bool, relu: bool
    ):
        super().__init__(param, norm.context)
        self.norm, self.affine, self.adds, self.relu = norm, affine, adds, relu
        self.params = [*self.norm.params, *(self.affine.params if self.affine is not None else [])]
        self.has_bias = self.affine is not None and len(self.affine.params) > 1

    def takes_channels_last(self, bottom_shapes: Shapes, top_shapes: Shapes, ops: Ops) -> bool:
        return self.norm.takes_channels_last(bottom_shapes[:1], top_shapes, ops)

    def declare(self, bottom_shapes: Shapes, top_shapes: Shapes, ops: Ops) -> None:
        shape = tuple(bottom_shapes[0])
        self.grid = around_axis(shape, 1, self.context.channels_last) if len(shape) > 1 else Grid(shape[0], 1, 1)
        self.rule = BatchNorm(self.grid, self.norm.eps, self.norm.fraction, self.norm.use_global, self.norm.outside)
        c = self.norm.channels
        kept = self.saved_if_needed
        self.scratch("inv_std", (c,), lives=kept, remat_reads=True)
        self.scratch("mean", (c,), lives=kept, remat_reads=True)
        if self.relu:
            self.declare_bits(top_shapes[0])
        self.scratch("work", (fused_norm_work(*self.grid),), lives=Lives.CALL)

    @property
    def quicker_with_bits(self) -> bool:
        return self.relu and self.adds and bits_come_free(self.grid.channels, self.grid.inner)

    def forward_needs(self) -> Needs:
        statistics = {0, 1, 2} if self.norm.use_global else set()
        bottoms = range(2 if self.adds else 1)
        return Needs(bottoms=frozenset(bottoms), params=frozenset(statistics | set(range(3, len(self.params)))))

    def forward_updates(self) -> frozenset[int]:
        return self.norm.forward_updates()

    def remat_needs(self) -> Needs | None:
        return Needs(bottoms=frozenset(range(2 if self.adds else 1)), params=frozenset(range(3, len(self.params))))

    def backward_needs(self, propagate_down: Sequence[bool], param_propagate: Sequence[bool]) -> Needs:
        wants_x = propagate_down[0]
        wants_scale = self.affine is not None and param_propagate[3]
        finds_mask = self.relu and not self.adds and not self.context.saves_bits
        reads_x = wants_scale or (wants_x and not self.norm.use_global) or finds_mask
        params = {3} if self.affine is not None and (wants_x or finds_mask) else set()
        if finds_mask and self.has_bias:
            params.add(4)
        return Needs(
            bottoms=frozenset({0} if reads_x else ()),
            tops=frozenset({0} if self.relu and self.adds and not self.context.saves_bits else ()),
            params=frozenset(params),
        )

    def _affine(self, params: Sequence[Any]) -> tuple[Any, Any]:
        gamma = params[3] if self.affine is not None else None
        return gamma, params[4] if self.has_bias else None

    def forward(self, io: Pass) -> None:
        moments, running = self._moments(io), RunningSums(*io.param[:3])
        if self.norm.use_global:
            io.ops.batch_norm_running(moments, running, self.rule)
        else:
            io.ops.batch_norm_statistics(io.bottom[0], moments, running, io.scratch["work"], self.rule)
        self.rematerialize(io)

    def _moments(self, io: Pass) -> Moments:
        return Moments(io.scratch["mean"], io.scratch["inv_std"])

    def in_place_reuse(self, forward: bool) -> Sequence[tuple[str, int, int]]:
        if forward:
            return (("bottom", 1, 0), ("bottom", 0, 0)) if self.adds else (("bottom", 0, 0),)
        return (("top_diff", 0, 1), ("bottom", 0, 0)) if self.adds else (("top_diff", 0, 0),)

    def effort(self, forward: bool, again: bool) -> tuple[float, float]:
        return self.norm.effort(forward, again)

    def rematerialize(self, io: Pass) -> None:
        r = io.bottom[1] if self.adds else None
        values = io.bottom[0], r, io.top[0], self._moments(io), Affine(*self._affine(io.param))
        io.ops.fused_norm.forward(*values, self.relu, self.grid, io.scratch.get("bits"))

    def backward(self, io: Pass) -> None:
        adds = (bool(add) for add in self._affine(io.accumulate))
        sums = AffineGradients(*self._affine(io.param_diff), *adds)
        io.ops.fused_norm.backward(
            io.bottom[0],
            io.top_diff[0],
            FusedNormGradients(io.bottom_diff[0], io.bottom_diff[1] if self.adds else None, sums),
            Rectified(io.top[0], io.scratch.get("bits")) if self.relu else None,
            self._moments(io),
            Affine(*self._affine(io.param)),
            io.scratch["work"],
            self.rule,
        )
