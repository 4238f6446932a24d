"""What the loss layers share: the check of the batch, loss_param's normalisation, scratch, labels."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ...ops.sum_parts import LOSS_BLOCKS
from ...proto import caffe_pb2
from ..base import Declaration, Layer, Lives, Shapes, count, exactly

FULL, VALID, BATCH_SIZE = (
    caffe_pb2.LossParameter.NormalizationMode.Value(name) for name in ("FULL", "VALID", "BATCH_SIZE")
)


class LossLayer(Layer):
    """Scores and labels in, one number out; its weight is 1 unless the prototxt says otherwise."""

    declares = Declaration(
        bottoms=exactly(2), is_loss=True, no_backward=frozenset({1}), ignores_force_backward=frozenset({1})
    )

    def check_batch(self, bottom_shapes: Shapes) -> int:
        """The size of the batch. Raises ShapeError unless the bottoms have the same first axis."""
        first = tuple(bottom_shapes[0])
        for i, shape in enumerate(bottom_shapes[: self.declares.bottoms.least]):
            if not shape:
                raise self.shape_error("has no axes, so no batch", bottom=i, fix="give it one item per row")
            if shape[0] != first[0]:
                raise self.shape_error(
                    f'has shape {tuple(shape)}, but "{self.param.bottom[0]}" has {first}: the first axes differ',
                    bottom=i,
                    fix="give this layer bottoms of the same batch",
                )
        return first[0]

    def read_normalization(self, default: int) -> None:
        """`ignore_label` and the mode of loss_param; `default` where neither of its two fields is set."""
        loss = self.param.loss_param
        self.has_ignore, self.ignore = loss.HasField("ignore_label"), loss.ignore_label
        self.mode = default
        if loss.HasField("normalization"):
            self.mode = loss.normalization
        elif loss.HasField("normalize"):
            self.mode = VALID if loss.normalize else BATCH_SIZE

    def normalizer(self, outer: int, inner: int) -> int:
        """Z before its floor of 1; -1: the number of labels that are not ignored, counted on the device."""
        if self.mode == VALID:
            return -1 if self.has_ignore else outer * inner
        return {FULL: outer * inner, BATCH_SIZE: outer}.get(self.mode, 1)

    def loss_scratch(self, norm: bool = False) -> None:
        """`work` for the partial sums of the loss and, if wanted, `norm` that backward divides by."""
        self.scratch("work", (2 * LOSS_BLOCKS,), dtype=np.float64, lives=Lives.CALL, backward=False)
        if norm:
            self.scratch("norm", (1,), dtype=np.float64, lives=self.saved())

    def saved(self) -> Lives:
        """SAVED where backward will read it, else CALL: forward writes it in any case."""
        return Lives.SAVED if self.context.needs_backward else Lives.CALL


@dataclass(frozen=True)
class Labels:
    """Bottom `bottom` holds labels, which are cut to integers: 0 to classes - 1 name a class, `ignore` may stand for
    none. Any other makes what the layer computes NaN."""

    bottom: int
    classes: int
    ignore: int | None = None

    def outside(self, labels: np.ndarray) -> np.ndarray:
        """Positions, in the flattened array, of labels that name no class and are not ignored; NaN is one."""
        whole = np.trunc(labels.reshape(-1))
        fine = (whole >= 0) & (whole < self.classes)
        if self.ignore is not None:
            fine |= whole == self.ignore
        return np.flatnonzero(~fine)


def class_sizes(layer: Layer, bottom_shapes: Shapes, axis: int) -> tuple[int, int, int]:
    """Return (positions before the class axis, classes, positions behind it). Raises ShapeError through the layer."""
    scores, labels = tuple(bottom_shapes[0]), tuple(bottom_shapes[1])
    axis = layer.canonical_axis(axis, len(scores))
    outer, classes, inner = count(scores, 0, axis), count(scores, axis, axis + 1), count(scores, axis + 1)
    if count(labels) != outer * inner:
        raise layer.shape_error(
            f'has shape {labels}: {count(labels)} labels, but "{layer.param.bottom[0]}" of shape {scores} has '
            f"{outer * inner} positions around its class axis {axis}",
            bottom=1,
            fix="give one label for each position, or set axis to the axis of the classes",
        )
    return outer, classes, inner
