"""MatMul: products of the matrices of two bottoms."""

from __future__ import annotations

from collections.abc import Sequence

from ...ops.product_plan import broadcast, product_plan
from ..base import Declaration, Layer, Needs, Ops, Pass, Shapes, count, exactly
from ..registry import register_layer


@register_layer("MatMul")
class MatMulLayer(Layer):
    """y = a b, products of the matrices in the last two axes; the axes before them broadcast as in numpy.matmul.

    Bottom 0: a (..., M, K), or (..., K, M) with matmul_param.transpose_a. Bottom 1: b (..., K, N), or (..., N, K) with
    transpose_b. Top 0: y (..., M, N).
    Backward reads b for the gradient of a, and a for that of b. Where a bottom is used for several products its
    gradients are added up, in a fixed order.
    Raises: ShapeError for fewer than 2 axes, or shapes that do not fit each other.
    Source: numpy.matmul; ONNX's operator MatMul.
    """

    declares = Declaration(bottoms=exactly(2))

    def setup(self, bottom_shapes: Shapes) -> None:
        options = self.param.matmul_param
        self.turns = options.transpose_a, options.transpose_b

    def infer_shapes(self, bottom_shapes: Shapes) -> Shapes:
        a, b = (tuple(shape) for shape in bottom_shapes)
        for i in range(2):
            self.check_axes(bottom_shapes[i], 2, bottom=i)
        (m, k), (k_of_b, n) = (s[:-3:-1] if turned else s[-2:] for s, turned in zip((a, b), self.turns, strict=True))
        if k != k_of_b:
            raise self.shape_error(
                f"has shape {b}, {k_of_b} rows for the {k} columns of bottom 0, {a}",
                bottom=1,
                fix="change the shapes, or transpose_a or transpose_b",
            )
        lead = broadcast(a[:-2], b[:-2])
        if lead is None:
            raise self.shape_error(
                f"has shape {b}, whose leading axes do not fit those of bottom 0, {a}",
                bottom=1,
                fix="give equal sizes, or 1, in the axes before the last two",
            )
        self.top, self.same_lead = (*lead, m, n), a[:-2] == b[:-2]
        return [self.top]

    @property
    def splits_over_batch(self) -> bool:
        return self.same_lead and len(self.top) >= 3

    def takes_half(self, bottom_shapes: Shapes, top_shapes: Shapes, ops: Ops) -> bool:
        return tuple(bottom_shapes[0][:-2]) == tuple(bottom_shapes[1][:-2])  # no sum is rounded on its way

    def declare(self, bottom_shapes: Shapes, top_shapes: Shapes, ops: Ops) -> None:
        (a, b), y, (turn_a, turn_b) = (tuple(map(int, s)) for s in bottom_shapes), self.top, self.turns
        self.inner = a[-2] if turn_a else a[-1]
        self.plan = product_plan(a, b, y, turn_a, turn_b)
        self.plan_da = product_plan(b, y, a, turn_b, True) if turn_a else product_plan(y, b, a, False, not turn_b)
        self.plan_db = product_plan(y, a, b, True, turn_a) if turn_b else product_plan(a, y, b, not turn_a, False)

    def backward_needs(self, propagate_down: Sequence[bool], param_propagate: Sequence[bool]) -> Needs:
        return Needs(bottoms=frozenset(1 - i for i in range(2) if propagate_down[i]))

    def flops(self, bottom_shapes: Shapes, top_shapes: Shapes) -> int:
        return 2 * count(top_shapes[0]) * self.inner

    def forward(self, io: Pass) -> None:
        io.ops.matmul(io.bottom[0], io.bottom[1], io.top[0], self.plan)

    def backward(self, io: Pass) -> None:
        (a, b), dy, (da, db) = io.bottom, io.top_diff[0], io.bottom_diff
        if da is not None:
            io.ops.matmul(*((b, dy) if self.turns[0] else (dy, b)), da, self.plan_da)
        if db is not None:
            io.ops.matmul(*((dy, a) if self.turns[1] else (a, dy)), db, self.plan_db)
