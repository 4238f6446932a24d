"""Compute scaled dot-product attention on a GPU: bfloat16 through cuDNN, others a block of queries at a time."""

from __future__ import annotations

import numpy as np
from numpy.typing import DTypeLike

from ....arrays import AnyArray
from ....backend import cuda
from ....backend.cuda import launch
from ...attention_plan import AttentionPlan, block_rooms, in_blocks
from ...records import AttentionShape, QueryKeyValue
from ..source import BLOCK_MAX, BLOCK_SUM

__all__ = ["attention_backward", "attention_forward", "attention_half_plan", "attention_plan"]

# A block of threads for each row of scores (heads, rows, columns); column 0 is key `begin`, row 0 query `first`.
_ROWS = (
    BLOCK_MAX
    + BLOCK_SUM
    + """
// query i sees columns low <= c < high
#define SEEN \\
    const long long row = blockIdx.x, head = row / rows, i = first + row % rows; \\
    const long long after = causal ? i + 1 - begin : columns, before = window ? i - window + 1 - begin : 0; \\
    const long long high = after < columns ? after : columns, low = before > 0 ? before : 0
extern "C" __global__ void __launch_bounds__(256) weights(T* scores, T* lse, long long first, long long rows,
                                                          long long begin, long long columns, long long causal,
                                                          long long window, long long queries) {
  SEEN;
  T* s = scores + row * columns;
  T* out = lse + head * queries + i;
  if (high <= low) {
    for (long long c = threadIdx.x; c < columns; c += 256) s[c] = 0;
    if (threadIdx.x == 0) *out = (T)(1 / (A)0);
    return;
  }
  A best = s[low], sum = 0;
  for (long long c = low + threadIdx.x; c < high; c += 256) if (s[c] > best) best = s[c];
  best = block_max(best);
  for (long long c = low + threadIdx.x; c < high; c += 256) sum += exp((A)s[c] - best);
  sum = block_sum(sum);
  const A share = 1 / sum;
  for (long long c = threadIdx.x; c < columns; c += 256)
    s[c] = c >= low && c < high ? (T)(exp((A)s[c] - best) * share) : (T)0;
  if (threadIdx.x == 0) *out = (T)(best + log(sum));
}
extern "C" __global__ void __launch_bounds__(256) slopes(T* scores, T* slopes, const T* lse, double scale,
                                                         long long first, long long rows, long long begin,
                                                         long long columns, long long causal, long long window,
                                                         long long queries) {
  SEEN;
  T *s = scores + row * columns, *d = slopes + row * columns;
  const A level = lse[head * queries + i];
  A dot = 0;
  for (long long c = threadIdx.x; c < columns; c += 256) {
    const A p = c >= low && c < high ? exp((A)s[c] - level) : (A)0;
    s[c] = (T)p;
    dot += p * d[c];
  }
  dot = block_sum(dot);
  for (long long c = threadIdx.x; c < columns; c += 256) d[c] = (T)(s[c] * (d[c] - dot) * (A)scale);
}
"""
)


class _Block:
    """One item's block of queries, and the keys that they see: where the arrays begin, and products of all heads."""

    def __init__(self, shape: AttentionShape, n: int, block: tuple[int, int, int, int]):
        first, end, begin, stop = block
        self.rows, self.columns, self.dim = end - first, stop - begin, shape.dim
        self.kv_heads, self.group = shape.kv_heads, shape.heads // shape.kv_heads
        self.wide, self.narrow = shape.heads * shape.dim, shape.kv_heads * shape.dim
        self.queries = (n * shape.queries + first) * self.wide
        self.keys = (n * shape.keys + begin) * self.narrow
        self.saved = n * shape.heads * shape.queries
        sees = int(shape.causal), shape.window, shape.queries
        self.numbers = first, self.rows, begin, self.columns, *sees

    def run(self, name: str, arrays: tuple[AnyArray, ...], *scale: float) -> None:
        """Queue a kernel of `_ROWS`, a block of threads for each row of each head."""
        grid = self.rows * self.group * self.kv_heads
        launch(_ROWS, name, arrays[0].dtype, 0, *arrays, *scale, *self.numbers, block=256, grid=grid)

    def across(self, a: AnyArray, b: AnyArray, scores: AnyArray, scale: float) -> None:
        """Compute scores = scale * a b' of each head, a like queries, b like keys."""
        a, b, scores = self._from(a, b, scores)
        for g in range(self.group):
            square = g * self.rows * self.columns
            cuda.gemm_batched(
                *(False, True, self.rows, self.columns, self.dim, scale),
                *(a[g * self.dim :], self.group * self.dim, b, self.dim, 0.0),
                *(scores[square:], self.group * self.rows * self.columns, self.kv_heads),
                (self.wide, self.narrow, self.columns),
            )

    def along(self, scores: AnyArray, b: AnyArray, out: AnyArray) -> None:
        """Compute out = scores b of each head, b like keys, out like queries."""
        out, b, scores = self._from(out, b, scores)
        for g in range(self.group):
            square = g * self.rows * self.columns
            cuda.gemm_batched(
                *(False, False, self.rows, self.dim, self.columns, 1.0),
                *(scores[square:], self.group * self.rows * self.columns, b, self.dim, 0.0),
                *(out[g * self.dim :], self.group * self.dim, self.kv_heads),
                (self.columns, self.narrow, self.wide),
            )

    def back(self, scores: AnyArray, a: AnyArray, out: AnyArray) -> None:
        """Add scores' a of each head to out, a like queries, out like keys; heads that share keys in order."""
        a, out, scores = self._from(a, out, scores)
        for g in range(self.group):
            square = g * self.rows * self.columns
            cuda.gemm_batched(
                *(True, False, self.columns, self.dim, self.rows, 1.0),
                *(scores[square:], self.group * self.rows * self.columns, a[g * self.dim :], self.group * self.dim),
                *(1.0, out, self.dim, self.kv_heads),
                (self.columns, self.wide, self.narrow),
            )

    def _from(self, query: AnyArray, key: AnyArray, scores: AnyArray) -> tuple[AnyArray, AnyArray, AnyArray]:
        return query.reshape(-1)[self.queries :], key.reshape(-1)[self.keys :], scores.reshape(-1)


