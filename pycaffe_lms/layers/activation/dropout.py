"""Dropout, GuidedDropout and DropPath: values, channels or whole items that become zeros at random."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from ...ops.axes import around_axis
from ...ops.records import Affine, Grid
from ..base import (
    TRAIN,
    AnyArray,
    Declaration,
    InPlace,
    Lives,
    Needs,
    Ops,
    Pass,
    Reads,
    Rows,
    Shape,
    Shapes,
    count,
    exactly,
)
from ..mixins import LANES, RandomLayer
from ..registry import register_layer


@register_layer("Dropout")
class DropoutLayer(RandomLayer):
    """TRAIN: y = x * 0 with probability r (dropout_param.dropout_ratio, default 0.5), else x / (1 - r), drawn for each
    element in each forward. TEST: y = x.
    With scale_train: false, TRAIN: y = x * 0 or x; TEST: y = x * (1 - r). With sample_weights_test: true, TEST is as
    TRAIN.

    Bottom 0: x, any shape. Top 0: y, the shape of x; may be in place. Backward reads no values: it draws again, because
    the draws depend only on `seed` (from the net) and on the number of forwards before.
    Raises: LayerParamError for a ratio outside [0, 1).
    Source: BVLC/caffe, src/caffe/layers/dropout_layer.cpp; with a generator that is the same on every device.
    rbgirshick/caffe-fast-rcnn (scale_train) and alexgkendall/caffe-segnet (sample_weights_test), same file.
    """

    declares = Declaration(
        in_place=InPlace.ALLOWED, backward_reads=Reads.NONE, splits_over_batch=True, any_precision=True
    )
    _slab: tuple[int, int] | None = None  # of a slab: its first row, and the rows of the whole

    def setup(self, bottom_shapes: Shapes) -> None:
        p = self.param.dropout_param
        self.ratio = p.dropout_ratio
        if not 0 <= self.ratio < 1:
            raise self.error(f"dropout_ratio is {self.ratio:g}", fix="set dropout_ratio to 0 or more and less than 1")
        self.drops = self.phase == TRAIN or p.sample_weights_test
        self.scale = 1.0 / (1.0 - self.ratio) if p.scale_train else 1.0  # where elements are dropped
        self.test_scale = 1.0 if p.scale_train else 1.0 - self.ratio
        if not self.drops and self.test_scale != 1:
            self.declares = replace(self.declares, any_precision=False)

    def infer_shapes(self, bottom_shapes: Shapes) -> Shapes:
        self._row = count(bottom_shapes[0], 3)
        return super().infer_shapes(bottom_shapes)

    def rows_for(self, first: int, end: int, rows: int) -> Rows | None:
        begins_a_block = not self.drops or self._row % LANES == 0  # every row of every plane
        return Rows((first, end), (first, end)) if begins_a_block else None

    def take_rows(self, first: int, end: int, rows: int) -> None:
        self._slab = first, rows

    def declare(self, bottom_shapes: Shapes, top_shapes: Shapes, ops: Ops) -> None:
        # the pieces of a slab, and the blocks from one to the next in the whole
        self._planes, self._plane_blocks = 1, 0
        if self._slab is not None:
            first, rows = self._slab
            grid = around_axis(tuple(bottom_shapes[0]), 2, self.context.channels_last)
            self._planes, self._plane_blocks = grid.outer, rows * grid.inner // LANES
            self.first_block = first * grid.inner // LANES
        if self.drops:
            self.step_scalar("key", 3 * self._planes)

    def next_step_scalars(self) -> dict[str, Sequence[int]]:
        seed, draws, block = self.next_key()["key"]
        return {"key": [n for p in range(self._planes) for n in (seed, draws, block + p * self._plane_blocks)]}

    def forward(self, io: Pass) -> None:
        if self.drops:
            self._drop(io, io.ops.dropout.forward, io.bottom[0], io.top[0])
        else:
            self._pass_on(io, io.bottom[0], io.top[0])

    def gradient(self, io: Pass, dy: AnyArray, dx: AnyArray) -> None:
        if self.drops:
            self._drop(io, io.ops.dropout.backward, dy, dx)
        else:
            self._pass_on(io, dy, dx)

    def _drop(self, io: Pass, drop: Callable[..., None], x: AnyArray, y: AnyArray) -> None:
        key = io.scratch["key"]
        if self._planes == 1:
            drop(x, y, self.ratio, key, self.scale)
            return
        pieces = (values.reshape(self._planes, -1) for values in (x, y))
        for p, (piece, made) in enumerate(zip(*pieces, strict=True)):
            drop(piece, made, self.ratio, key[3 * p : 3 * p + 3], self.scale)

    def _pass_on(self, io: Pass, x: AnyArray, y: AnyArray) -> None:
        io.ops.copy(x, y)
        if self.test_scale != 1:
            io.ops.scale_by(y, self.test_scale)


@register_layer("DropPath")
class DropPathLayer(RandomLayer):
    """TRAIN: an item of the batch becomes zeros with probability r (drop_path_param.dropout_ratio, default 0.1), else
    y = x / (1 - r), drawn for each item in each forward. TEST: y = x.

    It stands at the end of a residual branch, before the sum (stochastic depth).
    Bottom 0: x (N, ...). Top 0: y, the shape of x; may be in place. Backward reads no values: it draws again, as
    Dropout does.
    Raises: ShapeError for a bottom without axes; LayerParamError for a ratio outside [0, 1).
    Source: Huang et al., Deep Networks with Stochastic Depth (2016); scaled in training, as Dropout is.
    """

    declares = Declaration(
        in_place=InPlace.ALLOWED, backward_reads=Reads.NONE, splits_over_batch=True, any_precision=True
    )

    def setup(self, bottom_shapes: Shapes) -> None:
        self.ratio = self.param.drop_path_param.dropout_ratio
        if not 0 <= self.ratio < 1:
            raise self.error(f"dropout_ratio is {self.ratio:g}", fix="set dropout_ratio to 0 or more and less than 1")
        self.drops = self.phase == TRAIN

    def infer_shapes(self, bottom_shapes: Shapes) -> Shapes:
        self.check_axes(bottom_shapes[0], 1)
        return [tuple(bottom_shapes[0])]

    def draws_per_item(self, top_shape: Shape) -> int:
        return LANES

    def declare(self, bottom_shapes: Shapes, top_shapes: Shapes, ops: Ops) -> None:
        if self.drops:
            self.step_scalar("key", 3)

    def next_step_scalars(self) -> dict[str, Sequence[int]]:
        return self.next_key()

    def forward(self, io: Pass) -> None:
        if self.drops:
            io.ops.drop_path.forward(io.bottom[0], io.top[0], self.ratio, io.scratch["key"], 1 / (1 - self.ratio))
        else:
            io.ops.copy(io.bottom[0], io.top[0])

    def gradient(self, io: Pass, dy: AnyArray, dx: AnyArray) -> None:
        if self.drops:
            io.ops.drop_path.backward(dy, dx, self.ratio, io.scratch["key"], 1 / (1 - self.ratio))
        else:
            io.ops.copy(dy, dx)


@register_layer("GuidedDropout")
class GuidedDropoutLayer(RandomLayer):
    """y = x * m * C / s: of an item's C channels those are dropped that matter little to its domain.

    guided_dropout_param.type "deterministic", in both phases: m = 1 where the guidance is above guidance_threshold,
    else 0; s is the item's sum of m; an item without one has zeros. "stochastic", TRAIN: m = 1 with probability p =
    sigmoid(sigmoid_scaler * guidance), drawn for each channel in each forward, else 0; s is the item's sum of p. TEST:
    y = x.
    Bottom 0: x, (N, C, ...). Bottom 1: the guidance, (N, C) or (N, C, 1, 1); no gradient. Top 0: y, the shape of x; may
    be in place. Backward reads the guidance, or nothing; it draws again, as Dropout does.
    Raises: ShapeError for shapes other than these; LayerParamError for another type.
    Source: Cysu/caffe (domain-guided-dropout), src/caffe/layers/guided_dropout_layer.cpp. On a GPU the fork's backward
    multiplies by the number of an item's values in place of C, which differs where channels have several.
    """

    declares = Declaration(
        bottoms=exactly(2),
        in_place=InPlace.ALLOWED,
        no_backward=frozenset({1}),
        backward_reads=Reads.BOTTOM_DATA,
        ignores_force_backward=frozenset({1}),
        splits_over_batch=True,
    )

    def setup(self, bottom_shapes: Shapes) -> None:
        p = self.param.guided_dropout_param
        if p.type not in ("deterministic", "stochastic"):
            raise self.error(f'has type "{p.type}"', fix='use "deterministic" or "stochastic"')
        self.draws_masks = p.type == "stochastic" and self.phase == TRAIN
        self.drops = p.type == "deterministic" or self.draws_masks

    @property
    def random(self) -> bool:
        return self.draws_masks

    def infer_shapes(self, bottom_shapes: Shapes) -> Shapes:
        x, guidance = (tuple(shape) for shape in bottom_shapes)
        self.check_axes(x, 2)
        if guidance[:2] != x[:2] or count(guidance, 2) != 1:
            raise self.shape_error(
                f'has shape {guidance}, but "{self.param.bottom[0]}" has {x}',
                bottom=1,
                fix=f"give one number per channel: {x[:2]}",
            )
        self.factors, self.grid = x[:2], Grid(1, count(x, 0, 2), count(x, 2))
        return [x]

    def draws_per_item(self, top_shape: Shape) -> int:
        return top_shape[1]

    def declare(self, bottom_shapes: Shapes, top_shapes: Shapes, ops: Ops) -> None:
        if self.draws_masks:
            self.step_scalar("key", 3)
        if self.drops:
            self.scratch("factors", self.factors, lives=Lives.CALL)

    def next_step_scalars(self) -> dict[str, Sequence[int]]:
        return self.next_key()

    def forward_needs(self) -> Needs:
        return Needs(bottoms=frozenset({0, 1} if self.drops else {0}))

    def backward_needs(self, propagate_down: Sequence[bool], param_propagate: Sequence[bool]) -> Needs:
        return Needs(bottoms=frozenset({1} if self.drops else ()))

    def forward(self, io: Pass) -> None:
        self._multiply(io, io.bottom[0], io.top[0])

    def gradient(self, io: Pass, dy: AnyArray, dx: AnyArray) -> None:
        self._multiply(io, dy, dx)

    def _multiply(self, io: Pass, x: AnyArray, y: AnyArray) -> None:
        if not self.drops:
            io.ops.copy(x, y)
            return
        p, factors = self.param.guided_dropout_param, io.scratch["factors"]
        guidance = io.bottom[1].reshape(factors.shape)
        if self.draws_masks:
            io.ops.guided_factors(guidance, factors, io.scratch["key"], p.sigmoid_scaler)
        else:
            io.ops.threshold_factors(guidance, factors, p.guidance_threshold)
        io.ops.scale.forward(x, Affine(factors, None), y, self.grid)
