"""Losses of the logarithms of probabilities.

MultinomialLogisticLoss takes probabilities, SoftmaxWithLoss and InfogainLoss the softmax of scores,
SigmoidCrossEntropyLoss their sigmoid.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from google.protobuf.message import DecodeError

from ...arrays import AnyArray, HostArray
from ...errors import DataError
from ...formats.weights.blobproto import blobproto_to_array
from ...ops.records import LabelGrid
from ...proto import caffe_pb2
from ..base import Lives, Needs, Ops, Pass, Shapes, between, count
from ..registry import register_layer
from .base import BATCH_SIZE, VALID, Labels, LossLayer, OneLabelLossLayer, class_grid


@register_layer("MultinomialLogisticLoss")
class MultinomialLogisticLossLayer(OneLabelLossLayer):
    """loss = -(1 / N) * sum of log(max(p[label], 1e-20)) over N items.

    Labels are cut to integers; one outside 0..C-1 makes the loss NaN, and its item's gradient too.
    Bottom 0: probabilities, (N, C) or more axes, which count as one. Bottom 1: N labels, no gradient. Top 0: the loss.
    Backward reads both bottoms: dp = -loss weight / (N max(p, 1e-20)) at the label, else 0.
    Raises: ShapeError when the labels do not fit the probabilities.
    Source: BVLC/caffe, src/caffe/layers/multinomial_logistic_loss_layer.cpp.
    """

    def forward(self, io: Pass) -> None:
        io.ops.multinomial_loss.forward(*io.bottom, io.top[0], io.scratch["work"], 1 / self.items, *self.size)

    def gradient(self, io: Pass, dy: AnyArray, dx: AnyArray) -> None:
        arrays = (*io.bottom, dy, dx)
        io.ops.multinomial_loss.backward(*arrays, 1 / self.items, *self.size)


class _SoftmaxLossLayer(LossLayer):
    """A loss of p, the softmax of bottom 0 along its class axis, of labels (bottom 1), and of bottom 2 if there is one.

    p is top 1 where that is given, which passes no gradient on, else scratch. Top 2 is the loss of every label.
    """

    declares = replace(LossLayer.declares, tops=between(1, 2))
    matrix: HostArray | None = None  # weights of (label, class), flat, that are not a bottom

    def tops_with_prob(self, bottom_shapes: Shapes, axis: int) -> Shapes:
        """Return the shapes of the tops. Set `grid`, around the class axis,
        and what labels may be."""
        self.check_batch(bottom_shapes)
        self.grid = class_grid(self, bottom_shapes, axis)
        self._class_labels = Labels(1, self.grid.channels, self.ignore if self.has_ignore else None)
        return [(), *map(tuple, bottom_shapes[:2])][: max(1, len(self.param.top))]

    @property
    def _labelled(self) -> LabelGrid:
        return LabelGrid(*self.grid, self.has_ignore, self.ignore)

    def prob_scratch(self, bottom_shapes: Shapes, top_shapes: Shapes) -> None:
        """Ask for scratch for p where no top shows it."""
        if len(top_shapes) == 1:
            self.scratch("prob", bottom_shapes[0], lives=self.saved_if_needed)

    def prob(self, io: Pass) -> AnyArray:
        """Return the array of p."""
        return io.top[1] if len(io.top) > 1 else io.scratch["prob"]

    def backward_needs(self, propagate_down: Sequence[bool], param_propagate: Sequence[bool]) -> Needs:
        if not propagate_down[0]:
            return Needs()
        tops = frozenset({1}) if len(self.param.top) > 1 else frozenset()
        return Needs(bottoms=frozenset(range(1, len(propagate_down))), tops=tops)

    def matrix_scratch(self, bottom_shapes: Shapes, top_shapes: Shapes) -> None:
        """Ask for what a loss with a matrix needs."""
        classes = self.grid.channels
        self.loss_scratch(norm=True)
        self.prob_scratch(bottom_shapes, top_shapes)
        if self.matrix is not None:
            self.scratch("matrix", (classes * classes,), lives=self.saved_if_needed)
        self.scratch("row_sums", (classes,), dtype=np.float64, lives=Lives.CALL, forward=False)

    def _matrix(self, io: Pass) -> AnyArray:
        return io.bottom[2] if self.matrix is None else io.scratch["matrix"]

    def matrix_forward(self, io: Pass) -> None:
        """Compute p and the loss with the matrix."""
        prob, matrix = self.prob(io), self._matrix(io)
        if self.matrix is not None:
            io.ops.upload_matrix(self.matrix, matrix)
        io.ops.softmax.forward(io.bottom[0], prob, self.grid)
        arrays = (prob, io.bottom[1], matrix, io.top[0], io.scratch["norm"], io.scratch["work"])
        norm = self.normalizer(self.grid.outer, self.grid.inner)
        io.ops.infogain_loss.forward(*arrays, norm, self._labelled)

    def matrix_gradient(self, io: Pass, dy: AnyArray, dx: AnyArray) -> None:
        """Compute the scores' gradient with the matrix."""
        arrays = (self.prob(io), io.bottom[1], self._matrix(io), dy, io.scratch["norm"])
        io.ops.infogain_loss.backward(*arrays, io.scratch["row_sums"], dx, self._labelled)


