"""Compute scaled dot-product attention, a block of queries at a time."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import DTypeLike

from ....arrays import HostArray
from ...attention_plan import AttentionPlan, block_rooms, in_blocks
from ...records import AttentionCache, AttentionShape, QueryKeyValue
from ..activation.dropout import drop_rows

__all__ = ["attend_next", "attention_backward", "attention_forward", "attention_half_plan", "attention_plan"]


def attention_half_plan(shape: AttentionShape, dtype: DTypeLike) -> bool:
    """Return whether this device computes an attention of bfloat16 arrays: yes, in float32."""
    return True


def attention_plan(shape: AttentionShape, dtype: DTypeLike, half: bool) -> AttentionPlan:
    """Return how an attention is computed, `half`: of bfloat16 arrays."""
    return in_blocks(shape, dtype)


def attention_forward(
    plan: AttentionPlan,
    inputs: QueryKeyValue,
    y: HostArray,
    lse: HostArray,
    work: HostArray | None,
    key: HostArray | None,
) -> None:
    """Compute y (items, queries, heads * dim): sums of values, weighted by softmax(scale * queries keys').

    lse (items, heads, queries) becomes the logarithm of each row's sum of exponentials, infinite where a query sees no
    key. `work`: uint8, the plan's forward_bytes. key: with shape.dropout, as of `dropout`: weights are the elements of
    an array (items, heads, queries, keys).
    """
    shape, (scores, _) = plan.shape, block_rooms(plan, work, y.dtype)
    q, k, v = _heads(shape.parts(inputs), shape)
    y = _queries(y, shape)
    for n in range(shape.items):
        for block in shape.blocks():
            first, end, begin, stop = block
            s = _scores(q[n, :, :, first:end], k[n, :, :, begin:stop], scores, shape, block)
            best = s.max(axis=-1, keepdims=True, initial=-math.inf)
            best[np.isinf(best)] = 0  # a query that sees no key
            np.exp(np.subtract(s, best, out=s), out=s)
            total = s.sum(axis=-1, keepdims=True)
            with np.errstate(divide="ignore"):
                rows = np.where(total == 0, math.inf, best + np.log(total))
            lse.reshape(*y.shape[:4])[n, :, :, first:end] = rows[..., 0]
            s /= np.where(total == 0, 1, total)
            _drop(s, shape, n, block, key)
            y[n, :, :, first:end] = s @ v[n, :, :, begin:stop]


def attend_next(
    shape: AttentionShape, inputs: QueryKeyValue, at: HostArray, y: HostArray, cache: AttentionCache
) -> None:
    """Compute y (items, 1, heads * dim) of one query each, at position at[item], where its key and value are kept.

    A query sees the keys kept at positions up to its own, with shape.window the last of them. shape.keys is the length
    of the cache. A position outside of it keeps nothing, and makes y NaN.
    """
    heads = (shape.heads, shape.kv_heads, shape.kv_heads)
    q, k, v = (x.reshape(shape.items, n, shape.dim) for x, n in zip(shape.parts(inputs), heads, strict=True))
    keys, values = (c.reshape(shape.items, shape.keys, shape.kv_heads, shape.dim) for c in (cache.keys, cache.values))
    group = shape.heads // shape.kv_heads
    out = y.reshape(shape.items, shape.kv_heads, group, shape.dim)
    for n, position in enumerate(at.reshape(-1).astype(np.int64).tolist()):
        if not 0 <= position < shape.keys:
            out[n] = np.nan
            continue
        keys[n, position], values[n, position] = k[n], v[n]
        first = max(0, position + 1 - shape.window) if shape.window else 0
        seen = slice(first, position + 1)
        queries = q[n].reshape(shape.kv_heads, group, shape.dim)
        s = queries @ keys[n, seen].transpose(1, 2, 0) * y.dtype.type(shape.scale)
        s = np.exp(s - s.max(axis=-1, keepdims=True))
        out[n] = (s / s.sum(axis=-1, keepdims=True)) @ values[n, seen].transpose(1, 0, 2)


def attention_backward(
    plan: AttentionPlan,
    inputs: QueryKeyValue,
    y: HostArray | None,
    dy: HostArray,
    gradients: QueryKeyValue,
    lse: HostArray,
    work: HostArray | None,
    key: HostArray | None,
) -> None:
    """Compute the wanted gradients of queries, keys and values from dy and what `attention_forward` wrote to lse.

    y: the forward's result, which only bfloat16 arrays must have. `work`: uint8, the plan's backward_bytes. key: as of
    the forward.
    """
    shape, (scores, slopes) = plan.shape, block_rooms(plan, work, dy.dtype)
    q, k, v = _heads(shape.parts(inputs), shape)
    dy = _queries(dy, shape)
    dq, dk, dv = _heads(shape.parts(gradients), shape)
    for gradient in (dk, dv):
        if gradient is not None:
            gradient[...] = 0
    for n in range(shape.items):
        for block in shape.blocks():
            first, end, begin, stop = block
            seen, rows = (
                (n, slice(None), slice(None), slice(begin, stop)),
                (n, slice(None), slice(None), slice(first, end)),
            )
            p = _scores(q[rows], k[seen], scores, shape, block)
            np.exp(np.subtract(p, lse.reshape(*dy.shape[:4])[rows][..., None], out=p), out=p)
            if dq is not None or dk is not None:
                ds = slopes.reshape(-1)[: p.size].reshape(p.shape)
                np.matmul(dy[rows], v[seen].swapaxes(-1, -2), out=ds)
                _drop(ds, shape, n, block, key)
                ds -= np.einsum("hgrs,hgrs->hgr", p, ds)[..., None]
                ds *= p
                ds *= ds.dtype.type(shape.scale)
                if dq is not None:
                    dq[rows] = ds @ k[seen]
                if dk is not None:
                    dk[seen] += (ds.swapaxes(-1, -2) @ q[rows]).sum(axis=1, keepdims=True)
            if dv is not None:
                _drop(p, shape, n, block, key)
                dv[seen] += (p.swapaxes(-1, -2) @ dy[rows]).sum(axis=1, keepdims=True)


def _drop(
    weights: HostArray, shape: AttentionShape, n: int, block: tuple[int, int, int, int], key: HostArray | None
) -> None:
    """Drop weights (kv_heads, heads of one of them, rows, columns) of a block of item n; none without a key."""
    if key is None:
        return
    first, end, begin, _ = block
    heads = n * shape.heads + np.arange(shape.heads)
    places = (heads[:, None] * shape.queries + np.arange(first, end)) * shape.keys + begin
    drop_rows(weights.reshape(-1, weights.shape[-1]), places.reshape(-1), shape.dropout, key)


def _queries(x: HostArray, shape: AttentionShape) -> HostArray:
    """Return a view (items, kv_heads, heads of one of them, queries, dim)."""
    group = shape.heads // shape.kv_heads
    split = x.reshape(shape.items, shape.queries, shape.kv_heads, group, shape.dim)
    return split.transpose(0, 2, 3, 1, 4)


def _heads(arrays: QueryKeyValue, shape: AttentionShape) -> list[HostArray | None]:
    """Return views of queries as `_queries` does, of keys and values (items, kv_heads, 1, keys, dim)."""
    found = [None if arrays.query is None else _queries(arrays.query, shape)]
    for x in arrays[1:]:
        split = (shape.items, shape.keys, shape.kv_heads, 1, shape.dim)
        found.append(None if x is None else x.reshape(split).transpose(0, 2, 3, 1, 4))
    return found


def _scores(
    q: HostArray, k: HostArray, room: HostArray, shape: AttentionShape, block: tuple[int, int, int, int]
) -> HostArray:
    """Return scale * q k' in `room`, -inf where a query does not see a key."""
    first, end, begin, stop = block
    size = (*q.shape[:3], stop - begin)
    s = room.reshape(-1)[: math.prod(size)].reshape(size)
    np.matmul(q, k.swapaxes(-1, -2), out=s)
    s *= s.dtype.type(shape.scale)
    if shape.causal:
        distance = np.arange(first, end)[:, None] - np.arange(begin, stop)
        hidden = distance < 0
        if shape.window:
            hidden |= distance >= shape.window
        s[..., hidden] = -math.inf
    return s