def _blocks(shape: AttentionShape) -> list[_Block]:
    blocks = [_Block(shape, n, block) for n in range(shape.items) for block in shape.blocks()]
    return [block for block in blocks if block.rows]


def attention_half_plan(shape: AttentionShape, dtype: DTypeLike) -> bool:
    """Return whether this device computes an attention of bfloat16 arrays: where cuDNN does."""
    from ..cudnn import attention  # imported late: a machine without cuDNN's packages can import the operations

    if np.dtype(dtype) != np.float32 or not cuda.knows_bfloat16() or cuda.math() != "tf32":
        return False
    try:
        attention.plan(shape)
    except attention.CudnnUnsupported:
        return False
    return True


def attention_plan(shape: AttentionShape, dtype: DTypeLike, half: bool) -> AttentionPlan:
    """Return how an attention is computed, `half`: of bfloat16 arrays.

    Raises: CudnnUnsupported: cuDNN cannot compute it of bfloat16 arrays.
    """
    from ..cudnn import attention  # imported late: a machine without cuDNN's packages can import the operations

    if not half:
        return in_blocks(shape, dtype)
    fused = attention.plan(shape)
    return AttentionPlan(shape, fused.forward.workspace_bytes, fused.backward_bytes, fused)


def attention_forward(
    plan: AttentionPlan, inputs: QueryKeyValue, y: AnyArray, lse: AnyArray, work: AnyArray | None
) -> None:
    """Compute y (items, queries, heads * dim): sums of values, weighted by softmax(scale * queries keys')."""
    if plan.fused is not None:
        plan.fused.run_forward(inputs, y, lse, work)
        return
    shape, (scores, _), (q, k, v) = plan.shape, block_rooms(plan, work, y.dtype), inputs
    for block in _blocks(shape):
        if block.columns == 0:
            y.reshape(-1)[block.queries : block.queries + block.rows * block.wide].fill(0)
            lse.fill(float("inf"))
            continue
        block.across(q, k, scores, shape.scale)
        block.run("weights", (scores, lse.reshape(-1)[block.saved :]))
        block.along(scores, v, y)


def attention_backward(
    plan: AttentionPlan,
    inputs: QueryKeyValue,
    y: AnyArray | None,
    dy: AnyArray,
    gradients: QueryKeyValue,
    lse: AnyArray,
    work: AnyArray | None,
) -> None:
    """Compute the wanted gradients of queries, keys and values from dy and what `attention_forward` wrote to lse."""
    if plan.fused is not None:
        plan.fused.run_backward(inputs, y, dy, gradients, lse, work)
        return
    shape, (scores, slopes) = plan.shape, block_rooms(plan, work, dy.dtype)
    (q, k, v), (dq, dk, dv) = inputs, gradients
    for gradient in (dk, dv):
        if gradient is not None:
            gradient.fill(0)
    for block in _blocks(shape):
        if block.columns == 0:
            if dq is not None:
                dq.reshape(-1)[block.queries : block.queries + block.rows * block.wide].fill(0)
            continue
        block.across(q, k, scores, shape.scale)
        block.across(dy, k if v is None else v, slopes, 1.0)  # without v nothing below reads the slopes
        block.run("slopes", (scores, slopes, lse.reshape(-1)[block.saved :]), float(shape.scale))
        if dv is not None:
            block.back(scores, dy, dv)
        if dq is not None:
            block.along(slopes, k, dq)
        if dk is not None:
            block.back(slopes, q, dk)