@register_layer("SoftmaxWithLoss")
class SoftmaxWithLossLayer(_SoftmaxLossLayer):
    """loss = -(1 / Z) * sum of log(max(p[label], FLT_MIN)), p = softmax of bottom 0 along softmax_param.axis.

    Z = max(1, ...) of: VALID (default) labels other than ignore_label; FULL positions; BATCH_SIZE positions before the
    class axis; PRE_FIXED loss_param.pre_fixed_normalizer; NONE 1. The older loss_param.normalize is used where
    normalization is not set: true VALID, false BATCH_SIZE. Labels are cut to integers; one outside 0..C-1 makes the
    loss NaN, and its position's gradient too.
    Bottom 0: scores. Bottom 1: labels, one for each position, no gradient.
    Top 0: the loss, no axes. Top 1, if given: p, the shape of bottom 0. Top 2, if given: the loss of each label before
    the division by Z, 0 where it is ignored, the shape of bottom 1. Tops 1 and 2 pass no gradient on.
    Backward reads the labels and p: dx = (p - onehot(label)) * loss weight / Z, 0 at ignored labels.
    With weight_by_label_freqs: true each position's loss and gradient is multiplied by its label's class_weighting, one
    number per class, and max(p, 1e-20) is taken; Z is the same.
    Raises: ShapeError when the labels do not fit the scores; LayerParamError for an axis out of range, a number of
    class_weighting that is not that of classes, or weights with a third top.
    Source: BVLC/caffe, src/caffe/layers/softmax_loss_layer.cpp; weights: alexgkendall/caffe-segnet, same file; top 2:
    daijifeng001/caffe-rfcn (R-FCN), same file.
    """

    declares = replace(LossLayer.declares, tops=between(1, 3))

    def setup(self, bottom_shapes: Shapes) -> None:
        self.read_normalization(VALID)

    def infer_shapes(self, bottom_shapes: Shapes) -> Shapes:
        tops = self.tops_with_prob(bottom_shapes, self.param.softmax_param.axis)
        self._weigh()
        return tops

    def _weigh(self) -> None:
        p, classes = self.param.loss_param, self.grid.channels
        if not p.weight_by_label_freqs:
            return
        if len(p.class_weighting) != classes:
            raise self.error(
                f"has {len(p.class_weighting)} class_weighting for {classes} classes",
                fix="give one class_weighting per class, or delete weight_by_label_freqs",
            )
        if len(self.param.top) > 2:
            raise self.error("has weights and a third top", fix="delete the top, or weight_by_label_freqs")
        self.matrix = np.diag(np.array(p.class_weighting, self.dtype)).reshape(-1)

    def declare(self, bottom_shapes: Shapes, top_shapes: Shapes, ops: Ops) -> None:
        if self.matrix is not None:
            self.matrix_scratch(bottom_shapes, top_shapes)
            return
        self.prob_scratch(bottom_shapes, top_shapes)
        self.scratch("norm", (1,), dtype=np.float64, lives=self.saved_if_needed)
        self.scratch("work", (512,), dtype=np.float64, lives=Lives.CALL, backward=False)

    def forward(self, io: Pass) -> None:
        if self.matrix is not None:
            self.matrix_forward(io)
            return
        prob, norm = self.prob(io), self.normalizer(self.grid.outer, self.grid.inner)
        io.ops.softmax.forward(io.bottom[0], prob, self.grid)
        arrays = (prob, io.bottom[1], io.top[0], io.scratch["norm"], io.scratch["work"])
        io.ops.softmax_loss.forward(*arrays, norm, self._labelled)
        if len(io.top) > 2:
            io.ops.softmax_losses(prob, io.bottom[1], io.top[2], self._labelled)

    def gradient(self, io: Pass, dy: AnyArray, dx: AnyArray) -> None:
        if self.matrix is not None:
            self.matrix_gradient(io, dy, dx)
            return
        arrays = (self.prob(io), io.bottom[1], dy, io.scratch["norm"], dx)
        io.ops.softmax_loss.backward(*arrays, self._labelled)


@register_layer("SoftmaxWithLossOHEM")
class SoftmaxWithLossOHEMLayer(SoftmaxWithLossLayer):
    """SoftmaxWithLoss by another name: with top 2, the loss of each label, by which BoxAnnotatorOHEM chooses.

    Fields, bottoms, tops and errors are those of SoftmaxWithLoss.
    Source: intel/caffe, src/caffe/layers/softmax_loss_ohem_layer.cpp (its GPU code on every device; that for the CPU
    adds up wrong elements where labels are ignored).
    """


