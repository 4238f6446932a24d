"""CTCGreedyDecoder and LabelsequenceAccuracy: labels from sequences of scores, and how right they are."""

from __future__ import annotations

import numpy as np

from ...ops.records import LabelRows
from ..base import Declaration, Layer, Lives, Ops, Pass, Reads, Shapes, between, count, exactly
from ..registry import register_layer


def _check_blank(layer: Layer, blank: int, classes: int, field: str) -> int:
    if not 0 <= blank < classes:
        raise layer.error(f"{field} is {blank}, but there are {classes} classes", fix=f"use 0 to {classes - 1}")
    return blank


@register_layer("CTCGreedyDecoder")
class CTCGreedyDecoderLayer(Layer):
    """The labels that the class of the highest score at every time step reads as: without blanks, and with
    ctc_merge_repeated (default) without classes equal to the one before.

    ctc_decoder_param.blank_index: the blank, default the last class. Among equal scores the first class counts.
    Bottom 0: scores, (T, N, C) or (T, N, C, 1). Bottom 1: marks, (T, N): a sequence ends before the first 0 after step
    0. Bottom 2, if given: labels, (L, N), which end before the first negative one.
    Top 0: (T, N, 1, 1), the labels, then -1. With two bottoms top 1, if given, is the score, (N, 1, 1, 1): minus the
    sum of the highest scores. With three bottoms the last of two or three tops is the accuracy, (1, 1, 1, 1): 1 - the
    mean of edit distance / length of the longer sequence; the middle of three is the score.
    With bottom 0 alone all sequences have T steps, the default blank is 0, and top 0 is (N, T, 1, 1).
    With one top and labels (N, L) as bottom 1, unless T = N = L, all sequences have T steps, too. Labels end before the
    first negative one; those that are the blank, default 0, do not count. Top 0: (1, 2, 1, 1), the accuracy, and the
    share of sequences that are right; empty ones count as wrong. No backward.
    Raises: ShapeError for bottoms that do not fit each other; LayerParamError for a blank_index out of range.
    Source: ChWick/caffe, src/caffe/layers/ctc_decoder_layer.cpp; with one bottom, or with labels (N, L),
    senlinuc/caffe_ocr, same file.
    """

    declares = Declaration(bottoms=between(1, 3), tops=between(1, 3), no_backward=None, backward_reads=Reads.NONE)

    def setup(self, bottom_shapes: Shapes) -> None:
        tops = len(self.param.top)
        if tops > len(bottom_shapes):
            raise self.error(f"has {tops} tops with {len(bottom_shapes)} bottoms", fix="give the labels as bottom 2")
        self.accuracy = tops - 1 if len(bottom_shapes) == 3 and tops > 1 else None
        self.score = 1 if tops == len(bottom_shapes) > 1 else None

    def infer_shapes(self, bottom_shapes: Shapes) -> Shapes:
        shape = tuple(bottom_shapes[0])
        if len(shape) < 3 or count(shape, 3) != 1 or 0 in shape[::2]:
            raise self.shape_error(f"has shape {shape}", bottom=0, fix="give scores (T, N, C)")
        steps, items, classes = shape[:3]
        self.lines = self._are_lines(bottom_shapes)
        for i, other in enumerate(map(tuple, () if self.lines else bottom_shapes[1:]), 1):
            if len(other) < 2 or other[1] != items or count(other, 2) != 1 or (i == 1 and other[0] != steps):
                form = f"({steps}, {items})" if i == 1 else f"(L, {items})"
                raise self.shape_error(f"has shape {other}", bottom=i, fix=f"give a bottom of shape {form}")
        p = self.param.ctc_decoder_param
        alone = len(bottom_shapes) == 1 or self.lines
        index = 0 if alone and not p.HasField("blank_index") else p.blank_index
        self.blank = _check_blank(self, classes - 1 if index < 0 else index, classes, "blank_index")
        self.rows = LabelRows(items, steps, items, 1)
        self.top_rows = LabelRows(items, steps, 1, steps) if alone else self.rows
        self.label_rows = LabelRows(items, bottom_shapes[2][0], items, 1) if len(bottom_shapes) == 3 else None
        if self.lines:
            length = bottom_shapes[1][1]
            self.label_rows = LabelRows(items, length, 1, length)
            return [(1, 2, 1, 1)]
        tops = [(items, steps, 1, 1) if alone else (steps, items, 1, 1), (items, 1, 1, 1), (1, 1, 1, 1)]
        return [tops[0]] + ([tops[1]] if self.score else []) + ([tops[2]] if self.accuracy else [])

    def _are_lines(self, bottom_shapes: Shapes) -> bool:
        """Return whether bottom 1 holds a row of labels for each sequence, and no marks."""
        if len(bottom_shapes) != 2 or len(self.param.top) != 1:
            return False
        (steps, items), other = bottom_shapes[0][:2], tuple(bottom_shapes[1])
        return len(other) > 1 and other[0] == items and other[:2] != (steps, items) and count(other, 2) == 1

    def declare(self, bottom_shapes: Shapes, top_shapes: Shapes, ops: Ops) -> None:
        rows = self.rows
        self.scratch("best", (rows.steps, rows.items), dtype=np.int32, lives=Lives.CALL)
        self.scratch("found", (rows.items, 1 + rows.steps), dtype=np.int32, lives=Lives.CALL)
        if self.score:
            self.scratch("highest", (rows.steps, rows.items), lives=Lives.CALL)
        if self.lines and self.label_rows:
            self.scratch("given", (rows.items, self.label_rows.steps), lives=Lives.CALL)
        if (self.accuracy or self.lines) and self.label_rows:
            self.scratch("line", (rows.items, 1 + self.label_rows.steps), dtype=np.int32, lives=Lives.CALL)
            self.scratch("distance", (rows.items,), dtype=np.float64, lives=Lives.CALL)

    def forward(self, io: Pass) -> None:
        best, found, highest = io.scratch["best"], io.scratch["found"], io.scratch.get("highest")
        io.ops.best_classes(io.bottom[0], best, highest)
        score = io.top[self.score] if self.score else None
        way = self.rows, self.blank, self.param.ctc_decoder_param.ctc_merge_repeated
        marks = io.bottom[1] if len(io.bottom) > 1 and not self.lines else None
        io.ops.best_path(best, highest, marks, found, score, *way)
        if self.lines:
            work = io.scratch["given"], io.scratch["line"], io.scratch["distance"]
            io.ops.line_accuracy(found, io.bottom[1], *work, io.top[0], self.label_rows, self.blank)
            return
        io.ops.write_labels(found, io.top[0], self.top_rows)
        if self.accuracy:
            arrays = found, io.bottom[2], io.scratch["line"], io.scratch["distance"], io.top[self.accuracy]
            io.ops.label_accuracy(*arrays, self.label_rows)


