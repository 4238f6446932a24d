"""Losses of the distance between two bottoms: EuclideanLoss, SmoothL1Loss, SmoothL1LossOHEM and L1Loss."""

from __future__ import annotations

from dataclasses import replace

from ...arrays import AnyArray
from ...ops.records import BoxWeights, Grid
from ..base import Pass, Shapes, between, count, exactly
from ..registry import register_layer
from .base import BATCH_SIZE, VALID, LossLayer


class _DistanceLoss(LossLayer):
    """A loss over N items of equally many elements in each bottom."""

    def infer_shapes(self, bottom_shapes: Shapes) -> Shapes:
        self.items = max(1, self.check_batch(bottom_shapes))
        a = tuple(bottom_shapes[0])
        for i, shape in enumerate(map(tuple, bottom_shapes)):
            if shape[:1] != a[:1] or count(shape, 1) != count(a, 1):
                raise self.shape_error(
                    f'has shape {shape}, {count(shape, 1)} elements per item, but "{self.param.bottom[0]}" has {a}',
                    bottom=i,
                    fix="give all bottoms the same batch and items of the same size",
                )
        return [()]


@register_layer("EuclideanLoss")
class EuclideanLossLayer(_DistanceLoss):
    """loss = sum of (a - b)^2 / (2 N), N = items of the batch.

    Bottoms 0 and 1: a and b, N items of equally many elements each. Top 0: the loss, no axes.
    Backward reads both bottoms: da = (a - b) * loss weight / N, db = -da; force_backward may ask for either.
    Raises: ShapeError for batches or items of different sizes.
    Source: BVLC/caffe, src/caffe/layers/euclidean_loss_layer.cpp.
    """

    declares = replace(LossLayer.declares, no_backward=frozenset(), ignores_force_backward=frozenset())

    def forward(self, io: Pass) -> None:
        io.ops.euclidean_loss.forward(*io.bottom, io.top[0], io.scratch["work"], 0.5 / self.items)

    def backward(self, io: Pass) -> None:
        if any(dx is not None for dx in io.bottom_diff):
            io.ops.euclidean_loss.backward(*io.bottom, io.top_diff[0], *io.bottom_diff, 1 / self.items)


