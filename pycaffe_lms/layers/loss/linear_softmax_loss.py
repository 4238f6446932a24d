"""LinearSoftmaxWithLoss: InnerProduct and SoftmaxWithLoss in one, for more classes than all scores have room."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from ...backend.bfloat16 import BFLOAT16
from ...ops.records import LinearGradients, LinearLoss, LinearLossInputs, LossRows
from ..base import Lives, Needs, Ops, Pass, Shapes, count
from ..conv.inner_product import HALF_EFFORT
from ..registry import register_layer
from .base import VALID, Labels, LossLayer

_CHUNK_BYTES = 64 << 20  # of the scores that exist at once, as products take them
_SCORES = 0.33  # softmax's passes over the scores take this share of a bfloat16 product at 693 TFLOP/s, on an H200


@register_layer("LinearSoftmaxWithLoss")
class LinearSoftmaxWithLossLayer(LossLayer):
    """loss = -(1 / Z) * sum of log(p[label]), p = softmax of the scores x W' + b (x W + b with `transpose`).

    InnerProduct and SoftmaxWithLoss (softmax_param.axis -1) in one, also called fused linear cross entropy. The
    scores of a chunk of positions exist at a time, at most 64 MiB of them (or one position's): with 128k classes all of
    them would be the largest blob of a language model by far.
    inner_product_param is that of InnerProduct: num_output V, the number of classes; axis, from which on x's axes are
    one vector of K values; bias_term; transpose. W (V, K) can be shared by name with an Embed's (V, K).
    loss_param: ignore_label, normalization and normalize as in SoftmaxWithLoss. Labels are cut to integers; one outside
    0..V-1 makes the loss NaN, and its position's gradient too. p is not kept from below, as it is in SoftmaxWithLoss.
    Bottom 0: x. Bottom 1: labels, one for each position, no gradient. Top 0: the loss, no axes.
    Parameters: W (V, K), or (K, V) with `transpose`; b (V) unless bias_term is false.
    Backward reads x, the labels, W and b. It computes the scores again, from the logarithm of each position's sum of
    exponentials, which forward saves: a fourth product, where gradients computed in forward would be saved until
    backward, as much memory as x and W.
    With `-math bf16` and an axis of 2 or more, the products are of bfloat16 values, with sums in float32; scores, their
    sums of exponentials and the loss are float32.
    Raises: LayerParamError for num_output 0, an axis out of range or weight_by_label_freqs; ShapeError if K is 0 or
    changes after set-up, or the labels do not fit.
    Source: Wijmans et al., Cut Your Losses in Large-Vocabulary Language Models (2024); Hsu et al., Liger Kernel (2024).
    """

    declares = replace(LossLayer.declares, prefers_half=True, full_precision=frozenset({1}))

    def setup(self, bottom_shapes: Shapes) -> None:
        self.read_normalization(VALID)
        if self.param.loss_param.weight_by_label_freqs:
            raise self.error("weight_by_label_freqs is not for this layer", fix="use InnerProduct and SoftmaxWithLoss")
        ip = self.param.inner_product_param
        if ip.num_output < 1:
            raise self.error("num_output is 0", fix="add inner_product_param { num_output: ... } of at least 1")
        self.width = count(bottom_shapes[0], self.canonical_axis(ip.axis, len(bottom_shapes[0])))
        if self.width < 1:
            raise self.shape_error(
                f"has shape {tuple(bottom_shapes[0])}: no values from axis {ip.axis} on",
                bottom=0,
                fix="give a bottom with at least one value per position",
            )
        self.add_param((self.width, ip.num_output) if ip.transpose else (ip.num_output, self.width), ip.weight_filler)
        if ip.bias_term:
            self.add_param((ip.num_output,), ip.bias_filler)

    def infer_shapes(self, bottom_shapes: Shapes) -> Shapes:
        x, labels = (tuple(shape) for shape in bottom_shapes)
        ip = self.param.inner_product_param
        axis = self.canonical_axis(ip.axis, len(x))
        self.check_kept(f"values from axis {axis} on", count(x, axis), self.width)
        self.positions = count(x[:axis])
        if count(labels) != self.positions:
            raise self.shape_error(
                f'has shape {labels}: {count(labels)} labels, but "{self.param.bottom[0]}" of shape {x} has '
                f"{self.positions} positions before axis {axis}",
                bottom=1,
                fix="give one label for each position, or change inner_product_param.axis",
            )
        self._class_labels = Labels(1, ip.num_output, self.ignore if self.has_ignore else None)
        return [()]

    def takes_half(self, bottom_shapes: Shapes, top_shapes: Shapes, ops: Ops) -> bool:
        axis = self.canonical_axis(self.param.inner_product_param.axis, len(bottom_shapes[0]))
        return axis >= 2 and bool(ops.product_half_plan(self.dtype))

    def declare(self, bottom_shapes: Shapes, top_shapes: Shapes, ops: Ops) -> None:
        ip, n, half = self.param.inner_product_param, self.positions, self.context.half
        rows = max(1, min(n, _CHUNK_BYTES // (ip.num_output * (BFLOAT16 if half else self.dtype).itemsize)))
        sizes = n, ip.num_output, self.width, ip.transpose, rows
        self.shape = LinearLoss(*sizes, self.has_ignore, self.ignore, self.normalizer(n, 1))
        self.scratch("lse", (n,), lives=self.saved_if_needed)
        self.scratch("norm", (1,), dtype=np.float64, lives=self.saved_if_needed)
        scores = rows * ip.num_output
        self.scratch("scores", (scores + (scores + 1) // 2 * half,), lives=Lives.CALL)  # half: and slopes, bfloat16
        if half:
            self.scratch("weights", self.params[0].shape, dtype=BFLOAT16, lives=Lives.CALL)
        self.scratch("losses", (n,), lives=Lives.CALL, backward=False)

    def backward_needs(self, propagate_down: Sequence[bool], param_propagate: Sequence[bool]) -> Needs:
        if not propagate_down[0] and not any(param_propagate):
            return Needs()
        return Needs(bottoms=frozenset({0, 1}), params=frozenset(range(len(self.params))))

    def flops(self, bottom_shapes: Shapes, top_shapes: Shapes) -> int:
        return 2 * self.positions * self.shape.classes * self.width

    def effort(self, forward: bool, again: bool) -> tuple[float, float]:
        products = HALF_EFFORT + _SCORES if self.context.half else 1.0 + _SCORES / 2
        return 1.0, products if forward or again else 1.5 * products  # the scores, and two gradients

    def forward(self, io: Pass) -> None:
        scratch = self._rows(io), io.scratch["scores"], io.scratch["losses"]
        io.ops.linear_softmax_loss.forward(self._inputs(io), io.top[0], *scratch, self.shape)

    def _inputs(self, io: Pass) -> LinearLossInputs:
        x, label = io.bottom
        weight = io.param[0]
        if "weights" in io.scratch:
            weight = io.scratch["weights"]
            io.ops.copy(io.param[0], weight)
        return LinearLossInputs(x, label, weight, io.param[1] if len(self.params) > 1 else None)

    def _rows(self, io: Pass) -> LossRows:
        return LossRows(io.scratch["lse"], io.scratch["norm"])

    def backward(self, io: Pass) -> None:
        db, add_b = (io.param_diff[1], bool(io.accumulate[1])) if len(self.params) > 1 else (None, False)
        gradients = LinearGradients(io.bottom_diff[0], io.param_diff[0], db, bool(io.accumulate[0]), add_b)
        arrays = self._inputs(io), io.top_diff[0], gradients, self._rows(io), io.scratch["scores"]
        io.ops.linear_softmax_loss.backward(*arrays, self.shape)
