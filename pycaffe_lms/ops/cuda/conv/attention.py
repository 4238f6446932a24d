"""Compute scaled dot-product attention on a GPU: bfloat16 through cuDNN, others a block of queries at a time."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import DTypeLike

from ....arrays import AnyArray
from ....backend import cuda
from ....backend.cuda import launch
from ...attention_plan import AttentionPlan, block_rooms, in_blocks
from ...records import AttentionCache, AttentionShape, QueryKeyValue
from ..activation.dropout import KEPT, threshold
from ..source import BLOCK_MAX, BLOCK_SUM

__all__ = ["attend_next", "attention_backward", "attention_forward", "attention_half_plan", "attention_plan"]

# A block of threads for each row of scores (heads, rows, columns); column 0 is key `begin`, row 0 query `first`. FACTOR
# is that of a weight, of which a row of all keys has `keys`, and `heads` come before those of this item.
_KERNELS = (
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
                                                          long long window, long long queries DRAWS) {
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
    s[c] = c >= low && c < high ? (T)(exp((A)s[c] - best) * share * FACTOR(c)) : (T)0;
  if (threadIdx.x == 0) *out = (T)(best + log(sum));
}
extern "C" __global__ void __launch_bounds__(256) slopes(T* scores, T* slopes, const T* lse, double scale,
                                                         long long first, long long rows, long long begin,
                                                         long long columns, long long causal, long long window,
                                                         long long queries DRAWS) {
  SEEN;
  T *s = scores + row * columns, *d = slopes + row * columns;
  const A level = lse[head * queries + i];
  A dot = 0;
  for (long long c = threadIdx.x; c < columns; c += 256) {
    const A p = c >= low && c < high ? exp((A)s[c] - level) : (A)0;
    s[c] = (T)p;
    dot += p * (d[c] * FACTOR(c));
  }
  dot = block_sum(dot);
  for (long long c = threadIdx.x; c < columns; c += 256) {
    const A factor = FACTOR(c);
    d[c] = (T)(s[c] * (d[c] * factor - dot) * (A)scale);
    s[c] = (T)(s[c] * factor);
  }
}
"""
)
_ROWS = (
    """
#define DRAWS
#define FACTOR(c) ((A)1)
"""
    + _KERNELS
)
_ROWS_DROPPING = (
    KEPT
    + """
#define DRAWS , const unsigned long long* key, long long drop, double grow, long long heads, long long keys
#define PLACE(c) (unsigned long long)(((heads + head) * queries + i) * keys + begin + (c))
#define FACTOR(c) (kept(key, PLACE(c), drop) ? (A)grow : (A)0)
"""
    + _KERNELS
)


# One query of each item. `keep` has a thread for each value of a key; `attend` a block for each head of each item.
_NEXT = (
    BLOCK_MAX
    + BLOCK_SUM
    + """
extern "C" __global__ void keep(const T* k, const T* v, const T* at, T* keys, T* values, long long threads,
                                long long row, long long narrow, long long length) {
  LOOP(i, threads) {
    const long long n = i / narrow, column = i % narrow, position = (long long)at[n];
    if (position < 0 || position >= length) continue;
    const long long to = (n * length + position) * narrow + column;
    keys[to] = k[n * row + column];
    values[to] = v[n * row + column];
  }
}
extern "C" __global__ void __launch_bounds__(256) attend(const T* q, const T* at, const T* keys, const T* values,
                                                         T* y, T* scores, double scale, long long row,
                                                         long long length, long long heads, long long group,
                                                         long long dim, long long window) {
  const long long n = blockIdx.x / heads, h = blockIdx.x % heads, narrow = heads / group * dim;
  const long long position = (long long)at[n], start = n * length * narrow + h / group * dim;
  const T* query = q + n * row + h * dim;
  T *out = y + blockIdx.x * dim, *s = scores + blockIdx.x * length;
  if (position < 0 || position >= length) {
    for (long long j = threadIdx.x; j < dim; j += 256) out[j] = (T)(0 / (A)0);
    return;
  }
  const long long low = window && position + 1 > window ? position + 1 - window : 0;
  A best = -(1 / (A)0), sum = 0;
  for (long long c = low + threadIdx.x; c <= position; c += 256) {
    A dot = 0;
    for (long long j = 0; j < dim; ++j) dot += (A)query[j] * keys[start + c * narrow + j];
    s[c] = (T)(dot * (A)scale);
    if (s[c] > best) best = s[c];
  }
  best = block_max(best);
  for (long long c = low + threadIdx.x; c <= position; c += 256) {
    s[c] = (T)exp((A)s[c] - best);
    sum += s[c];
  }
  sum = block_sum(sum);
  for (long long j = threadIdx.x; j < dim; j += 256) {
    A total = 0;
    #pragma unroll 8
    for (long long c = low; c <= position; ++c) total += (A)s[c] * values[start + c * narrow + j];
    out[j] = (T)(total / sum);
  }
}
"""
)


