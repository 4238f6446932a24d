"""Dropout."""

from __future__ import annotations

from ..base import TRAIN, Declaration, InPlace, Needs
from ..random_layer import RandomLayer
from ..registry import register_layer


@register_layer("Dropout")
class DropoutLayer(RandomLayer):
    """TRAIN: y = x / (1 - r) for a share 1 - r of the elements, x * 0 for the others (dropout_param.dropout_ratio r,
    default 0.5; another choice in each forward). TEST: y = x.

    Bottom 0: x, any shape. Top 0: y, the shape of x; may be in place. Backward reads nothing: the choice is a function
    of `seed` (from the net) and of the number of forwards before, and is made again.
    Raises: LayerParamError for a ratio outside [0, 1).
    Source: BVLC/caffe, src/caffe/layers/dropout_layer.cpp; the generator is ours, the same on every device.
    """

    declares = Declaration(in_place=InPlace.ALLOWED, splits_over_batch=True)

    def setup(self, bottom_shapes):
        self.ratio = self.param.dropout_param.dropout_ratio
        if not 0 <= self.ratio < 1:
            raise self.error(f"dropout_ratio is {self.ratio:g}", fix="set dropout_ratio to 0 or more and less than 1")

    def infer_shapes(self, bottom_shapes):
        return [tuple(bottom_shapes[0])]

    def takes_half(self, bottom_shapes, top_shapes, ops):
        return True

    def declare(self, bottom_shapes, top_shapes, ops):
        if self.phase == TRAIN:
            self.step_scalar("key", 3)

    def next_step_scalars(self):
        return self.next_key()

    def backward_needs(self, propagate_down, param_propagate):
        return Needs()

    def forward(self, io):
        if self.phase == TRAIN:
            io.ops.dropout.forward(io.bottom[0], io.top[0], self.ratio, io.scratch["key"])
        else:
            io.ops.copy(io.bottom[0], io.top[0])

    def backward(self, io):
        if io.bottom_diff[0] is None:
            return
        if self.phase == TRAIN:
            io.ops.dropout.backward(io.top_diff[0], io.bottom_diff[0], self.ratio, io.scratch["key"])
        else:
            io.ops.copy(io.top_diff[0], io.bottom_diff[0])
