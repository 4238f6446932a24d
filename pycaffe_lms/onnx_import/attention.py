"""Convert Attention and RotaryEmbedding, ONNX's operators of transformers since opset 23."""

from __future__ import annotations

from typing import NoReturn

import numpy as np

from ..arrays import HostArray
from .site import ImportSite, Shape, converts

_USUAL_BASE = 10000.0


@converts("Attention")
def attention(site: ImportSite) -> str:
    """Write an Attention layer, around which heads change places where the operator has an axis of them."""
    if site.has(4) or site.has(5):
        site.refuse("it keeps keys and values of earlier runs", "export the model of whole windows, without a cache")
    if site.attr("softcap", 0.0):
        site.refuse("it caps scores", "export the model without softcap")
    q, k, v = (site.shape(i) for i in range(3))
    if len(q) == 4:
        heads, kv_heads, dims = q[1], k[1], (q[3], k[3], v[3])
    else:
        heads, kv_heads = site.attr("q_num_heads", 0), site.attr("kv_num_heads", 0)
        dims = q[2] // heads, k[2] // kv_heads, v[2] // kv_heads
    if len(set(dims)) > 1 or heads % kv_heads:
        what = (
            f"{heads} and {kv_heads} heads, of {dims[0]} values of queries, {dims[1]} of keys and {dims[2]} of values"
        )
        site.refuse(f"it has {what}", "give all heads one size, and as many or a fraction of heads to keys and values")
    fields = {"heads": heads, **_mask(site, q[-2], k[-2])}
    if kv_heads != heads:
        fields["kv_heads"] = kv_heads
    scale = site.attr("scale", 0.0)
    if scale and not np.isclose(scale, dims[0] ** -0.5, rtol=1e-7):
        fields["scale"] = scale
    bottoms = [_flat(site, site.blob(i), f"/{name}") for i, name in enumerate("qkv")]
    y = site.layer("Attention", bottoms, site.shape_of(bottoms[0]), attention_param=fields)
    return _by_head(site, y, q)


def _flat(site: ImportSite, x: str, suffix: str) -> str:
    """Return x as (N, T, heads * D), also where it is (N, heads, T, D)."""
    shape = site.shape_of(x)
    if len(shape) == 3:
        return x
    x = site.permute(x, [0, 2, 1, 3], suffix=f"{suffix}/order")
    return site.reshape(x, (shape[0], shape[2], shape[1] * shape[3]), suffix=suffix)


def _by_head(site: ImportSite, y: str, shape: Shape) -> str:
    """Return y (N, T, heads * D) in this shape, that or (N, heads, T, D)."""
    if len(shape) == 3:
        return y
    y = site.reshape(y, (shape[0], shape[2], shape[1], shape[3]), suffix="/heads")
    return site.permute(y, [0, 2, 1, 3], suffix="/order")


def _mask(site: ImportSite, queries: int, keys: int) -> dict[str, bool | int]:
    """Return the fields that say which keys a query sees."""
    behind = np.arange(queries)[:, None] - np.arange(keys)
    seen = np.full((queries, keys), True) if not site.attr("is_causal", 0) else behind >= 0
    if site.has(3):
        given = site.const(3, "attn_mask")
        allowed = given if given.dtype == np.bool_ else given == 0
        numbers = given.dtype == np.bool_ or np.isin(given, (0, -np.inf)).all() or given[given != 0].max() <= -1e4
        first = allowed.reshape(-1, *allowed.shape[-2:])[0]
        if not numbers or not (allowed == first).all():
            site.refuse("its mask adds numbers, or differs between items or heads", "use a mask of what is seen by all")
        seen = seen & first
    if seen.all():
        return {}
    window = int(behind[seen].max(initial=-1)) + 1
    if not seen.any(axis=1).all() or (seen != ((behind >= 0) & (behind < window))).any():
        site.refuse("its mask is neither causal nor causal with a window", "write it with MatMul, Where and Softmax")
    return {"causal": True} if window >= queries else {"causal": True, "window": window}


@converts("RotaryEmbedding")
def rotary_embedding(site: ImportSite) -> str:
    """Write a RotaryEmbedding layer, whose base the tables of cosines and sines tell."""
    shape = site.shape()
    heads = shape[1] if len(shape) == 4 else site.attr("num_heads", 0)
    dim = shape[3] if len(shape) == 4 else shape[2] // heads
    turned = site.attr("rotary_embedding_dim", 0) or dim
    cos, sin = site.const(1, "cos_cache"), site.const(2, "sin_cache")
    positions = shape[-2]
    ordered = np.arange(positions)
    places = None
    if not site.has(3):
        cos, sin = _same_of_all(site, cos), _same_of_all(site, sin)
    elif site.is_const(3):
        at = site.const(3, "position_ids")
        places = None if (at == ordered).all() else site.parameter(at, f"{site.name}/positions")
    else:
        places = site.blob(3)
    fields = {"heads": heads}
    if turned != dim:
        fields["rotary_dim"] = turned
    if site.attr("interleaved", 0):
        fields["interleaved"] = 1
    base = _base(site, cos, sin, turned)
    if base != _USUAL_BASE:
        fields["base"] = base
    x = _flat(site, site.blob(), "/x")
    bottoms = [x] if places is None else [x, places]
    return _by_head(
        site, site.layer("RotaryEmbedding", bottoms, site.shape_of(x), rotary_embedding_param=fields), shape
    )


def _same_of_all(site: ImportSite, table: HostArray) -> HostArray:
    """Return a table (N, positions, pairs) without its first axis, along which it must not change."""
    if (table != table[:1]).any():
        site.refuse("its angles differ from item to item", "give it position_ids, and export the model again")
    return np.asarray(table[0])


def _base(site: ImportSite, cos: HostArray, sin: HostArray, turned: int) -> float:
    """Return the base of tables (positions, pairs): the roundest number that tells them best."""

    def refuse() -> NoReturn:
        site.refuse("its angles are not those of position / base ^ (2 i / rotary_dim)", "compute them in the model")

    places, pairs = np.arange(len(cos))[:, None], np.arange(turned // 2)
    if cos.shape != (len(places), len(pairs)) or sin.shape != cos.shape:
        refuse()
    bases = [_USUAL_BASE]
    if len(places) > 1 and len(pairs) > 1:
        step = float(np.arctan2(sin[1, -1].astype(np.float64), cos[1, -1].astype(np.float64)))
        if step <= 0:
            refuse()
        found = step ** (-turned / (turned - 2))
        bases += [float(f"{found:.{digits}g}") for digits in range(1, 9)]

    def error(base: float) -> float:
        angles = places * base ** (-2.0 * pairs / turned)
        return float(max(np.abs(np.cos(angles) - cos).max(), np.abs(np.sin(angles) - sin).max()))

    errors = [error(base) for base in bases]
    least = min(errors)
    if least > 1e-6 + 3e-7 * len(places):  # angles in float32
        refuse()
    return next(base for base, wrong in zip(bases, errors, strict=True) if wrong <= 1.5 * least + 1e-9)
