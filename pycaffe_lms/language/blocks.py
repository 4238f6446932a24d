"""Write blocks of transformers into a NetSpec."""

from __future__ import annotations

from typing import Any

from ..net_spec import NetSpec, Top
from ..net_spec import layers as L

_BASE = 10000.0  # RotaryEmbedding's own


def transformer_block(
    n: NetSpec,
    name: str,
    x: Top,
    *,
    width: int,
    heads: int,
    kv_heads: int = 0,
    hidden: int = 0,
    gated: bool = False,
    bias: bool = False,
    qkv_bias: bool | None = None,
    causal: bool = True,
    rotary: float | None = _BASE,
    eps: float | None = None,
    tanh: bool = False,
    dropout: float = 0.0,
    drop_path: float = 0.0,
    layer_scale: float = 0.0,
    std: float = 0.02,
) -> Top:
    """Add attention, then two products around an activation; return the sum.

    Each half reads its input through a norm and is added to it (pre-norm). GPT's kind: LayerNorm and GELU. `gated`:
    LLaMA's, RMSNorm and SwiGLU. Layers and tops are called `name`_norm1, .. `name`_out.

    Args:
        x: blob (N, T, width), as is the result.
        heads: of the queries, each of width / heads values. kv_heads: of keys and values; 0: as many.
        hidden: outputs of the first of the two products; 0: 4 * width.
        bias: whether products have one. qkv_bias: whether those before attention have one; None: as `bias`.
        causal: whether a position sees itself and those before alone.
        rotary: base of the angles of rotary positions; None: there are none, and one product, `name`_qkv, makes
            queries, keys and values.
        eps: added to the variance in norms; None: the layers' own. tanh: whether GELU is computed by a tanh.
        dropout: share of attention's weights, and of the values of both halves, that training drops.
        drop_path: share of items that skip a half in training.
        layer_scale: first value of a learned factor of each of the values that a half adds; 0: there is none.
        std: of the normal distribution of the first weights.
    """
    hidden, kv_heads = hidden or 4 * width, kv_heads or heads
    narrow, qkv_bias = width // heads * kv_heads, bias if qkv_bias is None else qkv_bias

    def put(part: str, top: Top) -> Top:
        n[f"{name}_{part}"] = top
        return top

    def norm(part: str, bottom: Top) -> Top:
        fields: dict[str, Any] = {} if eps is None else {"eps": eps}
        return put(part, L.RMSNorm(bottom, **fields) if gated else L.LayerNorm(bottom, **fields))

    def turned(part: str, bottom: Top, heads: int) -> Top:
        fields: dict[str, Any] = {} if rotary == _BASE else {"base": rotary}
        return put(part, L.RotaryEmbedding(bottom, heads=heads, **fields))

    def product(part: str, bottom: Top, outputs: int, bias: bool = bias) -> Top:
        filler = {"type": "gaussian", "std": std}
        return put(part, L.InnerProduct(bottom, num_output=outputs, axis=2, bias_term=bias, weight_filler=filler))

    def add(part: str, to: Top, branch: Top, number: int) -> Top:
        if dropout:
            branch = put(f"drop{number}", L.Dropout(branch, dropout_ratio=dropout, in_place=True))
        if layer_scale:
            factor = {"type": "constant", "value": layer_scale}
            branch = put(f"scale{number}", L.Scale(branch, axis=2, filler=factor))
        if drop_path:
            branch = put(f"path{number}", L.DropPath(branch, dropout_ratio=drop_path, in_place=True))
        return put(part, L.Eltwise(to, branch))

    normed = norm("norm1", x)
    sizes: dict[str, Any] = {"heads": heads, "kv_heads": kv_heads}
    sizes |= ({"causal": True} if causal else {}) | ({"dropout_ratio": dropout} if dropout else {})
    if rotary is None:
        mixed = put("attention", L.Attention(product("qkv", normed, width + 2 * narrow, qkv_bias), **sizes))
    else:
        queries = turned("rotary_q", product("q", normed, width, qkv_bias), heads)
        keys = turned("rotary_k", product("k", normed, narrow, qkv_bias), kv_heads)
        mixed = put("attention", L.Attention(queries, keys, product("v", normed, narrow, qkv_bias), **sizes))
    x = add("sum1", x, product("proj", mixed, width), 1)
    wide = product("fc1", norm("norm2", x), hidden * (2 if gated else 1))
    gelu: dict[str, Any] = {"approximate": "TANH"} if tanh else {}
    active = put("act", L.GatedUnit(wide) if gated else L.GELU(wide, **gelu))
    return add("out", x, product("fc2", active, width), 2)