class _Rows(NamedTuple):
    """Name the place of queries, keys or the like: row r begins `first` + r * `row` elements into an array (1-D)."""

    array: AnyArray
    first: int
    row: int

    def at(self, row: int, column: int = 0) -> AnyArray:
        """Return the array from a column of a row on."""
        return self.array[self.first + row * self.row + column :]


class _Block:
    """One item's block of queries, and the keys that they see: where the arrays begin, and products of all heads."""

    def __init__(self, shape: AttentionShape, n: int, block: tuple[int, int, int, int], key: AnyArray | None):
        first, end, begin, stop = block
        self.item = n
        self.rows, self.columns, self.dim = end - first, stop - begin, shape.dim
        self.kv_heads, self.group = shape.kv_heads, shape.heads // shape.kv_heads
        self.query, self.key = n * shape.queries + first, n * shape.keys + begin
        self.saved = n * shape.heads * shape.queries
        sees = int(shape.causal), shape.window, shape.queries
        self.numbers = first, self.rows, begin, self.columns, *sees
        self.source, self.draws = _ROWS, ()
        if key is not None:
            kept = threshold(shape.dropout), 1 / (1 - shape.dropout)
            self.source, self.draws = _ROWS_DROPPING, (key, *kept, n * shape.heads, shape.keys)

    def run(self, name: str, arrays: tuple[AnyArray, ...], *scale: float) -> None:
        """Queue a kernel of `_KERNELS`, a block of threads for each row of each head."""
        grid = self.rows * self.group * self.kv_heads
        numbers = *scale, *self.numbers, *self.draws
        launch(self.source, name, arrays[0].dtype, 0, *arrays, *numbers, block=256, grid=grid)

    def clear(self, out: _Rows) -> None:
        """Write zeros to the block's rows of all heads, of an array that has nothing else in its rows."""
        out.array[out.first + self.query * out.row :][: self.rows * out.row].fill(0)

    def across(self, a: _Rows, b: _Rows, scores: AnyArray, scale: float) -> None:
        """Compute scores = scale * a b' of each head, a like queries, b like keys."""
        for g in range(self.group):
            square = g * self.rows * self.columns
            cuda.gemm_batched(
                *(False, True, self.rows, self.columns, self.dim, scale),
                *(a.at(self.query, g * self.dim), self.group * self.dim, b.at(self.key), self.dim, 0.0),
                *(scores[square:], self.group * self.rows * self.columns, self.kv_heads),
                (a.row, b.row, self.columns),
            )

    def along(self, scores: AnyArray, b: _Rows, out: _Rows) -> None:
        """Compute out = scores b of each head, b like keys, out like queries."""
        for g in range(self.group):
            square = g * self.rows * self.columns
            cuda.gemm_batched(
                *(False, False, self.rows, self.dim, self.columns, 1.0),
                *(scores[square:], self.group * self.rows * self.columns, b.at(self.key), self.dim, 0.0),
                *(out.at(self.query, g * self.dim), self.group * self.dim, self.kv_heads),
                (self.columns, b.row, out.row),
            )

    def back(self, scores: AnyArray, a: _Rows, out: _Rows) -> None:
        """Add scores' a of each head to out, a like queries, out like keys; heads that share keys in order."""
        for g in range(self.group):
            square, stride = g * self.rows * self.columns, self.group * self.rows * self.columns
            cuda.gemm_batched(
                *(True, False, self.columns, self.dim, self.rows, 1.0),
                *(scores[square:], stride, a.at(self.query, g * self.dim), self.group * self.dim),
                *(1.0, out.at(self.key), self.dim, self.kv_heads),
                (self.columns, a.row, out.row),
            )