@register_layer("LabelsequenceAccuracy")
class LabelsequenceAccuracyLayer(Layer):
    """Share of the N sequences whose best path reads as exactly their labels.

    The best path has the class of the highest score at every step (among equal ones the first); classes equal to the
    one before and blanks (labelsequence_accuracy_param.blank_label, default 0) are left out.
    Bottom 0: scores, (N, T, C). Bottom 1: labels, (N, L); those that are the blank fill up and do not count.
    Top 0: the share, no axes. No backward.
    Raises: ShapeError for bottoms that do not fit each other; LayerParamError for a blank_label out of range.
    Source: xmfbit/warpctc-caffe, src/caffe/layers/labelsequence_accuracy_layer.cpp.
    """

    declares = Declaration(bottoms=exactly(2), no_backward=None, backward_reads=Reads.NONE)

    def infer_shapes(self, bottom_shapes: Shapes) -> Shapes:
        shape, labels = map(tuple, bottom_shapes)
        if len(shape) < 3 or count(shape, 3) != 1 or 0 in shape[1:3]:
            raise self.shape_error(f"has shape {shape}", bottom=0, fix="give scores (N, T, C)")
        items, steps, classes = shape[:3]
        if len(labels) < 2 or labels[0] != items or count(labels, 2) != 1:
            raise self.shape_error(f"has shape {labels}", bottom=1, fix=f"give labels ({items}, L)")
        self.blank = _check_blank(self, self.param.labelsequence_accuracy_param.blank_label, classes, "blank_label")
        self.rows, self.label_rows = LabelRows(items, steps, 1, steps), LabelRows(items, labels[1], 1, labels[1])
        return [()]

    def declare(self, bottom_shapes: Shapes, top_shapes: Shapes, ops: Ops) -> None:
        rows = self.rows
        self.scratch("best", (rows.items, rows.steps), dtype=np.int32, lives=Lives.CALL)
        self.scratch("found", (rows.items, 1 + rows.steps), dtype=np.int32, lives=Lives.CALL)
        self.scratch("distance", (rows.items,), dtype=np.float64, lives=Lives.CALL)

    def forward(self, io: Pass) -> None:
        best, found = io.scratch["best"], io.scratch["found"]
        io.ops.best_classes(io.bottom[0], best, None)
        io.ops.best_path(best, None, None, found, None, self.rows, self.blank, True)
        arrays = found, io.bottom[1], io.scratch["distance"], io.top[0]
        io.ops.exact_share(*arrays, self.label_rows, self.blank)
