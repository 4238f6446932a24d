"""Losses with a margin: HingeLoss, ContrastiveLoss and TripletLoss."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from ...ops.records import Contrast, Triplets
from ...proto import caffe_pb2
from ..base import AnyArray, Needs, Ops, Pass, Shapes, between, count, exactly
from ..registry import register_layer
from .base import LossLayer, OneLabelLossLayer

_L2 = caffe_pb2.HingeLossParameter.L2


@register_layer("HingeLoss")
class HingeLossLayer(OneLabelLossLayer):
    """loss = sum of m / N (norm L1, default) or m^2 / N (L2), m = max(0, 1 - s x), s = 1 for the label, else -1.

    Labels are cut to integers; one outside 0..C-1 makes the loss NaN, and its item's gradient too.
    Bottom 0: scores, (N, C) or more axes, which count as one. Bottom 1: N labels, no gradient. Top 0: the loss.
    Backward reads both bottoms and computes the margins again (Caffe keeps them in the bottom's diff).
    dx = -s * loss weight / N * (L1: sign(m); L2: 2 m).
    Raises: ShapeError when the labels do not fit the scores.
    Source: BVLC/caffe, src/caffe/layers/hinge_loss_layer.cpp.
    """

    def setup(self, bottom_shapes: Shapes) -> None:
        self.squared = self.param.hinge_loss_param.norm == _L2

    def forward(self, io: Pass) -> None:
        scratch = io.scratch["work"]
        io.ops.hinge_loss.forward(*io.bottom, io.top[0], scratch, self.squared, 1 / self.items, *self.size)

    def gradient(self, io: Pass, dy: AnyArray, dx: AnyArray) -> None:
        arrays = (*io.bottom, dy, dx)
        io.ops.hinge_loss.backward(*arrays, self.squared, 1 / self.items, *self.size)


@register_layer("ContrastiveLoss")
class ContrastiveLossLayer(LossLayer):
    """loss = sum of (y d^2 + (1 - y) max(margin - d, 0)^2) / (2 N), d = |a - b|, y = 1 for a similar pair.

    contrastive_loss_param.margin: default 1. With legacy_version a dissimilar pair gives max(margin - d^2, 0).
    Bottoms 0 and 1: a and b, (N, C) or (N, C, 1, 1). Bottom 2: N labels, similar where the integer part is not 0.
    Top 0: the loss, no axes. N may change after set-up.
    Backward reads all bottoms: da = (a - b) * loss weight / N * (similar: 1; d < margin: -(margin - d) / (d + 1e-4);
    legacy, d^2 < margin: -1; else 0), db = -da.
    Raises: ShapeError for bottoms that do not fit each other.
    Source: BVLC/caffe, src/caffe/layers/contrastive_loss_layer.cpp (its CPU code on every device).
    """

    declares = replace(
        LossLayer.declares, bottoms=exactly(3), no_backward=frozenset({2}), ignores_force_backward=frozenset({2})
    )

    def setup(self, bottom_shapes: Shapes) -> None:
        contrastive = self.param.contrastive_loss_param
        self.margin, self.legacy = contrastive.margin, contrastive.legacy_version

    def infer_shapes(self, bottom_shapes: Shapes) -> Shapes:
        items = self.check_batch(bottom_shapes)
        a = tuple(bottom_shapes[0])
        for i, shape in enumerate(bottom_shapes):
            features = count(a, 1) if i < 2 else 1
            if count(shape, 1) != features or count(shape, 2) != 1:
                raise self.shape_error(
                    f"has shape {tuple(shape)}, which is not {items} items of {features} channels and no further size",
                    bottom=i,
                    fix="give two bottoms of one shape (N, C) and a bottom of N labels",
                )
        self.items, self.contrast = max(1, items), Contrast(items, count(a, 1), self.margin, self.legacy)
        return [()]

    def declare(self, bottom_shapes: Shapes, top_shapes: Shapes, ops: Ops) -> None:
        self.loss_scratch()
        self.scratch("distance", (self.contrast.items,), dtype=np.float64, lives=self.saved_if_needed)

    def forward(self, io: Pass) -> None:
        arrays = (*io.bottom, io.top[0], io.scratch["distance"], io.scratch["work"])
        io.ops.contrastive_loss.forward(*arrays, 0.5 / self.items, self.contrast)

    def backward(self, io: Pass) -> None:
        for dx, sign in zip(io.bottom_diff[:2], (1.0, -1.0), strict=True):
            if dx is not None:
                arrays = (*io.bottom, io.top_diff[0], io.scratch["distance"], dx)
                io.ops.contrastive_loss.backward(*arrays, sign / self.items, self.contrast)


@register_layer("TripletLoss")
class TripletLossLayer(LossLayer):
    """loss = sum of w max(margin + |a - p|^2 - |a - n|^2, 0) / (2 N): a shall be nearer to p than to n.

    triplet_loss_param.margin: default 1. Bottoms 0 to 2: a (anchor), p (positive) and n (negative), N items of equally
    many elements each. Bottom 3, if given: w, N weights, no gradient; without it w is 1. Top 0: the loss, no axes.
    Backward reads bottoms; where the maximum is above 0: da = w (n - p), dp = w (p - a), dn = w (a - n), each times
    loss weight / N, else 0.
    Raises: ShapeError for bottoms that do not fit each other.
    Source: happynear/caffe-windows, src/caffe/layers/triplet_loss_layer.cpp; lchia/caffe-triplet has weights. Forks
    whose layer takes one bottom, or a bottom of indices, mean other losses.
    """

    declares = replace(
        LossLayer.declares, bottoms=between(3, 4), no_backward=frozenset({3}), ignores_force_backward=frozenset({3})
    )

    def infer_shapes(self, bottom_shapes: Shapes) -> Shapes:
        items = self.check_batch(bottom_shapes)
        size = count(bottom_shapes[0], 1)
        for i, shape in enumerate(bottom_shapes):
            wanted = size if i < 3 else 1
            if not shape or shape[0] != items or count(shape, 1) != wanted:
                raise self.shape_error(
                    f"has shape {tuple(shape)}, which is not {items} items of {wanted} elements",
                    bottom=i,
                    fix="give three bottoms of one shape, and perhaps one of N weights",
                )
        self.items, self.size = max(1, items), (items, size)
        return [()]

    def declare(self, bottom_shapes: Shapes, top_shapes: Shapes, ops: Ops) -> None:
        self.loss_scratch()
        self.scratch("gap", self.size[:1], dtype=np.float64, lives=self.saved_if_needed)

    def backward_needs(self, propagate_down: Sequence[bool], param_propagate: Sequence[bool]) -> Needs:
        wanted = [i for i, wants in enumerate(propagate_down[:3]) if wants]
        read = {k for i in wanted for k in ((1, 2), (0, 1), (0, 2))[i]}
        weights = {3} if wanted and len(self.param.bottom) > 3 else set()
        return Needs(bottoms=frozenset(read | weights))

    def _bottoms(self, io: Pass) -> Triplets:
        a, p, n, *weight = io.bottom
        return Triplets(a, p, n, weight[0] if weight else None)

    def forward(self, io: Pass) -> None:
        arrays = self._bottoms(io), io.top[0], io.scratch["gap"], io.scratch["work"]
        io.ops.triplet_loss.forward(*arrays, self.param.triplet_loss_param.margin, 0.5 / self.items, *self.size)

    def backward(self, io: Pass) -> None:
        for which, dx in enumerate(io.bottom_diff[:3]):
            if dx is not None:
                arrays = self._bottoms(io), io.top_diff[0], io.scratch["gap"], dx
                io.ops.triplet_loss.backward(*arrays, which, 1 / self.items, *self.size)
