"""Dropout."""

from __future__ import annotations

from collections.abc import Sequence

from ..base import TRAIN, AnyArray, Declaration, InPlace, Ops, Pass, Reads, Shapes
from ..mixins import RandomLayer
from ..registry import register_layer


@register_layer("Dropout")
class DropoutLayer(RandomLayer):
    """TRAIN: y = x * 0 with probability r (dropout_param.dropout_ratio, default 0.5), else x / (1 - r), drawn for each
    element in each forward. TEST: y = x.

    Bottom 0: x, any shape. Top 0: y, the shape of x; may be in place. Backward reads no values: it draws again, because
    the draws depend only on `seed` (from the net) and on the number of forwards before.
    Raises: LayerParamError for a ratio outside [0, 1).
    Source: BVLC/caffe, src/caffe/layers/dropout_layer.cpp; with a generator that is the same on every device.
    """

    declares = Declaration(
        in_place=InPlace.ALLOWED, backward_reads=Reads.NONE, splits_over_batch=True, any_precision=True
    )

    def setup(self, bottom_shapes: Shapes) -> None:
        self.ratio = self.param.dropout_param.dropout_ratio
        if not 0 <= self.ratio < 1:
            raise self.error(f"dropout_ratio is {self.ratio:g}", fix="set dropout_ratio to 0 or more and less than 1")

    def declare(self, bottom_shapes: Shapes, top_shapes: Shapes, ops: Ops) -> None:
        if self.phase == TRAIN:
            self.step_scalar("key", 3)

    def next_step_scalars(self) -> dict[str, Sequence[int]]:
        return self.next_key()

    def forward(self, io: Pass) -> None:
        if self.phase == TRAIN:
            io.ops.dropout.forward(io.bottom[0], io.top[0], self.ratio, io.scratch["key"])
        else:
            io.ops.copy(io.bottom[0], io.top[0])

    def gradient(self, io: Pass, dy: AnyArray, dx: AnyArray) -> None:
        if self.phase == TRAIN:
            io.ops.dropout.backward(dy, dx, self.ratio, io.scratch["key"])
        else:
            io.ops.copy(dy, dx)
