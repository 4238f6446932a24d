"""Write whole transformers into a NetSpec: nets like GPT-2, like LLaMA and Qwen2, and vision transformers.

Layers are called embed, positions, block1_norm1, .., norm, scores; `formats/weights/transformer_names.py` says what
public files call their weights.
"""

from __future__ import annotations

from typing import Any

from ..net_spec import NetSpec, Top
from ..net_spec import layers as L
from .blocks import transformer_block

_TIED = {"name": "embed"}  # the parameter that embedding and scores share


def gpt2(
    n: NetSpec,
    ids: Top,
    labels: Top | None = None,
    *,
    vocabulary: int = 50257,
    positions: int = 1024,
    width: int = 768,
    blocks: int = 12,
    heads: int = 12,
    hidden: int = 0,
    eps: float = 1e-5,
    dropout: float = 0.0,
    std: float = 0.02,
) -> Top:
    """Add GPT-2: learned positions, LayerNorm, GELU by tanh, biases, scores by the embedding's weights.

    Args:
        ids: blob (N, positions) of tokens. labels: the tokens that follow; None: the result is scores.

    Returns:
        scores (N, positions, vocabulary), or the loss.
    """
    x = _embedding(n, ids, vocabulary, width, std, tied=True)
    table = {"type": "gaussian", "std": std / 2}
    n.positions = x = L.Bias(x, axis=1, num_axes=2, filler=table)
    if dropout:
        n.drop = x = L.Dropout(x, dropout_ratio=dropout, in_place=True)
    sizes: dict[str, Any] = {
        "width": width,
        "heads": heads,
        "hidden": hidden,
        "eps": eps,
        "dropout": dropout,
        "std": std,
    }
    for k in range(1, blocks + 1):
        x = transformer_block(n, f"block{k}", x, bias=True, rotary=None, tanh=True, **sizes)
    n.norm = L.LayerNorm(x, eps=eps)
    return _scores(n, n.norm, labels, vocabulary, std, tied=True)


def llama(
    n: NetSpec,
    ids: Top,
    labels: Top | None = None,
    *,
    vocabulary: int = 32000,
    width: int = 4096,
    blocks: int = 32,
    heads: int = 32,
    kv_heads: int = 0,
    hidden: int = 11008,
    qkv_bias: bool = False,
    rotary: float = 10000.0,
    eps: float = 1e-6,
    tied: bool = False,
    std: float = 0.02,
) -> Top:
    """Add LLaMA: rotary positions, RMSNorm, SwiGLU, no biases. Qwen2: `qkv_bias`.

    Args:
        ids: blob (N, T) of tokens. labels: the tokens that follow; None: the result is scores.
        tied: whether scores are made by the embedding's weights.

    Returns:
        scores (N, T, vocabulary), or the loss.
    """
    x = _embedding(n, ids, vocabulary, width, std, tied=tied)
    sizes: dict[str, Any] = {
        "width": width,
        "heads": heads,
        "kv_heads": kv_heads,
        "hidden": hidden,
        "eps": eps,
        "std": std,
    }
    for k in range(1, blocks + 1):
        x = transformer_block(n, f"block{k}", x, gated=True, qkv_bias=qkv_bias, rotary=rotary, **sizes)
    n.norm = L.RMSNorm(x, eps=eps)
    return _scores(n, n.norm, labels, vocabulary, std, tied=tied)


def vit(
    n: NetSpec,
    pictures: Top,
    *,
    classes: int = 1000,
    patch: int = 16,
    width: int = 768,
    blocks: int = 12,
    heads: int = 12,
    hidden: int = 0,
    eps: float = 1e-12,
    dropout: float = 0.0,
    drop_path: float = 0.0,
    layer_scale: float = 0.0,
    std: float = 0.02,
) -> Top:
    """Add a vision transformer: patches and a class token, learned positions, LayerNorm, GELU, biases.

    Args:
        pictures: blob (N, channels, height, width), in patches of `patch` x `patch` without overlap.
        drop_path: that of the last block; it grows from block to block.

    Returns:
        scores (N, classes), of the class token.
    """
    filler = {"type": "gaussian", "std": std}
    n.patches = L.Convolution(pictures, num_output=width, kernel_size=patch, stride=patch, weight_filler=filler)
    n.patch_list = L.Reshape(n.patches, shape={"dim": [0, 0, -1]})
    n.tokens = L.Permute(n.patch_list, order=[0, 2, 1])
    # The class token is row 0 of a table of one row: 0 times the sum of a picture is the index.
    n.zero = L.Reduction(pictures, axis=1, coeff=0)
    n.class_token = L.Embed(n.zero, input_dim=1, num_output=width, bias_term=False, weight_filler=filler)
    n.class_tokens = L.Reshape(n.class_token, shape={"dim": [0, 1, -1]})
    n.sequence = L.Concat(n.class_tokens, n.tokens, axis=1)
    n.positions = x = L.Bias(n.sequence, axis=1, num_axes=2, filler=filler)
    if dropout:
        n.drop = x = L.Dropout(x, dropout_ratio=dropout, in_place=True)
    sizes: dict[str, Any] = {
        "width": width,
        "heads": heads,
        "hidden": hidden,
        "eps": eps,
        "dropout": dropout,
        "std": std,
    }
    for k in range(1, blocks + 1):
        share = drop_path * (k - 1) / max(1, blocks - 1)
        more: dict[str, Any] = {
            "drop_path": share,
            "layer_scale": layer_scale,
            "causal": False,
            "rotary": None,
            "bias": True,
        }
        x = transformer_block(n, f"block{k}", x, **sizes, **more)
    n.seen, n.unread = L.Slice(x, axis=1, slice_point=1, ntop=2)
    n.silence = L.Silence(n.unread, ntop=0)
    n.norm = L.LayerNorm(n.seen, eps=eps)
    scores: Top = L.InnerProduct(n.norm, num_output=classes, weight_filler=filler)
    n.scores = scores
    return scores


def _embedding(n: NetSpec, ids: Top, vocabulary: int, width: int, std: float, *, tied: bool) -> Top:
    share: dict[str, Any] = {"param": [_TIED]} if tied else {}
    table: dict[str, Any] = {"input_dim": vocabulary, "num_output": width, "bias_term": False}
    x: Top = L.Embed(ids, weight_filler={"type": "gaussian", "std": std}, **table, **share)
    n.embed = x
    return x


def _scores(n: NetSpec, x: Top, labels: Top | None, vocabulary: int, std: float, *, tied: bool) -> Top:
    """Add layer `scores`: an InnerProduct, or with labels a LinearSoftmaxWithLoss, which holds no scores."""
    share: dict[str, Any] = {"param": [_TIED]} if tied else {}
    product: dict[str, Any] = {"num_output": vocabulary, "axis": 2, "bias_term": False}
    product |= {"weight_filler": {"type": "gaussian", "std": std}}
    if labels is None:
        scores: Top = L.InnerProduct(x, **product, **share)
        n.scores = scores
        return scores
    loss: Top = L.LinearSoftmaxWithLoss(x, labels, name="scores", inner_product_param=product, **share)
    n.loss = loss
    return loss
