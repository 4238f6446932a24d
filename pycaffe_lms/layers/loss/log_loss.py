"""Losses of given probabilities or weighted classes: MultinomialLogisticLoss and InfogainLoss."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from google.protobuf.message import DecodeError

from ...arrays import AnyArray, HostArray
from ...errors import CaffeError, DataError
from ...formats.weights.blobproto import blobproto_to_array
from ...ops.label_grid import LabelGrid
from ...proto import caffe_pb2
from ..base import Lives, Needs, Ops, Pass, Shapes, between, count
from ..registry import register_layer
from .base import VALID, Labels, LossLayer, class_sizes


@register_layer("MultinomialLogisticLoss")
class MultinomialLogisticLossLayer(LossLayer):
    """loss = -(1 / N) * sum of log(max(p[label], 1e-20)) over N items.

    Labels are cut to integers; one outside 0..C-1 makes the loss NaN, and its item's gradient too.
    Bottom 0: probabilities, (N, C) or more axes, which count as one. Bottom 1: N labels, no gradient. Top 0: the loss.
    Backward reads both bottoms: dp = -loss weight / (N max(p, 1e-20)) at the label, else 0.
    Raises: ShapeError when the labels do not fit the probabilities.
    Source: BVLC/caffe, src/caffe/layers/multinomial_logistic_loss_layer.cpp.
    """

    def infer_shapes(self, bottom_shapes: Shapes) -> Shapes:
        items, labels = self.check_batch(bottom_shapes), tuple(bottom_shapes[1])
        if count(labels, 1) != 1:
            raise self.shape_error(f"has shape {labels}, but an item has one label", bottom=1, fix="give N labels")
        self.items, self.size = max(1, items), (items, count(bottom_shapes[0], 1))
        self._class_labels = Labels(1, self.size[1])
        return [()]

    def declare(self, bottom_shapes: Shapes, top_shapes: Shapes, ops: Ops) -> None:
        self.loss_scratch()

    def backward_needs(self, propagate_down: Sequence[bool], param_propagate: Sequence[bool]) -> Needs:
        return Needs(bottoms=frozenset({0, 1}) if propagate_down[0] else frozenset())

    def forward(self, io: Pass) -> None:
        io.ops.multinomial_loss.forward(*io.bottom, io.top[0], io.scratch["work"], 1 / self.items, *self.size)

    def backward(self, io: Pass) -> None:
        if io.bottom_diff[0] is not None:
            arrays = (*io.bottom, io.top_diff[0], io.bottom_diff[0])
            io.ops.multinomial_loss.backward(*arrays, 1 / self.items, *self.size)


@register_layer("InfogainLoss")
class InfogainLossLayer(LossLayer):
    """loss = -(1 / Z) * sum over positions and classes l of H[label, l] log(max(p[l], 1e-20)), p = softmax of bottom 0.

    H, C x C, is bottom 2 or, without one, the BlobProto in the file infogain_loss_param.source. The classes lie along
    infogain_loss_param.axis (default 1), whatever softmax_param.axis says. Z as in SoftmaxWithLoss, default VALID;
    loss_param.normalize is refused. Labels as there: cut to integers, one outside 0..C-1 gives NaN.
    Bottom 0: scores. Bottom 1: labels, one for each position. Neither it nor bottom 2 gets a gradient.
    Top 0: the loss, no axes. Top 1, if given: p, the shape of bottom 0; it passes no gradient on.
    Backward reads the labels, p and H: dx = (p * sum(H[label]) - H[label]) * loss weight / Z, 0 at ignored labels.
    Raises: ShapeError for labels or an H that do not fit; LayerParamError without H; DataError for a bad file.
    Source: BVLC/caffe, src/caffe/layers/infogain_loss_layer.cpp.
    """

    declares = replace(
        LossLayer.declares,
        bottoms=between(2, 3),
        tops=between(1, 2),
        no_backward=frozenset({1, 2}),
        ignores_force_backward=frozenset({1, 2}),
    )

    def setup(self, bottom_shapes: Shapes) -> None:
        if self.param.loss_param.HasField("normalize"):
            raise self.error("loss_param.normalize is not for this layer", fix="use loss_param.normalization")
        self.read_normalization(VALID)
        source = self.param.infogain_loss_param.source
        if len(bottom_shapes) < 3 and not source:
            raise self.error("has no infogain matrix", fix="add a third bottom, or infogain_loss_param { source: }")
        self.matrix = None if len(bottom_shapes) > 2 else self._read(source)

    def _read(self, path: str) -> HostArray:
        """Return the numbers in a BlobProto file."""
        proto = caffe_pb2.BlobProto()
        try:
            with open(path, "rb") as file:
                proto.ParseFromString(file.read())
            return np.ascontiguousarray(blobproto_to_array(proto, self.dtype)).reshape(-1)
        except (OSError, DecodeError) as error:
            raise self.error(
                f'the infogain matrix "{path}" cannot be read: {error}', kind=DataError, fix="name a BlobProto file"
            ) from error
        except CaffeError as error:
            error.at(layer=self.name, type=self.param.type)
            raise

    def infer_shapes(self, bottom_shapes: Shapes) -> Shapes:
        self.check_batch(bottom_shapes)
        self.size = class_sizes(self, bottom_shapes, self.param.infogain_loss_param.axis)
        classes = self.size[1]
        self._class_labels = Labels(1, classes, self.ignore if self.has_ignore else None)
        given = count(bottom_shapes[2]) if self.matrix is None else self.matrix.size
        if given != classes * classes:
            raise self.shape_error(
                f"the infogain matrix has {given} numbers, but {classes} classes need {classes} x {classes}",
                bottom=2,
                fix="give a matrix of one row and one column per class",
            )
        return [(), tuple(bottom_shapes[0])][: max(1, len(self.param.top))]

    def declare(self, bottom_shapes: Shapes, top_shapes: Shapes, ops: Ops) -> None:
        classes = self.size[1]
        self.loss_scratch(norm=True)
        if len(top_shapes) == 1:
            self.scratch("prob", bottom_shapes[0], lives=self.saved())
        if self.matrix is not None:
            self.scratch("matrix", (classes * classes,), lives=self.saved())
        self.scratch("row_sums", (classes,), dtype=np.float64, lives=Lives.CALL, forward=False)

    def backward_needs(self, propagate_down: Sequence[bool], param_propagate: Sequence[bool]) -> Needs:
        if not propagate_down[0]:
            return Needs()
        bottoms = frozenset({1}) if self.matrix is not None else frozenset({1, 2})
        return Needs(bottoms=bottoms, tops=frozenset({1}) if len(self.param.top) > 1 else frozenset())

    def _prob(self, io: Pass) -> AnyArray:
        return io.top[1] if len(io.top) > 1 else io.scratch["prob"]

    def _matrix(self, io: Pass) -> AnyArray:
        return io.bottom[2] if self.matrix is None else io.scratch["matrix"]

    def forward(self, io: Pass) -> None:
        prob, matrix = self._prob(io), self._matrix(io)
        if self.matrix is not None:
            io.ops.upload_matrix(self.matrix, matrix)
        io.ops.softmax.forward(io.bottom[0], prob, *self.size)
        arrays = (prob, io.bottom[1], matrix, io.top[0], io.scratch["norm"], io.scratch["work"])
        outer, _, inner = self.size
        grid = LabelGrid(*self.size, self.has_ignore, self.ignore)
        io.ops.infogain_loss.forward(*arrays, self.normalizer(outer, inner), grid)

    def backward(self, io: Pass) -> None:
        dx = io.bottom_diff[0]
        if dx is None:
            return
        if io.top_diff[0] is None:
            io.ops.fill(dx, 0)
            return
        arrays = (self._prob(io), io.bottom[1], self._matrix(io), io.top_diff[0], io.scratch["norm"])
        sums = io.scratch["row_sums"]
        io.ops.infogain_loss.backward(*arrays, sums, dx, LabelGrid(*self.size, self.has_ignore, self.ignore))
