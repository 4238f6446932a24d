"""Warp and FlowWarp: maps sampled where an optical flow leads."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from ...ops.records import Warping
from ...proto.caffe_pb2 import FlowWarpParameter
from ..base import Declaration, Layer, Lives, Needs, Ops, Pass, Reads, Shapes, count, exactly
from ..registry import register_layer

_LARGEST = 2**32 - 1  # positions in a map that the GPU's lists can hold


@register_layer("FlowWarp")
class FlowWarpLayer(Layer):
    """y at (row h, column w) is x at (h + v, w + u), bilinearly.

    Bottom 0: x, (N, C, H, W). Bottom 1: the flow, (N, 2, H, W): u, then v, in pixels. Top 0: y, (N, C, H, W). Places
    with 0 <= column < W and 0 <= row < H are inside, the last row and column counting once more behind them; elsewhere
    y is flow_warp_param.fill_value, ZERO or NOT_A_NUMBER, and the gradient 0. Slopes of the flow at whole numbers are
    those to the right, and below. Backward reads the flow, and x for the gradient of the flow.
    Raises: ShapeError for bottoms that do not fit.
    Source: lmb-freiburg/flownet2, src/caffe/layers/flow_warp_layer.cu. Its CPU code leaves the gradient of flows that
    lead outside as it was.
    """

    declares = Declaration(bottoms=exactly(2), backward_reads=Reads.BOTTOM_DATA, splits_over_batch=True)

    def setup(self, bottom_shapes: Shapes) -> None:
        zero = self.param.flow_warp_param.fill_value == FlowWarpParameter.ZERO
        self.how = Warping(whole_pixels=False, fill=0.0 if zero else math.nan)

    def infer_shapes(self, bottom_shapes: Shapes) -> Shapes:
        x, flow = map(tuple, bottom_shapes)
        if len(x) != 4 or 0 in x[2:] or count(x, 2) > _LARGEST:
            raise self.shape_error(f"has shape {x}", bottom=0, fix="give a bottom (N, C, H, W) with pixels")
        if flow != (x[0], 2, *x[2:]):
            raise self.shape_error(
                f'has shape {flow}, but "{self.param.bottom[0]}" has {x}',
                bottom=1,
                fix=f"give a flow of its size: {(x[0], 2, *x[2:])}",
            )
        return [x]

    def declare(self, bottom_shapes: Shapes, top_shapes: Shapes, ops: Ops) -> None:
        work = (bottom_shapes[0][0], 3 * count(bottom_shapes[0], 2))
        self.scratch("work", work, dtype=np.uint32, lives=Lives.CALL, forward=False)

    def backward_needs(self, propagate_down: Sequence[bool], param_propagate: Sequence[bool]) -> Needs:
        if propagate_down[1]:
            return Needs(bottoms=frozenset({0, 1}))
        return Needs(bottoms=frozenset({1})) if propagate_down[0] else Needs()

    def forward(self, io: Pass) -> None:
        io.ops.warp.forward(*io.bottom, io.top[0], self.how)

    def backward(self, io: Pass) -> None:
        (x, flow), (dx, dflow), dy = io.bottom, io.bottom_diff, io.top_diff[0]
        if dy is None:
            for slope in (dx, dflow):
                if slope is not None:
                    io.ops.fill(slope, 0)
            return
        if dx is not None:
            io.ops.warp.backward(flow, dy, dx, io.scratch["work"], self.how)
        if dflow is not None:
            io.ops.warp.backward_flow(x, flow, dy, dflow, self.how)


@register_layer("Warp")
class WarpLayer(FlowWarpLayer):
    """y at (row h, column w) is x at (h + v, w + u), bilinearly; 0 unless 0 <= column <= W - 1 and 0 <= row <= H - 1.

    Bottom 0: x, (N, C, H, W). Bottom 1: the flow, (N, 2, H, W): u, then v, in pixels. Top 0: y, (N, C, H, W). The
    flow's gradient is 0 where it leads outside; at whole numbers, where slopes jump, it is the mean of both sides, of
    which one beyond the border counts as 0. Backward reads the flow, and x for the gradient of the flow.
    LiteFlowNet's layer of this name is another: it takes places, not flows.
    Raises: ShapeError for bottoms that do not fit.
    Source: NVlabs/PWC-Net, Caffe/warping_code/warp_layer.cu.
    """

    def setup(self, bottom_shapes: Shapes) -> None:
        self.how = Warping(whole_pixels=True, fill=0.0)
