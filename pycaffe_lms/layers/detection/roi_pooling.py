"""ROIPooling and PSROIPooling: they pool each region of a feature map into a fixed number of cells."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ..base import AnyArray, Declaration, Layer, Lives, Needs, Ops, Pass, Shape, Shapes, count, exactly
from ..registry import register_layer


class BoxRegions(Layer):
    """What layers of regions share: checks of the map (N, C, H, W), regions (R, 5) and scale; backward's needs."""

    declares = Declaration(bottoms=exactly(2), ignores_force_backward=frozenset({1}), full_precision=frozenset({1}))

    def check_scale(self, scale: float) -> float:
        """Return `scale`. Raises LayerParamError."""
        if not 0 < scale < 1 << 20:
            raise self.error(f"spatial_scale is {scale:g}", fix="give 1 / the stride of the feature map")
        return scale

    def check_shapes(self, bottom_shapes: Shapes) -> tuple[Shape, int]:
        """Return (shape of the map, number of regions). Raises ShapeError."""
        x, rois = (tuple(s) for s in bottom_shapes)
        if len(x) != 4:
            raise self.shape_error(
                f"has shape {x}, but a feature map has 4 axes (items, channels, height, width)",
                bottom=0,
                fix="reshape the bottom to 4 axes",
            )
        if not rois or count(rois, 1) != 5:
            raise self.shape_error(
                f"has shape {rois}, but a region has 5 numbers (image, x1, y1, x2, y2)",
                bottom=1,
                fix="give a bottom of shape (regions, 5)",
            )
        return x, rois[0]

    def check_channels(self, bottom_shapes: Shapes, outputs: int, cells: int) -> Shape:
        """Return the shape of the top of a layer whose cells have channels of their own. Raises ShapeError."""
        x, regions = self.check_shapes(bottom_shapes)
        wanted = outputs * cells**2
        if x[1] != wanted:
            raise self.shape_error(
                f"has {x[1]} channels, but output_dim {outputs} and group_size {cells} take {wanted}",
                bottom=0,
                fix=f"give a bottom of {wanted} channels",
            )
        return regions, outputs, cells, cells

    def backward_needs(self, propagate_down: Sequence[bool], param_propagate: Sequence[bool]) -> Needs:
        return Needs(bottoms=frozenset({1}) if propagate_down[0] else frozenset())


@register_layer("ROIPooling")
class ROIPoolingLayer(BoxRegions):
    """y = the maximum of each of the pooled_h x pooled_w cells of each region; 0 for an empty cell.

    Bottom 0: a feature map (N, C, H, W). Bottom 1: regions (R, 5) or (R, 5, 1, 1): the image's index, x1, y1, x2, y2 in
    the picture's coordinates. Times roi_pooling_param.spatial_scale and rounded, they are the corner pixels, which
    belong to the region. Top 0: (R, C, pooled_h, pooled_w); R may be 0. Of a region's size, both ends
    counted in, pad_ratio (MS-CNN) is added on each side before.
    A region is at least 1 x 1 pixels. A cell reaches from the floor of its start to the ceiling of its end, so
    neighbours may share pixels; outside the map it is empty. So are all cells of a region whose image is not in the
    batch, or whose numbers are not finite.
    Backward reads the regions and the saved index of each maximum; the regions get a gradient of zeros.
    Raises: LayerParamError for a missing size or a scale that is not positive; ShapeError for other shapes.
    Source: rbgirshick/caffe-fast-rcnn, src/caffe/layers/roi_pooling_layer.cpp (there an image out of range ends the
    program on the CPU, and reads outside the map on a GPU); pad_ratio: zhaoweicai/mscnn, same file.
    """

    def setup(self, bottom_shapes: Shapes) -> None:
        p = self.param.roi_pooling_param
        self.pooled, self.scale = (p.pooled_h, p.pooled_w), self.check_scale(p.spatial_scale)
        if 0 in self.pooled:
            raise self.error("has no pooled_h or pooled_w", fix="add roi_pooling_param { pooled_h: ... pooled_w: ... }")
        self.pad = p.pad_ratio

    def infer_shapes(self, bottom_shapes: Shapes) -> Shapes:
        x, regions = self.check_shapes(bottom_shapes)
        return [(regions, x[1], *self.pooled)]

    def declare(self, bottom_shapes: Shapes, top_shapes: Shapes, ops: Ops) -> None:
        self.scratch("argmax", top_shapes[0], dtype=np.int32, lives=Lives.SAVED)

    def forward(self, io: Pass) -> None:
        io.ops.roi_pool.forward(io.bottom[0], io.bottom[1], io.top[0], io.scratch.get("argmax"), self.scale, self.pad)

    def gradient(self, io: Pass, dy: AnyArray, dx: AnyArray) -> None:
        io.ops.roi_pool.backward(dy, io.bottom[1], io.scratch["argmax"], dx, self.scale, self.pad)


@register_layer("PSROIPooling")
class PSROIPoolingLayer(BoxRegions):
    """y = the average of each of the g x g cells of each region, over channels that belong to the cell; 0 for an empty
    cell.

    Bottom 0: a feature map (N, D * g * g, H, W); channel (d * g + p) * g + q is read for output d of cell (p, q) only.
    Bottom 1: regions (R, 5) or (R, 5, 1, 1): the image's index, x1, y1, x2, y2 in the picture's coordinates.
    Top 0: (R, D, g, g), D = psroi_pooling_param.output_dim, g = group_size; R may be 0.
    A region reaches from round(x1) * spatial_scale to (round(x2) + 1) * spatial_scale, and is at least 0.1 pixels long;
    y likewise. A cell reaches from the floor of its start to the ceiling of its end; outside the map it is empty. So
    are all cells of a region whose image is not in the batch, or whose numbers are not finite.
    Backward reads the regions, which get a gradient of zeros.
    Raises: LayerParamError for a missing size or a scale that is not positive; ShapeError for other shapes.
    Source: daijifeng001/caffe-rfcn, src/caffe/layers/psroi_pooling_layer.cu (there an image out of range reads
    outside the map).
    """

    def setup(self, bottom_shapes: Shapes) -> None:
        p = self.param.psroi_pooling_param
        self.outputs, self.cells, self.scale = p.output_dim, p.group_size, self.check_scale(p.spatial_scale)
        if min(self.outputs, self.cells) < 1:
            raise self.error(
                "has no output_dim or group_size", fix="add psroi_pooling_param { output_dim: ... group_size: ... }"
            )

    def infer_shapes(self, bottom_shapes: Shapes) -> Shapes:
        return [self.check_channels(bottom_shapes, self.outputs, self.cells)]

    def forward(self, io: Pass) -> None:
        io.ops.psroi_pool.forward(io.bottom[0], io.bottom[1], io.top[0], self.scale)

    def gradient(self, io: Pass, dy: AnyArray, dx: AnyArray) -> None:
        io.ops.psroi_pool.backward(dy, io.bottom[1], dx, self.scale)
