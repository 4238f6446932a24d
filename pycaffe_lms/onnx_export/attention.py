"""Convert Attention and RotaryEmbedding, to the operators of opset 23 or to products, sums and Softmax."""

from __future__ import annotations

import numpy as np

from .site import Precision, Site, converts

_FAMILY = "common"
_SINCE = 23  # the first opset with operators of these names


@converts(
    "Attention",
    family=_FAMILY,
    ops="Attention Reshape Transpose MatMul Mul Where Softmax",
    note="one operator since 23, unless a query sees no key",
    precision=Precision.SINGLE,
)
def attention(site: Site) -> str:
    layer, options = site.layer, site.param.attention_param
    (_, queries, _), (_, keys, _) = site.bottom_shapes[:2]
    distance = np.arange(queries)[:, None] - np.arange(keys)
    seen = (distance >= 0) | (not options.causal)
    if options.window:
        seen &= distance < options.window
    lonely = not seen.any(axis=1).all()
    if site.opset >= _SINCE and not lonely:
        mask = [site.const(seen, np.bool_)] if options.window else []
        causal = int(options.causal and not options.window)
        heads = {"q_num_heads": layer.heads, "kv_num_heads": layer.kv_heads}
        return site.op("Attention", *site.bottoms, *mask, scale=layer.scale, is_causal=causal, **heads)
    group = layer.heads // layer.kv_heads
    q = _by_head(site, 0, queries, group)
    k, v = (_by_head(site, i, keys, 1) for i in (1, 2))
    ndim = 4 if group == 1 else 5
    turned = site.op("Transpose", k, perm=[*range(ndim - 2), ndim - 1, ndim - 2])
    scores = site.affine(site.op("MatMul", q, turned), layer.scale, 0)
    if not seen.all():
        scores = site.op("Where", site.const(seen, np.bool_), scores, site.number(np.finfo(site.dtype).min))
    weights = site.softmax(scores, ndim - 1, ndim)
    if lonely:
        weights = site.op("Mul", weights, site.const(seen.any(axis=1, keepdims=True), site.dtype))
    y = site.op("Transpose", site.op("MatMul", weights, v), perm=[0, ndim - 2, *range(1, ndim - 2), ndim - 1])
    return site.reshape(y, (0, 0, layer.heads * layer.dim))


def _by_head(site: Site, bottom: int, positions: int, group: int) -> str:
    """Return a bottom (N, positions, values) as (N, heads, positions, dim), heads as (kv_heads, group) where queries
    share keys."""
    layer = site.layer
    heads = (layer.kv_heads,) if layer.heads == layer.kv_heads else (layer.kv_heads, group)
    axes = len(heads)
    split = site.reshape(site.bottoms[bottom], (0, positions, *heads, layer.dim))
    return site.op("Transpose", split, perm=[0, *range(2, 2 + axes), 1, 2 + axes])


@converts(
    "RotaryEmbedding",
    family=_FAMILY,
    ops="RotaryEmbedding Shape Slice Expand Reshape Split Mul Sub Add Concat",
    note="one operator since 23, with the positions of every item",
)
def rotary_embedding(site: Site) -> str:
    rotation = site.layer.rotation
    _, positions, heads, dim, turned, base, interleaved = rotation
    half = turned // 2
    angles = np.arange(positions)[:, None] * base ** (-2.0 * np.arange(half) / max(1, turned))
    cos, sin = np.cos(angles), np.sin(angles)
    if site.opset >= _SINCE:
        tables = (site.const(table, site.dtype) for table in (cos, sin))
        sizes = site.op("Slice", site.op("Shape", site.x), site.const([0]), site.const([2]))
        at = site.op("Expand", site.const(np.arange(positions)[None]), sizes)
        options = {"interleaved": int(interleaved), "num_heads": heads}
        if turned != dim:
            options["rotary_embedding_dim"] = turned
        return site.op("RotaryEmbedding", site.x, *tables, at, **options)
    pairs, axis = ((half, 2), 4) if interleaved else ((2, half), 3)
    x = site.reshape(site.x, (0, positions, heads, dim))
    parts = site.split(x, [turned, dim - turned], 3) if turned != dim else [x]
    a, b = site.split(site.reshape(parts[0], (0, positions, heads, *pairs)), [1, 1], axis)
    cos, sin = (site.const(np.expand_dims(t[:, None], axis - 1), site.dtype) for t in (cos, sin))
    first = site.op("Sub", site.op("Mul", a, cos), site.op("Mul", b, sin))
    second = site.op("Add", site.op("Mul", b, cos), site.op("Mul", a, sin))
    y = site.op("Concat", first, second, axis=axis)
    if turned != dim:
        y = site.op("Concat", site.reshape(y, (0, positions, heads, turned)), *parts[1:], axis=3)
    return site.reshape(y, (0, positions, heads * dim))
