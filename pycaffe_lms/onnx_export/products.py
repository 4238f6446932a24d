"""Convert convolutions, inner products, attention and layers that look up rows."""

from __future__ import annotations

import numpy as np

from .site import Precision, Site, converts

_SINCE = 23  # the first opset with operators Attention and RotaryEmbedding


@converts(
    "Convolution",
    "NdConvolution",
    "DepthwiseConvolution",
    "ConvolutionDepthwise",
    family="vision",
    ops="Conv Reshape Pad",
)
def convolution(site: Site) -> list[str]:
    return _convolve(site, "Conv")


@converts("Deconvolution", family="vision", ops="ConvTranspose Reshape")
def deconvolution(site: Site) -> list[str]:
    return _convolve(site, "ConvTranspose")


def _convolve(site: Site, op: str) -> list[str]:
    """Write a convolution per bottom. ONNX takes one axis of items, the channels, and at least one spatial axis; Caffe
    any number of the first and the last, so others are reshaped before and after."""
    layer = site.layer
    axes = len(layer.kernel)
    one = (1,) * (not axes)  # a spatial axis of size 1 where there is none
    kernel, stride, dilation = ((*v, *one) for v in (layer.kernel, layer.stride, layer.dilation))
    pad = (*layer.pad, *(0 for _ in one))
    weight_shape = (*site.values(0).shape, *one)
    weights = [site.weight(0, weight_shape, "weight")] + ([site.weight(1)] if layer.bias else [])
    tops = []
    for i, x in enumerate(site.bottoms):
        plain = layer.axis == 1 and axes
        if not plain:
            x = site.reshape(x, (-1, *site.bottom_shapes[i][layer.axis :], *one))
        inner = pad
        if op == "Conv" and set(kernel) == {1} and any(pad):  # OpenCV 5.0.0 computes 1 x 1 windows with pads wrongly
            x = site.op("Pad", x, site.const([0, 0, *pad, 0, 0, *pad]), site.number(0), mode="constant")
            inner = (0,) * len(pad)
        y = site.op(
            op,
            x,
            *weights,
            kernel_shape=list(kernel),
            strides=list(stride),
            dilations=list(dilation),
            pads=[*inner, *inner],
            group=layer.group,
        )
        tops.append(y if plain else site.to_top(y, i))
    return tops


@converts("Im2col", family="vision", ops="Conv Reshape")
def im2col(site: Site) -> str:
    """Write a convolution whose filters each choose one element of the window."""
    layer = site.layer
    taps, channels = int(np.prod(layer.kernel)), site.shape[layer.axis]
    chosen = np.tile(np.eye(taps).reshape(taps, 1, *layer.kernel), (channels, *(1,) * (1 + len(layer.kernel))))
    plain = layer.axis == 1
    x = site.x if plain else site.reshape(site.x, (-1, *site.shape[layer.axis :]))
    y = site.op(
        "Conv",
        x,
        site.const(chosen, site.dtype),
        kernel_shape=list(layer.kernel),
        strides=list(layer.stride),
        dilations=list(layer.dilation),
        pads=[*layer.pad, *layer.pad],
        group=channels,
    )
    return y if plain else site.to_top(y)


@converts("InnerProduct", family="common", ops="Gemm Flatten MatMul Add Reshape Transpose")
def inner_product(site: Site) -> str:
    layer, ndim = site.layer, len(site.shape)
    weights = [site.weight(0)] + ([site.weight(1)] if layer.bias else [])
    if layer.axis == 1:
        x = site.x if ndim == 2 else site.op("Flatten", site.x, axis=1)
        return site.op("Gemm", x, *weights, transB=int(not layer.transpose))
    x = site.x if layer.axis == ndim - 1 else site.reshape(site.x, (0,) * layer.axis + (-1,))
    matrix = weights[0] if layer.transpose else site.op("Transpose", weights[0], perm=[1, 0])
    y = site.op("MatMul", x, matrix)
    return site.op("Add", y, weights[1]) if layer.bias else y


@converts("Embed", family="common", ops="Cast Gather Add", precision=Precision.SINGLE)
def embed(site: Site) -> str:
    y = site.op("Gather", site.weight(0), site.cast(site.x, np.int64), axis=0)
    return site.op("Add", y, site.weight(1)) if site.layer.bias else y


@converts("BatchReindex", family="utility", ops="Cast Gather", precision=Precision.SINGLE)
def batch_reindex(site: Site) -> str:
    return site.op("Gather", site.x, site.cast(site.bottoms[1], np.int64), axis=0)


@converts("Parameter", family="data", ops="Identity")
def parameter(site: Site) -> str:
    return site.weight(0, name="value")


@converts("MatMul", family="common", ops="MatMul Transpose")
def matmul(site: Site) -> str:
    factors = []
    for x, shape, turned in zip(site.bottoms, site.bottom_shapes, site.layer.turns, strict=True):
        *lead, rows, columns = range(len(shape))
        factors.append(site.op("Transpose", x, perm=[*lead, columns, rows]) if turned else x)
    return site.op("MatMul", *factors)


@converts(
    "Attention",
    family="common",
    ops="Attention Split Reshape Transpose MatMul Mul Where Softmax",
    note="one operator since 23, unless a query sees no key; a packed bottom is split",
    precision=Precision.SINGLE,
)
def attention(site: Site) -> str:
    layer, options = site.layer, site.param.attention_param
    if layer.random:
        site.refuse("has phase TRAIN, in which it drops weights at random", "remove `phase: TRAIN`")
    if layer.cache:
        site.refuse("has a cache, which outlives a forward", "export the net of whole windows, without cache")
    queries, keys = site.bottom_shapes[0][1], site.bottom_shapes[-1][1]
    bottoms = list(site.bottoms)
    if layer.packed:
        sizes = [heads * layer.dim for heads in (layer.heads, layer.kv_heads, layer.kv_heads)]
        bottoms = site.split(site.x, sizes, 2)
    distance = np.arange(queries)[:, None] - np.arange(keys)
    seen = (distance >= 0) | (not options.causal)
    if options.window:
        seen &= distance < options.window
    lonely = not seen.any(axis=1).all()
    if site.opset >= _SINCE and not lonely:
        mask = [site.const(seen, np.bool_)] if options.window else []
        causal = int(options.causal and not options.window)
        heads = {"q_num_heads": layer.heads, "kv_num_heads": layer.kv_heads}
        return site.op("Attention", *bottoms, *mask, scale=layer.scale, is_causal=causal, **heads)
    group = layer.heads // layer.kv_heads
    q = _by_head(site, bottoms[0], queries, group)
    k, v = (_by_head(site, bottom, keys, 1) for bottom in bottoms[1:])
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


def _by_head(site: Site, x: str, positions: int, group: int) -> str:
    """Return x (N, positions, values) as (N, heads, positions, dim), heads as (kv_heads, group) where queries
    share keys."""
    layer = site.layer
    heads = (layer.kv_heads,) if layer.heads == layer.kv_heads else (layer.kv_heads, group)
    axes = len(heads)
    split = site.reshape(x, (0, positions, *heads, layer.dim))
    return site.op("Transpose", split, perm=[0, *range(2, 2 + axes), 1, 2 + axes])


@converts(
    "RotaryEmbedding",
    family="common",
    ops="RotaryEmbedding Shape Slice Expand Reshape Split Mul Sub Add Concat",
    note="one operator since 23, with the positions of every item",
)
def rotary_embedding(site: Site) -> str:
    rotation = site.layer.rotation
    if len(site.bottoms) == 2:
        site.refuse("has positions as a bottom", "export the net of whole windows, whose positions are 0, 1, ..")
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
