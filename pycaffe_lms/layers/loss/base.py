"""What loss layers share: the check of the batch, the normalisation that loss_param chooses, scratch, labels."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ...ops.axes import around_axis
from ...ops.records import Grid
from ...ops.sum_parts import LOSS_BLOCKS
from ...proto import caffe_pb2
from ..base import Declaration, Layer, Lives, Ops, Reads, Shapes, count, exactly

FULL, VALID, BATCH_SIZE, PRE_FIXED = (
    caffe_pb2.LossParameter.NormalizationMode.Value(name) for name in ("FULL", "VALID", "BATCH_SIZE", "PRE_FIXED")
)


class LossLayer(Layer):
    """A layer whose top 0 is one number, of loss weight 1 unless the prototxt says otherwise.

    Unless a subclass says otherwise there are two bottoms, of which the second (labels) gets no gradient, and backward
    reads all bottoms.
    """

    declares = Declaration(
        bottoms=exactly(2),
        is_loss=True,
        backward_reads=Reads.BOTTOM_DATA,
        no_backward=frozenset({1}),
        ignores_force_backward=frozenset({1}),
    )

    def check_batch(self, bottom_shapes: Shapes) -> int:
        """Return the number of items. Raises ShapeError unless all required bottoms have the same first axis."""
        first = tuple(bottom_shapes[0])
        for i, shape in enumerate(bottom_shapes[: self.declares.bottoms.least]):
            self.check_axes(shape, 1, bottom=i)
            if shape[0] != first[0]:
                raise self.shape_error(
                    f'has shape {tuple(shape)}, but "{self.param.bottom[0]}" has {first}: the first axes differ',
                    bottom=i,
                    fix=f'give "{self.param.bottom[i]}" and "{self.param.bottom[0]}" the same number of items',
                )
        return first[0]

    def read_normalization(self, default: int) -> None:
        """Read ignore_label and the mode of loss_param: `default` unless normalization or normalize is set."""
        loss = self.param.loss_param
        self.has_ignore, self.ignore = loss.HasField("ignore_label"), loss.ignore_label
        self.mode = default
        if loss.HasField("normalization"):
            self.mode = loss.normalization
        elif loss.HasField("normalize"):
            self.mode = VALID if loss.normalize else BATCH_SIZE

    def normalizer(self, outer: int, inner: int) -> float:
        """Return the number Z to divide by, before it is raised to 1. -1: count the labels that are not ignored."""
        if self.mode == VALID and self.has_ignore:
            return -1
        if self.mode == PRE_FIXED:
            return max(1.0, self.param.loss_param.pre_fixed_normalizer)
        return {FULL: outer * inner, VALID: outer * inner, BATCH_SIZE: outer}.get(self.mode, 1)

    def loss_scratch(self, norm: bool = False) -> None:
        """Ask for `work`, the partial sums of the loss, and, if wanted, for `norm`, the number backward divides by."""
        self.scratch("work", (2 * LOSS_BLOCKS,), dtype=np.float64, lives=Lives.CALL, backward=False)
        if norm:
            self.scratch("norm", (1,), dtype=np.float64, lives=self.saved_if_needed)

    def declare(self, bottom_shapes: Shapes, top_shapes: Shapes, ops: Ops) -> None:
        self.loss_scratch()


class OneLabelLossLayer(LossLayer):
    """A loss of N items of C scores each (bottom 0) that have one label each (bottom 1)."""

    def infer_shapes(self, bottom_shapes: Shapes) -> Shapes:
        items, labels = self.check_batch(bottom_shapes), tuple(bottom_shapes[1])
        if count(labels, 1) != 1:
            raise self.shape_error(f"has shape {labels}, but an item has one label", bottom=1, fix="give N labels")
        self.items, self.size = max(1, items), (items, count(bottom_shapes[0], 1))
        self._class_labels = Labels(1, self.size[1])
        return [()]


@dataclass(frozen=True)
class Labels:
    """Says that bottom `bottom` holds labels: after truncation to integers 0 to classes - 1, or `ignore`.

    Where there is any other label, what the layer computes is NaN.
    """

    bottom: int
    classes: int
    ignore: int | None = None

    def outside(self, labels: np.ndarray) -> np.ndarray:
        """Return the positions, in the flattened array, of labels (NaN too) that name no class and are not ignored."""
        whole = np.trunc(labels.reshape(-1))
        fine = (whole >= 0) & (whole < self.classes)
        if self.ignore is not None:
            fine |= whole == self.ignore
        return np.flatnonzero(~fine)


def class_grid(layer: Layer, bottom_shapes: Shapes, axis: int) -> Grid:
    """Return how the scores are seen: positions before the class axis, classes, positions behind it.

    Raises: ShapeError unless there is one label for each position; LayerParamError for an axis out of range.
    """
    scores, labels = tuple(bottom_shapes[0]), tuple(bottom_shapes[1])
    axis = layer.canonical_axis(axis, len(scores))
    grid = around_axis(scores, axis)
    if count(labels) != grid.outer * grid.inner:
        raise layer.shape_error(
            f'has shape {labels}: {count(labels)} labels, but "{layer.param.bottom[0]}" of shape {scores} has '
            f"{grid.outer * grid.inner} positions around its class axis {axis}",
            bottom=1,
            fix="give one label for each position, or set axis to the axis of the classes",
        )
    return grid
