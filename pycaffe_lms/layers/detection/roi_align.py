"""ROIAlign, PSROIAlign and ROIWarping: they sample each region of a feature map between its pixels."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from ...ops.records import Samples, Sampling
from ...ops.sum_parts import reduction_parts
from ..base import AnyArray, Lives, Needs, Ops, Pass, Shapes
from ..registry import register_layer
from .roi_pooling import BoxRegions


class _Sampled(BoxRegions):
    """A layer whose forward and backward are those of `roi_align`."""

    declares = replace(BoxRegions.declares, no_backward=frozenset({1}), skips_backward=frozenset({1}))
    samples: Samples

    def forward(self, io: Pass) -> None:
        io.ops.roi_align.forward(io.bottom[0], io.bottom[1], io.top[0], self.samples)

    def gradient(self, io: Pass, dy: AnyArray, dx: AnyArray) -> None:
        io.ops.roi_align.backward(dy, io.bottom[1], dx, self.samples)


@register_layer("ROIAlign")
class ROIAlignLayer(_Sampled):
    """y = the average of samples in each of the cells of each region, interpolated between pixels.

    Bottom 0: a feature map (N, C, H, W). Bottom 1: regions (R, 5) or (R, 5, 1, 1): the image's index, x1, y1, x2, y2 in
    the picture's coordinates. A region whose image is not in the batch, or whose numbers are not finite, gives 0.
    There are two dialects. With roi_align_param, top 0 is (R, C, pooled_h, pooled_w). A region reaches from x1 *
    spatial_scale to x2 * spatial_scale, and is at least 1 long; y likewise. Each cell has sampling_ratio^2 samples, the
    centres of equal parts, or as many as its sides have pixels, rounded up. A sample up to one pixel outside of the map
    takes the value of its border; one further outside is 0.
    With roi_pooling_param, top 0 is (R, C, pooled_h + 1, pooled_w + 1), one sample for each corner of the cells. A
    region, with pad_ratio * (x2 - x1 + 1) added on both sides, reaches from x1 * spatial_scale - 0.5 to x2 *
    spatial_scale - 0.5; y likewise. Without area it gives 0, as do samples more than half a pixel outside of the map.
    Backward reads the regions, which get no gradient, even where a layer that learns makes them.
    Raises: LayerParamError for a missing size, both dialects in one layer, or a scale that is not positive; ShapeError
    for other shapes.
    Source: roi_align_param: torchvision.ops.roi_align (aligned=False), which is Detectron's and that of most forks of
    Caffe; the one of jasjeetIM/Mask-RCNN and Synopsys Caffe takes maxima instead. roi_pooling_param:
    zhaoweicai/cascade-rcnn, src/caffe/layers/roi_align_layer.cu.
    """

    def setup(self, bottom_shapes: Shapes) -> None:
        align, grid = self.param.roi_align_param, self.param.roi_pooling_param
        if self.param.HasField("roi_align_param") and self.param.HasField("roi_pooling_param"):
            raise self.error("has roi_align_param and roi_pooling_param", fix="keep the one of your fork of Caffe")
        if self.param.HasField("roi_pooling_param"):
            size, scale = (grid.pooled_h, grid.pooled_w), self.check_scale(grid.spatial_scale)
            self.samples = Samples(Sampling.GRID, scale, pad_ratio=grid.pad_ratio)
        else:
            size, scale = (align.pooled_h, align.pooled_w), self.check_scale(align.spatial_scale)
            self.samples = Samples(Sampling.EVEN, scale, max(0, align.sampling_ratio))
        if 0 in size:
            raise self.error("has no pooled_h or pooled_w", fix="add roi_align_param { pooled_h: ... pooled_w: ... }")
        corners = int(self.samples.kind == Sampling.GRID)
        self.cells = size[0] + corners, size[1] + corners

    def infer_shapes(self, bottom_shapes: Shapes) -> Shapes:
        x, regions = self.check_shapes(bottom_shapes)
        return [(regions, x[1], *self.cells)]


@register_layer("PSROIAlign")
class PSROIAlignLayer(_Sampled):
    """y = the average of samples in each of the g x g cells of each region, over channels that belong to the cell.

    Bottom 0: a feature map (N, D * g * g, H, W); channel (d * g + p) * g + q is read for output d of cell (p, q) only.
    Bottom 1: regions (R, 5) or (R, 5, 1, 1): the image's index, x1, y1, x2, y2 in the picture's coordinates.
    Top 0: (R, D, g, g), D = psroi_align_param.output_dim, g = group_size; R may be 0.
    A region reaches from x1 * spatial_scale to (x2 + 1) * spatial_scale, and is at least 0.1 pixels long; y likewise. A
    cell that is cut to the map has sample_num^2 samples, its uncut side / (sample_num + 1) apart from its first corner
    and from each other; those beyond its last corner are 0, as all are where no cell is left, where the image is not in
    the batch, or where a number is not finite.
    Backward reads the regions, which get no gradient, even where a layer that learns makes them.
    Raises: LayerParamError for a missing number or a scale that is not positive; ShapeError for other shapes.
    Source: afantideng/R-FCN-PSROIAlign, caffe/src/caffe/layers/psroi_align_layer.cu.
    """

    def setup(self, bottom_shapes: Shapes) -> None:
        p = self.param.psroi_align_param
        self.outputs, self.cells = p.output_dim, p.group_size
        self.samples = Samples(Sampling.SPREAD, self.check_scale(p.spatial_scale), p.sample_num)
        if min(self.outputs, self.cells, p.sample_num) < 1:
            raise self.error(
                "has no output_dim, group_size or sample_num",
                fix="add psroi_align_param { output_dim: ... group_size: ... sample_num: ... }",
            )

    def infer_shapes(self, bottom_shapes: Shapes) -> Shapes:
        return [self.check_channels(bottom_shapes, self.outputs, self.cells)]


@register_layer("ROIWarping")
class ROIWarpingLayer(BoxRegions):
    """y = a sample at the first corner of each of the cells of each region, interpolated between pixels (MNC).

    Bottom 0: a feature map (N, C, H, W). Bottom 1: regions (R, 5) or (R, 5, 1, 1): the image's index, x1, y1, x2, y2 in
    the picture's coordinates. Top 0: (R, C, pooled_h, pooled_w); R may be 0.
    A region reaches from round(x1 * spatial_scale) to round(x2 * spatial_scale), or is one place where it would end
    before; y likewise. A sample up to half a pixel outside of the map takes the value of its border; one further
    outside is 0, and so are all of a region whose image is not in the batch, or whose numbers are not finite.
    Both bottoms get gradients. That of a region's corners is the samples' slope, as if nothing were rounded; samples on
    the last row or beyond the border have no slope across it. Backward reads the regions, and for their gradient the
    map.
    Raises: LayerParamError for a missing size or a scale that is not positive; ShapeError for other shapes.
    Source: daijifeng001/caffe-mnc, src/caffe/layers/roi_warping_layer.cu (whose backward takes regions for one pixel
    longer than its forward: docs/differences.md).
    """

    declares = replace(BoxRegions.declares, ignores_force_backward=frozenset())

    def setup(self, bottom_shapes: Shapes) -> None:
        p = self.param.roi_warping_param
        self.cells, self.samples = (p.pooled_h, p.pooled_w), Samples(Sampling.WARP, self.check_scale(p.spatial_scale))
        if 0 in self.cells:
            raise self.error("has no pooled_h or pooled_w", fix="add roi_warping_param { pooled_h: ... pooled_w: ... }")

    def infer_shapes(self, bottom_shapes: Shapes) -> Shapes:
        x, regions = self.check_shapes(bottom_shapes)
        return [(regions, x[1], *self.cells)]

    def declare(self, bottom_shapes: Shapes, top_shapes: Shapes, ops: Ops) -> None:
        self.size = 5 * top_shapes[0][0], top_shapes[0][1]
        self.scratch("slopes", self.size, lives=Lives.CALL, forward=False)
        parts = self.size[0] * reduction_parts(1, *self.size)
        self.scratch("work", (parts,), lives=Lives.CALL, forward=False)

    def backward_needs(self, propagate_down: Sequence[bool], param_propagate: Sequence[bool]) -> Needs:
        return Needs(bottoms=frozenset(i for i in (0, 1) if propagate_down[1] or (i and propagate_down[0])))

    def forward(self, io: Pass) -> None:
        io.ops.roi_align.forward(io.bottom[0], io.bottom[1], io.top[0], self.samples)

    def backward(self, io: Pass) -> None:
        (dx, drois), dy = io.bottom_diff, io.top_diff[0]
        for gradient in (dx, drois):
            if gradient is not None and dy is None:
                io.ops.fill(gradient, 0)
        if dy is None:
            return
        if dx is not None:
            io.ops.roi_align.backward(dy, io.bottom[1], dx, self.samples)
        if drois is not None:
            slopes = io.scratch["slopes"]
            io.ops.roi_warp_corners(io.bottom[0], dy, io.bottom[1], slopes, self.samples)
            io.ops.reduction.forward(slopes, drois, "SUM", 1.0, io.scratch["work"], *self.size)
