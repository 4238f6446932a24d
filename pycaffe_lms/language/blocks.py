"""Write blocks of transformers into a NetSpec."""

from __future__ import annotations

from ..net_spec import NetSpec, Top
from ..net_spec import layers as L


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
    std: float = 0.02,
) -> Top:
    """Add causal attention with rotary positions, then two products around an activation; return the sum.

    Each half reads its input through a norm and is added to it (pre-norm). GPT's kind: LayerNorm and GELU. `gated`:
    LLaMA's, RMSNorm and SwiGLU. Layers and tops are called `name`_norm1, .. `name`_out.

    Args:
        x: blob (N, T, width), as is the result.
        heads: of the queries, each of width / heads values. kv_heads: of keys and values; 0: as many.
        hidden: outputs of the first of the two products; 0: 4 * width.
        bias: whether products have one.
        std: of the normal distribution of the first weights.
    """
    hidden, kv_heads = hidden or 4 * width, kv_heads or heads
    norm = L.RMSNorm if gated else L.LayerNorm

    def put(part: str, top: Top) -> Top:
        n[f"{name}_{part}"] = top
        return top

    def product(part: str, bottom: Top, outputs: int) -> Top:
        filler = {"type": "gaussian", "std": std}
        return put(part, L.InnerProduct(bottom, num_output=outputs, axis=2, bias_term=bias, weight_filler=filler))

    normed = put("norm1", norm(x))
    queries = put("rotary_q", L.RotaryEmbedding(product("q", normed, width), heads=heads))
    keys = put("rotary_k", L.RotaryEmbedding(product("k", normed, width // heads * kv_heads), heads=kv_heads))
    values = product("v", normed, width // heads * kv_heads)
    mixed = put("attention", L.Attention(queries, keys, values, heads=heads, kv_heads=kv_heads, causal=True))
    x = put("sum1", L.Eltwise(x, product("proj", mixed, width)))
    wide = product("fc1", put("norm2", norm(x)), hidden * (2 if gated else 1))
    active = put("act", L.GatedUnit(wide) if gated else L.GELU(wide))
    return put("out", L.Eltwise(x, product("fc2", active, width)))
