"""Attention: sums of values, weighted by how well keys fit queries."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from ...ops.records import AttentionShape, QueryKeyValue
from ..base import Declaration, Layer, Lives, Needs, Ops, Pass, Shapes, exactly
from ..registry import register_layer

_BLOCK_BYTES = 64 << 20  # of the scores of all heads that exist at once


@register_layer("Attention")
class AttentionLayer(Layer):
    """y = softmax(scale * q k') v for each head: each of T queries gets a weighted sum of S values.

    Bottom 0: queries (N, T, heads * D). Bottoms 1 and 2: keys and values (N, S, kv_heads * D); head h reads those of
    head h // (heads / kv_heads). Top 0: y, the shape of the queries.
    attention_param: heads, kv_heads (default: as many), scale (default 1 / sqrt(D)). causal: query i sees keys 0..i
    alone; window, with causal: only the last `window` of them. A query that sees no key gets zeros.
    The scores of a block of queries exist at a time, at most 64 MiB of them (or one query's). Backward reads all
    bottoms, and makes the scores again from them and one saved number for each query and head. With `-math bf16`, a GPU
    uses cuDNN's fused kernels where these do the sizes; backward then reads y too.
    Raises: LayerParamError for heads that kv_heads does not divide, or a window without causal; ShapeError for bottoms
    that do not fit each other.
    Source: Vaswani et al., Attention Is All You Need (2017); ONNX's operator Attention.
    """

    declares = Declaration(bottoms=exactly(3), splits_over_batch=True)

    def setup(self, bottom_shapes: Shapes) -> None:
        options = self.param.attention_param
        self.heads = options.heads
        self.kv_heads = options.kv_heads or options.heads
        if not self.heads or self.heads % self.kv_heads:
            raise self.error(
                f"heads {self.heads} is not a multiple of kv_heads {self.kv_heads}",
                fix="give a number of heads that kv_heads divides",
            )
        if options.window and not options.causal:
            raise self.error("window has no meaning without causal", fix="add causal: true, or delete window")

    def infer_shapes(self, bottom_shapes: Shapes) -> Shapes:
        q, k, v = (tuple(shape) for shape in bottom_shapes)
        for i, shape in enumerate((q, k, v)):
            if len(shape) != 3:
                raise self.shape_error(
                    f"has shape {shape}, not 3 axes", bottom=i, fix="reshape it to (N, T, heads * D)"
                )
        if q[2] == 0 or q[2] % self.heads:
            raise self.shape_error(
                f"has {q[2]} values per position, not a multiple of heads {self.heads}",
                bottom=0,
                fix="change heads, or num_output of the layer before",
            )
        self.dim, options = q[2] // self.heads, self.param.attention_param
        self.scale: float = options.scale if options.HasField("scale") else 1 / math.sqrt(self.dim)
        for i, shape in ((1, k), (2, v)):
            wanted = (q[0], k[1], self.kv_heads * self.dim)
            if shape != wanted:
                raise self.shape_error(
                    f"has shape {shape}, but {self.kv_heads} heads of {self.dim} values for queries {q} need {wanted}",
                    bottom=i,
                    fix="change kv_heads, or num_output of the layer before",
                )
        return [q]

    def takes_half(self, bottom_shapes: Shapes, top_shapes: Shapes, ops: Ops) -> bool:
        return bool(ops.attention_half_plan(self._shape(bottom_shapes), self.dtype))

    def declare(self, bottom_shapes: Shapes, top_shapes: Shapes, ops: Ops) -> None:
        self.shape = self._shape(bottom_shapes)
        self.plan = ops.attention.plan(self.shape, self.dtype, self.context.half)
        self.scratch("lse", (self.shape.items, self.heads, self.shape.queries), lives=self.saved_if_needed)
        if self.plan.forward_bytes:
            self.scratch("work", (self.plan.forward_bytes,), dtype=np.uint8, lives=Lives.CALL, backward=False)
        if self.plan.backward_bytes:
            size = (self.plan.backward_bytes,)
            self.scratch("backward_work", size, dtype=np.uint8, lives=Lives.CALL, forward=False)

    def _shape(self, bottom_shapes: Shapes) -> AttentionShape:
        (n, t, _), (_, s, _) = bottom_shapes[:2]
        options = self.param.attention_param
        one = self.heads * s * self.dtype.itemsize  # bytes of the scores of one query
        rows = max(1, min(t, _BLOCK_BYTES // max(1, one)))
        sizes = n, t, s, self.heads, self.kv_heads, self.dim
        return AttentionShape(*sizes, self.scale, options.causal, options.window, rows)

    def backward_needs(self, propagate_down: Sequence[bool], param_propagate: Sequence[bool]) -> Needs:
        if not any(propagate_down):
            return Needs()
        if self.context.half:  # fused kernels compute all gradients, and read the result
            return Needs(bottoms=frozenset({0, 1, 2}), tops=frozenset({0}))
        return Needs(bottoms=frozenset({0, 1, 2} if any(propagate_down[:2]) else {0, 1}))

    def flops(self, bottom_shapes: Shapes, top_shapes: Shapes) -> int:
        pairs = sum((end - first) * (stop - begin) for first, end, begin, stop in self.shape.blocks())
        return 4 * self.shape.items * self.heads * self.dim * pairs

    def effort(self, forward: bool, again: bool) -> tuple[float, float]:
        return 1.0, 0.85 if forward else 2.9  # five products in backward; measured with fused kernels

    def forward(self, io: Pass) -> None:
        inputs = QueryKeyValue(*io.bottom)
        io.ops.attention.forward(self.plan, inputs, io.top[0], io.scratch["lse"], io.scratch.get("work"))

    def backward(self, io: Pass) -> None:
        inputs, gradients = QueryKeyValue(*io.bottom), QueryKeyValue(*io.bottom_diff)
        lse, work = io.scratch["lse"], io.scratch.get("backward_work")
        io.ops.attention.backward(self.plan, inputs, io.top[0], io.top_diff[0], gradients, lse, work)
