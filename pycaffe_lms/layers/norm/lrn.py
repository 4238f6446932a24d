"""LRN: local response normalisation, across channels or within each channel."""

from __future__ import annotations

from ...ops.axes import WIDEST_IN_REGISTERS, effective_width
from ...ops.records import Grid, LocalResponse
from ...proto import caffe_pb2
from ..base import AnyArray, Declaration, Layer, Lives, Ops, Pass, Reads, Shapes
from ..registry import register_layer
from ..spatial import check_images


@register_layer("LRN")
class LRNLayer(Layer):
    """ACROSS_CHANNELS: y = x * (k + alpha / n * sum of x^2 over the n channels around)^-beta.
    WITHIN_CHANNEL: y = x * (1 + alpha / n^2 * sum of x^2 over the n x n pixels around)^-beta; `k` is ignored.

    n is local_size, odd. Values outside the blob count as 0.
    Bottom 0 and top 0: (N, C, H, W). Backward reads bottom 0's data; the sums are computed again from it.
    `engine` is accepted and changes nothing.
    Raises: LayerParamError for an even local_size; ShapeError for other than 4 axes.
    Source: BVLC/caffe, src/caffe/layers/lrn_layer.cpp.
    """

    shape: Grid | tuple[int, int, int]
    declares = Declaration(splits_over_batch=True, backward_reads=Reads.BOTTOM_DATA)

    def setup(self, bottom_shapes: Shapes) -> None:
        lrn = self.param.lrn_param
        self.lrn = LocalResponse(lrn.local_size, lrn.alpha, lrn.beta, lrn.k)
        self.across = lrn.norm_region == caffe_pb2.LRNParameter.ACROSS_CHANNELS
        if self.lrn.size % 2 == 0:
            raise self.error(
                f"local_size is {self.lrn.size}, but a window around a value has an odd size",
                fix=f"use local_size: {self.lrn.size + 1}",
            )

    def infer_shapes(self, bottom_shapes: Shapes) -> Shapes:
        check_images(self, bottom_shapes, "LRN")
        return [tuple(bottom_shapes[0])]

    def takes_channels_last(self, bottom_shapes: Shapes, top_shapes: Shapes, ops: Ops) -> bool:
        return self.across and effective_width(self.lrn.size, bottom_shapes[0][1]) <= WIDEST_IN_REGISTERS

    def takes_half(self, bottom_shapes: Shapes, top_shapes: Shapes, ops: Ops) -> bool:
        return self.context.channels_last

    def declare(self, bottom_shapes: Shapes, top_shapes: Shapes, ops: Ops) -> None:
        items, channels, height, width = bottom_shapes[0]
        if self.context.channels_last:
            self.operation = ops.lrn_last
            self.shape = Grid(items * height * width, channels, 1)
        elif self.across:
            self.operation = ops.lrn_across
            self.shape = Grid(items, channels, height * width)
        else:
            self.operation = ops.lrn_within
            self.shape = (items * channels, height, width)
            self.scratch("ratio", bottom_shapes[0], lives=Lives.CALL, forward=False)

    def forward(self, io: Pass) -> None:
        self.operation.forward(io.bottom[0], io.top[0], self.shape, self.lrn)

    def gradient(self, io: Pass, dy: AnyArray, dx: AnyArray) -> None:
        ratio = (io.scratch["ratio"],) if "ratio" in io.scratch else ()
        self.operation.backward(io.bottom[0], dy, dx, *ratio, self.shape, self.lrn)