@register_layer("InfogainLoss")
class InfogainLossLayer(_SoftmaxLossLayer):
    """loss = -(1 / Z) * sum over positions and classes l of H[label, l] log(max(p[l], 1e-20)), p = softmax of bottom 0.

    H, C x C, is bottom 2 or, without one, the BlobProto in the file infogain_loss_param.source. The classes lie along
    infogain_loss_param.axis (default 1), whatever softmax_param.axis says. Z as in SoftmaxWithLoss, default VALID;
    loss_param.normalize is refused. Labels as in that layer.
    Bottom 0: scores. Bottom 1: labels, one for each position. Neither it nor bottom 2 gets a gradient.
    Top 0: the loss, no axes. Top 1, if given: p, the shape of bottom 0; it passes no gradient on.
    Backward reads the labels, p and H: dx = (p * sum(H[label]) - H[label]) * loss weight / Z, 0 at ignored labels.
    Raises: ShapeError for labels or an H that do not fit; LayerParamError without H; DataError for a bad file.
    Source: BVLC/caffe, src/caffe/layers/infogain_loss_layer.cpp.
    """

    declares = replace(
        _SoftmaxLossLayer.declares,
        bottoms=between(2, 3),
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
        """Return the numbers in a BlobProto file. Raises DataError."""
        proto = caffe_pb2.BlobProto()
        try:
            with open(path, "rb") as file:
                proto.ParseFromString(file.read())
            return np.ascontiguousarray(blobproto_to_array(proto, self.dtype)).reshape(-1)
        except (OSError, DecodeError) as error:
            raise self.error(
                f'the infogain matrix "{path}" cannot be read: {error}', kind=DataError, fix="name a BlobProto file"
            ) from error

    def infer_shapes(self, bottom_shapes: Shapes) -> Shapes:
        tops = self.tops_with_prob(bottom_shapes, self.param.infogain_loss_param.axis)
        classes = self.grid.channels
        given = count(bottom_shapes[2]) if self.matrix is None else self.matrix.size
        if given != classes * classes:
            raise self.shape_error(
                f"the infogain matrix has {given} numbers, but {classes} classes need {classes} x {classes}",
                bottom=2,
                fix="give a matrix of one row and one column per class",
            )
        return tops

    def declare(self, bottom_shapes: Shapes, top_shapes: Shapes, ops: Ops) -> None:
        self.matrix_scratch(bottom_shapes, top_shapes)

    def forward(self, io: Pass) -> None:
        self.matrix_forward(io)

    def gradient(self, io: Pass, dy: AnyArray, dx: AnyArray) -> None:
        self.matrix_gradient(io, dy, dx)


@register_layer("SigmoidCrossEntropyLoss")
class SigmoidCrossEntropyLossLayer(LossLayer):
    """loss = -(1 / Z) * sum of (t log(p) + (1 - t) log(1 - p)), p = sigmoid(x), element by element.

    Z = max(1, ...) of: BATCH_SIZE (default) items; FULL elements; VALID elements that are not ignored; PRE_FIXED
    loss_param.pre_fixed_normalizer; NONE 1. The older loss_param.normalize is used where normalization is not set: true
    VALID, false BATCH_SIZE. A target whose integer part is ignore_label is ignored: with ignore_label 0 that drops 0.4
    and -0.5 too.
    Bottom 0: x. Bottom 1: the targets t, as many, usually 0 to 1, no gradient. Top 0: the loss, no axes.
    Backward reads both bottoms: dx = (p - t) * loss weight / Z, 0 at ignored targets.
    Raises: ShapeError for batches of different sizes or other numbers of elements.
    Source: BVLC/caffe, src/caffe/layers/sigmoid_cross_entropy_loss_layer.cpp (its CPU code on every device).
    """

    def setup(self, bottom_shapes: Shapes) -> None:
        self.read_normalization(BATCH_SIZE)

    def infer_shapes(self, bottom_shapes: Shapes) -> Shapes:
        items = self.check_batch(bottom_shapes)
        x, t = (tuple(shape) for shape in bottom_shapes)
        if count(x) != count(t):
            raise self.shape_error(
                f'has shape {t}: {count(t)} targets, but "{self.param.bottom[0]}" of shape {x} has {count(x)} elements',
                bottom=1,
                fix="give one target for each element",
            )
        self.size = items, count(x, 1)
        return [()]

    def declare(self, bottom_shapes: Shapes, top_shapes: Shapes, ops: Ops) -> None:
        self.loss_scratch(norm=True)

    def forward(self, io: Pass) -> None:
        arrays = (*io.bottom, io.top[0], io.scratch["norm"], io.scratch["work"])
        io.ops.sigmoid_loss.forward(*arrays, self.has_ignore, self.ignore, self.normalizer(*self.size))

    def gradient(self, io: Pass, dy: AnyArray, dx: AnyArray) -> None:
        arrays = (*io.bottom, dy, io.scratch["norm"], dx)
        io.ops.sigmoid_loss.backward(*arrays, self.has_ignore, self.ignore)
