"""Attention: sums of values, weighted by how well keys fit queries."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from ...arrays import AnyArray
from ...ops.attention_plan import fused_backward_bytes
from ...ops.records import AttentionCache, AttentionShape, QueryKeyValue
from ..base import TRAIN, Count, Declaration, Lives, Needs, Ops, Pass, Shape, Shapes
from ..mixins import RandomLayer
from ..registry import register_layer

_BLOCK_BYTES = 64 << 20  # of the scores of all heads that exist at once
# A fused kernel works on tiles of so many queries and keys, and takes as long for a narrow head as for one of _WIDTH
# values: measured on an H200, heads of 64 and 128 values, 197 and 2048 positions.
_TILE = _WIDTH = 128


class _Bottoms(Count):
    """The least or the most, and nothing between."""

    def __contains__(self, n: int) -> bool:
        return n in (self.least, self.most)

    def __str__(self) -> str:
        return f"{self.least} or {self.most}"


@register_layer("Attention")
class AttentionLayer(RandomLayer):
    """y = softmax(scale * q k') v for each head: each of T queries gets a weighted sum of S values.

    Bottom 0: queries (N, T, heads * D). Bottoms 1 and 2: keys and values (N, S, kv_heads * D); head h reads those of
    head h // (heads / kv_heads). Top 0: y (N, T, heads * D).
    Or packed: bottom 0 alone, (N, T, (heads + 2 * kv_heads) * D), has the queries, the keys, then the values of each
    position, as one InnerProduct makes them.
    attention_param: heads, kv_heads (default: as many), scale (default 1 / sqrt(D)). causal: query i sees keys 0..i
    alone; window, with causal: only the last `window` of them. A query that sees no key gets zeros. dropout_ratio r
    (default 0), TRAIN: each weight of a value becomes 0 with probability r, else is divided by 1 - r; backward draws
    again, as Dropout does.
    cache L (default 0), TEST: T is 1, and keys and values of up to L positions are kept from forward to forward. One
    more bottom, (N, 1), is the position 0..L-1 of each query: its key and value are kept there, and it sees those that
    are kept at positions up to its own. A position outside of 0..L-1 makes y NaN. Nothing has a gradient then.
    The scores of a block of queries exist at a time, at most 64 MiB of them (or one query's). Backward reads all
    bottoms, and makes the scores again from them and one saved number for each query and head. With `-math bf16`, a GPU
    uses cuDNN's fused kernels where these do the sizes and dropout_ratio is 0; backward then reads y too.
    Raises: LayerParamError for heads that kv_heads does not divide, a window without causal, a dropout_ratio outside
    [0, 1), or a cache that is not causal or not in TEST; ShapeError for bottoms that do not fit each other;
    BlobCountError for another number of bottoms.
    Source: Vaswani et al., Attention Is All You Need (2017); ONNX's operator Attention.
    """

    declares = Declaration(bottoms=_Bottoms(1, 3), splits_over_batch=True)

    def check_counts(self, n_bottom: int, n_top: int) -> None:
        if self.param.attention_param.cache:
            last = frozenset({n_bottom - 1})
            self.declares = Declaration(bottoms=_Bottoms(2, 4), no_backward=None, full_precision=last)
        super().check_counts(n_bottom, n_top)

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
        if not 0 <= options.dropout_ratio < 1:
            raise self.error(
                f"dropout_ratio is {options.dropout_ratio:g}", fix="set dropout_ratio to 0 or more and less than 1"
            )
        self.dropout = options.dropout_ratio if self.phase == TRAIN else 0.0
        self.cache = options.cache
        if self.cache and (not options.causal or self.phase == TRAIN):
            raise self.error("cache is for a causal attention in TEST", fix="add causal: true, or delete cache")
        self.packed = len(self.param.bottom) == (2 if self.cache else 1)

    @property
    def random(self) -> bool:
        return self.dropout > 0

    def infer_shapes(self, bottom_shapes: Shapes) -> Shapes:
        if self.cache:
            self._check_places(bottom_shapes)
        q, k, v = self._parts(bottom_shapes) if self.packed else [tuple(shape) for shape in bottom_shapes[:3]]
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
        self.pairs = self.heads * q[1] * k[1]
        return [q]

    def _check_places(self, bottom_shapes: Shapes) -> None:
        """Raise ShapeError unless there is one position of each item."""
        q, at = tuple(bottom_shapes[0]), tuple(bottom_shapes[-1])
        if at != (q[0], 1) or q[1:2] != (1,):
            raise self.shape_error(
                f"has shape {at}, and the queries {q}: with a cache there is one query and its position of each item",
                bottom=len(bottom_shapes) - 1,
                fix=f"give queries (N, 1, values) and positions (N, 1), here ({q[0]}, 1)",
            )

    def _parts(self, bottom_shapes: Shapes) -> list[Shape]:
        """Return the shapes of queries, keys and values in a packed bottom."""
        shape, parts = tuple(bottom_shapes[0]), self.heads + 2 * self.kv_heads
        if len(shape) != 3:
            fix = "reshape it to (N, T, (heads + 2 * kv_heads) * D)"
            raise self.shape_error(f"has shape {shape}, not 3 axes", bottom=0, fix=fix)
        if shape[2] % parts:
            raise self.shape_error(
                f"has {shape[2]} values per position, not a multiple of {parts}: {self.heads} heads of queries, "
                f"{self.kv_heads} of keys, {self.kv_heads} of values",
                bottom=0,
                fix="change heads or kv_heads, or num_output of the layer before",
            )
        dim = shape[2] // parts
        return [(*shape[:2], heads * dim) for heads in (self.heads, self.kv_heads, self.kv_heads)]

    def draws_per_item(self, top_shape: Shape) -> int:
        return self.pairs

    def takes_half(self, bottom_shapes: Shapes, top_shapes: Shapes, ops: Ops) -> bool:
        return not (self.random or self.cache) and bool(ops.attention_half_plan(self._shape(bottom_shapes), self.dtype))

    def next_step_scalars(self) -> dict[str, Sequence[int]]:
        return self.next_key() if self.random else {}

    def declare(self, bottom_shapes: Shapes, top_shapes: Shapes, ops: Ops) -> None:
        self.shape = self._shape(bottom_shapes)
        if self.cache:
            narrow, scores = self.kv_heads * self.dim, (self.shape.items, self.heads, self.cache)
            for name in ("keys", "values"):
                self.scratch(name, (self.shape.items, self.cache, narrow), lives=Lives.STATE, backward=False)
            self.scratch("scores", scores, lives=Lives.CALL, backward=False)
            return
        if self.random:
            self.step_scalar("key", 3)
        self.plan = ops.attention.plan(self.shape, self.dtype, self.context.half)
        self.scratch("lse", (self.shape.items, self.heads, self.shape.queries), lives=self.saved_if_needed)
        if self.plan.forward_bytes:
            self.scratch("work", (self.plan.forward_bytes,), dtype=np.uint8, lives=Lives.CALL, backward=False)
        nbytes = self.plan.backward_bytes
        if nbytes and self.context.half and self.plan.fused is None:  # as much as on a GPU, so that plans fit one
            nbytes = max(nbytes, fused_backward_bytes(self.shape))
        if nbytes:
            self.scratch("backward_work", (nbytes,), dtype=np.uint8, lives=Lives.CALL, forward=False)

    def _shape(self, bottom_shapes: Shapes) -> AttentionShape:
        n, t, _ = bottom_shapes[0]
        s = self.cache or bottom_shapes[0 if self.packed else 1][1]
        options = self.param.attention_param
        one = self.heads * s * self.dtype.itemsize  # bytes of the scores of one query
        rows = max(1, min(t, _BLOCK_BYTES // max(1, one)))
        sizes = n, t, s, self.heads, self.kv_heads, self.dim
        sees = options.causal, options.window
        return AttentionShape(*sizes, self.scale, *sees, rows, packed=self.packed, dropout=self.dropout)

    def backward_needs(self, propagate_down: Sequence[bool], param_propagate: Sequence[bool]) -> Needs:
        if not any(propagate_down):
            return Needs()
        if self.context.half:  # fused kernels compute all gradients, and read the result
            return Needs(bottoms=frozenset(range(len(propagate_down))), tops=frozenset({0}))
        if self.packed:
            return Needs(bottoms=frozenset({0}))
        return Needs(bottoms=frozenset({0, 1, 2} if any(propagate_down[:2]) else {0, 1}))

    def flops(self, bottom_shapes: Shapes, top_shapes: Shapes) -> int:
        if self.cache:
            return 4 * self.shape.items * self.heads * self.dim * self.cache
        pairs = sum((end - first) * (stop - begin) for first, end, begin, stop in self.shape.blocks())
        return 4 * self.shape.items * self.heads * self.dim * pairs

    def effort(self, forward: bool, again: bool) -> tuple[float, float]:
        times = 0.85 if forward else 2.9  # five products in backward; measured with fused kernels
        if self.cache:
            return 1.0, times
        tiles = math.prod(-(-n // _TILE) * _TILE / n for n in (self.shape.queries, self.shape.keys) if n)
        return 1.0, times * tiles * max(1.0, _WIDTH / self.dim)

    def forward(self, io: Pass) -> None:
        if self.cache:
            cache = AttentionCache(io.scratch["keys"], io.scratch["values"], io.scratch["scores"])
            io.ops.attend_next(self.shape, self._of(io.bottom[:-1]), io.bottom[-1], io.top[0], cache)
            return
        work, key = io.scratch.get("work"), io.scratch.get("key")
        io.ops.attention.forward(self.plan, self._of(io.bottom), io.top[0], io.scratch["lse"], work, key)

    def backward(self, io: Pass) -> None:
        inputs, gradients = self._of(io.bottom), self._of(io.bottom_diff)
        lse, work, key = io.scratch["lse"], io.scratch.get("backward_work"), io.scratch.get("key")
        io.ops.attention.backward(self.plan, inputs, io.top[0], io.top_diff[0], gradients, lse, work, key)

    def _of(self, arrays: Sequence[AnyArray]) -> QueryKeyValue:
        return QueryKeyValue(arrays[0], None, None) if self.packed else QueryKeyValue(*arrays)
