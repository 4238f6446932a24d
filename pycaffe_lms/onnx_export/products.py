"""Convert convolutions, inner products and layers that look up rows."""

from __future__ import annotations

import numpy as np

from .site import Precision, Site, converts


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