def _blocks(shape: AttentionShape, key: AnyArray | None) -> list[_Block]:
    blocks = [_Block(shape, n, block, key) for n in range(shape.items) for block in shape.blocks()]
    return [block for block in blocks if block.rows]


def _rows(arrays: QueryKeyValue, shape: AttentionShape) -> tuple[_Rows | None, _Rows | None, _Rows | None]:
    """Return the places of queries, keys and values; None for those that are None."""
    wide, narrow = shape.heads * shape.dim, shape.kv_heads * shape.dim
    query, key = shape.row
    if shape.packed:
        packed = arrays.query.reshape(-1)
        return _Rows(packed, 0, query), _Rows(packed, wide, key), _Rows(packed, wide + narrow, key)
    found = [
        None if a is None else _Rows(a.reshape(-1), 0, row) for a, row in zip(arrays, (query, key, key), strict=True)
    ]
    return found[0], found[1], found[2]


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
    plan: AttentionPlan,
    inputs: QueryKeyValue,
    y: AnyArray,
    lse: AnyArray,
    work: AnyArray | None,
    key: AnyArray | None,
) -> None:
    """Compute y (items, queries, heads * dim): sums of values, weighted by softmax(scale * queries keys')."""
    if plan.fused is not None:
        plan.fused.run_forward(plan.shape.parts(inputs), y, lse, work)
        return
    shape, (scores, _) = plan.shape, block_rooms(plan, work, y.dtype)
    (q, k, v), out = _rows(inputs, shape), _Rows(y.reshape(-1), 0, shape.heads * shape.dim)
    for block in _blocks(shape, key):
        if block.columns == 0:
            block.clear(out)
            lse[block.item, :, block.numbers[0] :][:, : block.rows].fill(float("inf"))
            continue
        block.across(q, k, scores, shape.scale)
        block.run("weights", (scores, lse.reshape(-1)[block.saved :]))
        block.along(scores, v, out)


def attend_next(shape: AttentionShape, inputs: QueryKeyValue, at: AnyArray, y: AnyArray, cache: AttentionCache) -> None:
    """Compute y (items, 1, heads * dim) of one query each, at position at[item], where its key and value are kept."""
    (q, k, v), (row, key_row) = _rows(inputs, shape), shape.row
    narrow, group = shape.kv_heads * shape.dim, shape.heads // shape.kv_heads
    threads = shape.items * narrow
    kept = cache.keys, cache.values, threads, key_row, narrow, shape.keys
    launch(_NEXT, "keep", y.dtype, threads, k.at(0), v.at(0), at, *kept)
    arrays = q.at(0), at, cache.keys, cache.values, y, cache.scores
    sizes = row, shape.keys, shape.heads, group, shape.dim, shape.window
    grid = shape.items * shape.heads
    launch(_NEXT, "attend", y.dtype, 0, *arrays, float(shape.scale), *sizes, block=256, grid=grid)


def attention_backward(
    plan: AttentionPlan,
    inputs: QueryKeyValue,
    y: AnyArray | None,
    dy: AnyArray,
    gradients: QueryKeyValue,
    lse: AnyArray,
    work: AnyArray | None,
    key: AnyArray | None,
) -> None:
    """Compute the wanted gradients of queries, keys and values from dy and what `attention_forward` wrote to lse."""
    if plan.fused is not None:
        plan.fused.run_backward(plan.shape.parts(inputs), y, dy, plan.shape.parts(gradients), lse, work)
        return
    shape, (scores, slopes) = plan.shape, block_rooms(plan, work, dy.dtype)
    (q, k, v), (dq, dk, dv) = _rows(inputs, shape), _rows(gradients, shape)
    slope = _Rows(dy.reshape(-1), 0, shape.heads * shape.dim)
    for gradient in shape.parts(gradients)[1:]:
        if gradient is not None:
            gradient.fill(0)
    for block in _blocks(shape, key):
        if block.columns == 0:
            if dq is not None:
                block.clear(dq)
            continue
        block.across(q, k, scores, shape.scale)
        block.across(slope, k if v is None else v, slopes, 1.0)  # without v nothing below reads the slopes
        block.run("slopes", (scores, slopes, lse.reshape(-1)[block.saved :]), float(shape.scale))
        if dv is not None:
            block.back(scores, slope, dv)
        if dq is not None:
            block.along(slopes, k, dq)
        if dk is not None:
            block.back(slopes, q, dk)
