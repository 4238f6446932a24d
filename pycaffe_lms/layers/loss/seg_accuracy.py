"""SegAccuracy: how well pictures of labels are found."""

from __future__ import annotations

import numpy as np

from ...arrays import HostArray
from ...errors import DataError
from ..base import Declaration, Layer, Pass, Reads, Runs, Shapes, exactly
from ..registry import register_layer


@register_layer("SegAccuracy")
class SegAccuracyLayer(Layer):
    """Share of right pixels, its mean over classes, and the mean intersection over union.

    The found class of a pixel is the one with the highest score, of several such classes the last.
    Bottom 0: scores, (N, C, H, W). Bottom 1: labels, (N, 1, H, W); those among the ignore_label do not count.
    Top 0: (1, 1, 1, 3): right pixels / pixels; the mean of right pixels / pixels of a class, over classes with pixels
    (both 0 without any); the mean, over all classes, of right pixels / pixels that are of the class, found as it, or
    both (1 for a class with none). With reset: false, pixels of all batches since the first count, also in a resumed
    run. Runs on the host. No gradient.
    Raises: ShapeError where labels do not fit the scores; DataError for a label outside 0..C-1 that is not ignored.
    Source: xmyqsh/deeplab-v2 (DeepLab), seg_accuracy_layer.cpp, confusion_matrix.cpp.
    """

    declares = Declaration(
        bottoms=exactly(2),
        runs_on=Runs.HOST,
        no_backward=None,
        backward_reads=Reads.NONE,
        ignores_force_backward=frozenset({0, 1}),
    )

    def setup(self, bottom_shapes: Shapes) -> None:
        self._ignored = np.array(self.param.seg_accuracy_param.ignore_label, np.int64)
        self._keeps = not self.param.seg_accuracy_param.reset
        self._counts: HostArray | None = None  # [i, j]: pixels of class i found as class j

    def infer_shapes(self, bottom_shapes: Shapes) -> Shapes:
        scores, labels = (tuple(shape) for shape in bottom_shapes)
        if len(scores) != 4:
            raise self.shape_error(f"has shape {scores}", bottom=0, fix="give scores (N, C, H, W)")
        wanted = (scores[0], 1, *scores[2:])
        if labels != wanted:
            raise self.shape_error(f"has shape {labels}", bottom=1, fix=f"give labels {wanted}")
        self._classes = scores[1]
        return [(1, 1, 1, 3)]

    def forward(self, io: Pass) -> None:
        scores, labels = io.bottom[0], io.bottom[1].astype(np.int64).ravel()
        classes = self._classes
        found = (classes - 1 - scores[:, ::-1].argmax(axis=1)).ravel()
        counted = ~np.isin(labels, self._ignored)
        labels, found = labels[counted], found[counted]
        wrong = labels[(labels < 0) | (labels >= classes)]
        if len(wrong):
            raise self.error(
                f"a label is {wrong[0]}, but there are {classes} classes",
                kind=DataError,
                blob=self.param.bottom[1],
                fix=f"correct the labels, or write seg_accuracy_param {{ ignore_label: {wrong[0]} }}",
            )
        counts = np.bincount(labels * classes + found, minlength=classes**2).reshape(classes, classes)
        if self._keeps and self._counts is not None:
            counts = counts + self._counts
        self._counts = counts if self._keeps else None
        right, of_class, found_as = np.diag(counts), counts.sum(axis=1), counts.sum(axis=0)
        union = of_class + found_as - right
        present = of_class > 0
        recall = (right[present] / of_class[present]).mean() if present.any() else 0
        shares = np.where(union > 0, right / np.maximum(union, 1), 1)
        io.top[0][...] = (right.sum() / max(counts.sum(), 1), recall, shares.mean())

    def state(self) -> dict[str, int]:
        """Return how many pixels of class i were found as class j, by "i,j"; nothing where each batch counts alone."""
        if self._counts is None:
            return {}
        return {f"{i},{j}": int(self._counts[i, j]) for i, j in np.argwhere(self._counts).tolist()}

    def set_state(self, state: dict[str, int]) -> None:
        self._counts = None
        if self._keeps and state:
            self._counts = np.zeros((self._classes, self._classes), np.int64)
            for place, count in state.items():
                self._counts[tuple(map(int, place.split(",")))] = count