@register_layer("SmoothL1Loss")
class SmoothL1LossLayer(_DistanceLoss):
    """loss = sum of outside * f(inside * (a - b)) / Z.

    f(d) = (sigma d)^2 / 2 where |d| < 1 / sigma^2, else |d| - 1 / (2 sigma^2) (smooth_l1_loss_param.sigma, default 1).
    Bottoms 0 and 1: a and b, N items of equally many elements each. Bottoms 2 and 3, if given: the weights `inside`
    and `outside`, as large as a; without them 1. Top 0: the loss, no axes. Top 1, if given: the loss of each item and
    position before the division by Z, a sum over channels, (N, 1, H, W), with H and W 1 where a has fewer axes. It
    passes no gradient on.
    Z = N, the items of the batch, or max(1, ...) of what loss_param.normalization or normalize asks for: FULL and VALID
    N * H * W; BATCH_SIZE N; PRE_FIXED loss_param.pre_fixed_normalizer; NONE 1.
    Backward reads all bottoms; force_backward may ask for the gradients of a and b. The weights have none, even where a
    layer that learns makes them, such as the Python layers of py-faster-rcnn.
    Raises: ShapeError for batches or items of different sizes, and for more than 4 axes with a second top;
    LayerParamError for a sigma that is not above 0.
    Source: rbgirshick/caffe-fast-rcnn, src/caffe/layers/smooth_L1_loss_layer.cu (2 or 4 bottoms, sigma);
    weiliu89/caffe (SSD), same file (2 or 3 bottoms, sigma 1); daijifeng001/caffe-rfcn (R-FCN), same file (top 1,
    loss_param).
    """

    declares = replace(
        LossLayer.declares,
        bottoms=between(2, 4),
        tops=between(1, 2),
        no_backward=frozenset({2, 3}),
        skips_backward=frozenset({2, 3}),
        ignores_force_backward=frozenset({2, 3}),
    )

    def setup(self, bottom_shapes: Shapes) -> None:
        sigma = self.param.smooth_l1_loss_param.sigma
        if not sigma > 0:
            raise self.error(f"sigma is {sigma:g}", fix="set smooth_l1_loss_param.sigma above 0")
        self.sigma2 = sigma * sigma
        self.read_normalization(BATCH_SIZE)

    def infer_shapes(self, bottom_shapes: Shapes) -> Shapes:
        super().infer_shapes(bottom_shapes)
        a = tuple(bottom_shapes[0])
        self.grid = Grid(a[0], count(a, 1, 2), count(a, 2))
        self.divisor = max(1.0, self.normalizer(self.grid.outer, self.grid.inner))
        if len(self.param.top) < 2:
            return [()]
        if len(a) > 4:
            raise self.shape_error(
                f"has shape {a}, but losses of items have 4 axes", bottom=0, fix="delete the second top, or reshape"
            )
        return [(), (a[0], 1, *a[2:], *(1,) * (2 - len(a[2:])))]

    def _arrays(self, io: Pass) -> tuple[AnyArray, AnyArray, BoxWeights]:
        a, b, inside, outside = (*io.bottom, None, None)[:4]
        return a, b, BoxWeights(inside, outside)

    def forward(self, io: Pass) -> None:
        args = io.top[0], io.scratch["work"], self.sigma2, 1 / self.divisor
        io.ops.smooth_l1_loss.forward(*self._arrays(io), *args)
        if len(io.top) > 1:
            io.ops.smooth_l1_losses(*self._arrays(io), io.top[1], self.sigma2, self.grid)

    def backward(self, io: Pass) -> None:
        wanted = io.bottom_diff[:2]
        if io.top_diff[0] is None:
            super().backward(io)
        elif any(dx is not None for dx in wanted):
            args = io.top_diff[0], *wanted, self.sigma2, 1 / self.divisor
            io.ops.smooth_l1_loss.backward(*self._arrays(io), *args)


@register_layer("SmoothL1LossOHEM")
class SmoothL1LossOHEMLayer(SmoothL1LossLayer):
    """loss = sum of f(inside * (a - b)) / Z: SmoothL1Loss, with VALID as the default of loss_param.normalization.

    Top 1, the loss of each item and position, is what BoxAnnotatorOHEM chooses by. Bottom 2, if given: `inside`.
    There is no fourth bottom; fields, tops and errors are those of SmoothL1Loss.
    Source: intel/caffe, src/caffe/layers/smooth_L1_loss_ohem_layer.cpp (where the slope is that of inside 0 or 1).
    """

    declares = replace(
        SmoothL1LossLayer.declares,
        bottoms=between(2, 3),
        no_backward=frozenset({2}),
        skips_backward=frozenset({2}),
        ignores_force_backward=frozenset({2}),
    )

    def setup(self, bottom_shapes: Shapes) -> None:
        super().setup(bottom_shapes)
        self.read_normalization(VALID)


@register_layer("L1Loss")
class L1LossLayer(SmoothL1LossLayer):
    """loss = sum of |a - b| / N, N = items of the batch.

    Bottoms 0 and 1: a and b, N items of equally many elements each. Top 0: the loss, no axes.
    Backward reads both bottoms: da = sign(a - b) * loss weight / N, db = -da, where sign(0) = 0. force_backward may
    ask for either.
    Raises: ShapeError for batches or items of different sizes.
    Source: NVIDIA/caffe, src/caffe/layers/l1_loss_layer.cpp. Here it is a SmoothL1Loss that is quadratic only where
    |a - b| < 2^-127.
    """

    declares = replace(
        LossLayer.declares, bottoms=exactly(2), no_backward=frozenset(), ignores_force_backward=frozenset()
    )

    def setup(self, bottom_shapes: Shapes) -> None:
        self.sigma2, self.mode = 2.0**127, BATCH_SIZE
