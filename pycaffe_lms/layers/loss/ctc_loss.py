"""CTCLoss, CtcLoss or WarpCTCLoss: the loss of sequences whose labels have no known places."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from ...ops.records import CtcRule, CtcSums
from ..base import AnyArray, Lives, Needs, Ops, Pass, Shape, Shapes, between, count, exactly
from ..registry import register_layer
from .base import LossLayer


@register_layer("CTCLoss")
@register_layer("CtcLoss")
@register_layer("WarpCTCLoss")
class CTCLossLayer(LossLayer):
    """loss = mean over N sequences of -log P(labels), P being the sum over all paths that read as the labels.

    A path names a class at every time step, with the probability that a softmax over C gives it; blanks are left out of
    what it reads, and with ctc_merge_repeated (default) equal neighbours are one label.
    CTCLoss, of ctc_loss_param: blank_index: the blank, default the last class. With preprocess_collapse_repeated equal
    neighbours among the labels count once. The first output_delay time steps are passed over. loss_calculation_t
    changes nothing. Bottom 0: scores before a softmax, (T, N, C) or (T, N, C, 1). Bottom 1: marks, (T, N): 0 where a
    sequence begins, 1 where it goes on, so it ends before the first 0 after step 0. Bottom 2: labels, (L, N), rounded;
    they end with the first that is negative, the blank or no class.
    CtcLoss: time_step (T), alphabet_size (C, the blank included) and blank_label (default 0). Bottom 0: as above.
    Bottom 1: labels, (N, L), cut to integers; those that are the blank fill up and do not count. All sequences have T
    steps.
    WarpCTCLoss: as CtcLoss, but of these fields reads blank_index alone (default 0).
    Top 0: the loss, no axes. Only bottom 0 gets a gradient.
    A sequence of one step without labels adds 0 to the sum of CTCLoss; one for whose labels there is no time adds
    infinity. A label that names no class makes the loss NaN (in CTCLoss: where labels follow it).
    Backward reads bottom 0: dx = loss weight * (softmax - share of the paths with the class at that step), 0 outside
    the sequence; that is N times the slope of the loss, as in the forks, for whose learning rates nets are written.
    Raises: BlobCountError, ShapeError for bottoms that do not fit each other; LayerParamError for a blank or an
    output_delay out of range, or sizes that are not those of bottom 0.
    Source: ChWick/caffe, src/caffe/layers/ctc_loss_layer.cpp (there any loss weight counts as 1);
    xmfbit/warpctc-caffe, src/caffe/layers/ctc_loss_layer.cpp, and senlinuc/caffe_ocr, warp_ctc_loss_layer.cpp, with
    Baidu's warp-ctc. WarpCTCLoss of three or four bottoms is not read: the forks disagree about its blank.
    """

    declares = replace(
        LossLayer.declares,
        bottoms=between(2, 3),
        no_backward=frozenset({1, 2}),
        ignores_force_backward=frozenset({1, 2}),
        full_precision=frozenset({1, 2}),
    )

    def setup(self, bottom_shapes: Shapes) -> None:
        self.by_item = self.param.type != "CTCLoss"
        self.declares = replace(self.declares, bottoms=exactly(2 if self.by_item else 3))
        self.check_counts(len(self.param.bottom), len(self.param.top))

    def infer_shapes(self, bottom_shapes: Shapes) -> Shapes:
        shape = tuple(bottom_shapes[0])
        if len(shape) < 3 or count(shape, 3) != 1 or 0 in shape[::2]:
            raise self.shape_error(
                f"has shape {shape}", bottom=0, fix="give scores (T, N, C): time steps, sequences, classes"
            )
        self.rule = (self._rule_of_rows if self.by_item else self._rule_of_marks)(bottom_shapes, *shape[:3])
        return [()]

    def _rule_of_marks(self, bottom_shapes: Shapes, steps: int, items: int, classes: int) -> CtcRule:
        p = self.param.ctc_loss_param
        if self._matrix(bottom_shapes[1], 1, items, 1, "(T, N)") != steps:
            raise self.shape_error(
                f"has shape {tuple(bottom_shapes[1])} for {steps} time steps", bottom=1, fix="give a mark for each"
            )
        most = self._matrix(bottom_shapes[2], 1, items, 2, "(L, N), L being the most labels of a sequence")
        blank = self._blank(classes - 1 if p.blank_index < 0 else p.blank_index, classes, "blank_index")
        if p.output_delay < 0:
            raise self.error(f"output_delay is {p.output_delay}", fix="use 0 or more")
        ways = p.output_delay, p.preprocess_collapse_repeated, p.ctc_merge_repeated
        return CtcRule(steps, items, classes, most, blank, *ways)

    def _rule_of_rows(self, bottom_shapes: Shapes, steps: int, items: int, classes: int) -> CtcRule:
        p = self.param.ctc_loss_param
        most = self._matrix(bottom_shapes[1], 0, items, 1, "(N, L), L being the most labels of a sequence")
        if self.param.type == "WarpCTCLoss":
            blank = self._blank(p.blank_index if p.HasField("blank_index") else 0, classes, "blank_index")
            return CtcRule(steps, items, classes, most, blank, by_item=True)
        for field, size, axis in (("time_step", steps, 0), ("alphabet_size", classes, 2)):
            if getattr(p, field) != size:
                raise self.error(
                    f"{field} is {getattr(p, field)}, but axis {axis} of the scores has size {size}",
                    fix=f"write ctc_loss_param {{ {field}: {size} }}",
                )
        blank = self._blank(p.blank_label, classes, "blank_label")
        return CtcRule(steps, items, classes, most, blank, by_item=True)

    def _matrix(self, shape: Shape, axis: int, items: int, bottom: int, form: str) -> int:
        """Return the size of the axis of a bottom of two axes that is not `axis`, of size `items`."""
        if len(shape) < 2 or count(shape, 2) != 1 or shape[axis] != items:
            raise self.shape_error(
                f"has shape {tuple(shape)} for {items} sequences", bottom=bottom, fix=f"give a bottom of shape {form}"
            )
        return int(shape[1 - axis])

    def _blank(self, blank: int, classes: int, field: str) -> int:
        if not 0 <= blank < classes:
            raise self.error(f"{field} is {blank}, but there are {classes} classes", fix=f"use 0 to {classes - 1}")
        return blank

    def declare(self, bottom_shapes: Shapes, top_shapes: Shapes, ops: Ops) -> None:
        rule, kept = self.rule, self.saved_if_needed
        places = rule.items, rule.steps, 2 * rule.most + 1
        self.scratch("paths", (rule.items, 2 + places[2]), dtype=np.int32, lives=kept)
        self.scratch("norm", (rule.steps, rule.items), dtype=np.float64, lives=kept)
        self.scratch("alpha", places, dtype=np.float64, lives=kept)
        self.scratch("score", (rule.items,), dtype=np.float64, lives=kept)
        self.scratch("beta", places, dtype=np.float64, lives=Lives.CALL, forward=False)

    def forward(self, io: Pass) -> None:
        marks, paths = None if self.by_item else io.bottom[1], io.scratch["paths"]
        io.ops.ctc_paths(marks, io.bottom[-1], paths, self.rule)
        sums = CtcSums(*(io.scratch[name] for name in ("norm", "alpha", "score")))
        io.ops.ctc_loss.forward(io.bottom[0], paths, io.top[0], sums, self.rule)

    def backward_needs(self, propagate_down: Sequence[bool], param_propagate: Sequence[bool]) -> Needs:
        return Needs(bottoms=frozenset({0})) if any(propagate_down) else Needs()

    def gradient(self, io: Pass, dy: AnyArray, dx: AnyArray) -> None:
        sums = CtcSums(*(io.scratch[name] for name in ("norm", "alpha", "score", "beta")))
        io.ops.ctc_loss.backward(io.bottom[0], io.scratch["paths"], dy, sums, dx, self.rule)
