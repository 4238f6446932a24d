"""Dropout and DropPath: values, or whole items, that become zeros at random."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from ..base import TRAIN, AnyArray, Declaration, InPlace, Ops, Pass, Reads, Shape, Shapes
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

    def declare(self, bottom_shapes: Shapes, top_shapes: Shapes, ops: Ops) -> None:
        if self.drops:
            self.step_scalar("key", 3)

    def next_step_scalars(self) -> dict[str, Sequence[int]]:
        return self.next_key()

    def forward(self, io: Pass) -> None:
        if self.drops:
            io.ops.dropout.forward(io.bottom[0], io.top[0], self.ratio, io.scratch["key"], self.scale)
        else:
            self._pass_on(io, io.bottom[0], io.top[0])

    def gradient(self, io: Pass, dy: AnyArray, dx: AnyArray) -> None:
        if self.drops:
            io.ops.dropout.backward(dy, dx, self.ratio, io.scratch["key"], self.scale)
        else:
            self._pass_on(io, dy, dx)

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
