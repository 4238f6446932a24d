"""Write what nets of Synopsys' Caffe say in terms of layers that there are.

Paddings, averages and ReLU6; pixel shuffling, HardSwish, Mul, UpsampleDarknet.
Source: Synopsys Caffe, src/caffe/layers/base_conv_layer.cpp, pooling_layer.cpp, relu_layer.cpp, reshape_layer.cpp,
hard_swish_layer.cpp, mul_layer.cpp, upsample_darknet_layer.cpp (behaviour).
"""

from __future__ import annotations

import copy
from operator import attrgetter
from typing import Any

from ...proto.caffe_pb2 import EltwiseParameter, LayerParameter, NetParameter, PoolingParameter
from .upgraded import Upgraded, UpgradeError, unchanged

_SIDES = ("pad_t", "pad_b", "pad_l", "pad_r")
_CONVOLUTIONS = ("Convolution", "ConvolutionDepthwise", "DepthwiseConvolution")
_SIDE = attrgetter("reshape_param.pixelshuffler")  # 1: none
_TYPE = attrgetter("type")
_TYPES = ("HardSwish", "Mul", "UpsampleDarknet")


def spread_paddings(net: NetParameter) -> Upgraded:
    """Turn pad_l, pad_r, pad_t and pad_b into pad_h and pad_w, a Pad layer or ceil_mode; AVE_EXC_PAD without padding,
    which is the same, into AVE; relu6 into ReLU6; and pad_type 1 of a maximum with stride 1, whose top has the bottom's
    size, into pad_h and pad_w, with a Crop behind it where a kernel's side is even.

    Raises: UpgradeError for paddings that no layer has.
    """
    if not any(map(_concerned, net.layer)):
        return unchanged(net)
    new, origins = NetParameter(), list[int | None]()
    new.CopyFrom(net)
    del new.layer[:]
    for k, old in enumerate(net.layer):
        layer = copy.deepcopy(old)
        for made in _rewritten(layer, k) if _concerned(layer) else [layer]:
            new.layer.append(made)
            origins.append(k)
    return Upgraded(new, tuple(origins))


def _concerned(layer: LayerParameter) -> bool:
    sided = (layer.convolution_param, layer.pooling_param)
    return (
        any(p.HasField(side) for p in sided for side in _SIDES)
        or layer.pooling_param.pool == PoolingParameter.AVE_EXC_PAD
        or layer.pooling_param.HasField("pad_type")
        or layer.relu_param.HasField("relu6")
    )


def _rewritten(layer: LayerParameter, k: int) -> list[LayerParameter]:
    """Return the layers in place of layer k, which is changed."""
    if layer.relu_param.HasField("relu6"):
        if layer.relu_param.relu6 and layer.relu_param.negative_slope:
            raise _wrong(layer, k, "has relu6 and a negative_slope", "keep one of them")
        if layer.relu_param.relu6:
            layer.type = "ReLU6"
            layer.ClearField("relu_param")
        else:
            layer.relu_param.ClearField("relu6")
    pooling = layer.pooling_param if layer.HasField("pooling_param") else None
    if pooling is not None and pooling.HasField("pad_type") and pooling.pad_type:
        return _same(layer, pooling, k)
    if pooling is not None:
        pooling.ClearField("pad_type")
        _pooling(layer, pooling, k)
    if not layer.HasField("convolution_param"):
        return [layer]
    top, bottom, left, right = sides = _taken(layer, layer.convolution_param, k)
    if any(sides) and layer.type not in _CONVOLUTIONS:
        raise _wrong(layer, k, "has paddings of single sides, which a Convolution alone has", "use pad_h and pad_w")
    if (top, left) == (bottom, right):
        if any(sides):
            layer.convolution_param.pad_h, layer.convolution_param.pad_w = top, left
        return [layer]
    before = LayerParameter(name=f"{layer.name}/pad", type="Pad", bottom=layer.bottom, top=[f"{layer.name}/pad"])
    before.pad_param.paddings.extend((0, 0, 0, 0, *sides))
    before.include.extend(layer.include)
    before.exclude.extend(layer.exclude)
    layer.bottom[:] = before.top
    return [before, layer]


def _same(layer: LayerParameter, p: Any, k: int) -> list[LayerParameter]:
    """Return a maximum with stride 1 over a bottom that is padded by kernel - 1, the larger half below and right."""
    kernel = p.kernel_h or p.kernel_size, p.kernel_w or p.kernel_size
    given = any(p.HasField(field) for field in (*_SIDES, "pad", "pad_h", "pad_w"))
    strides = (p.stride_h or p.stride, p.stride_w or p.stride)
    if p.pad_type != 1 or p.pool != PoolingParameter.MAX or strides != (1, 1) or given or 0 in kernel:
        raise _wrong(layer, k, f"has pad_type {p.pad_type}", "give a maximum with stride 1 pad_type 1, or use pad")
    if len(layer.bottom) != 1 or len(layer.top) != 1:
        raise _wrong(layer, k, "has pad_type 1, and not one bottom and one top", "leave out the mask")
    p.ClearField("pad_type")
    p.pad_h, p.pad_w = kernel[0] // 2, kernel[1] // 2
    even = [1 - size % 2 for size in kernel]
    if not any(even):
        return [layer]
    # An even kernel, padded on both sides by its half, begins one step too early.
    cut = LayerParameter(name=f"{layer.name}/cut", type="Crop", bottom=[f"{layer.name}/wide", *layer.bottom])
    cut.top.extend(layer.top)
    cut.crop_param.axis = 2
    cut.crop_param.offset.extend(even)
    cut.include.extend(layer.include)
    cut.exclude.extend(layer.exclude)
    layer.top[:] = [f"{layer.name}/wide"]
    return [layer, cut]


def _pooling(layer: LayerParameter, p: Any, k: int) -> None:
    top, bottom, left, right = sides = _taken(layer, p, k)
    padded = any(sides) or p.pad or p.pad_h or p.pad_w
    if p.pool == PoolingParameter.AVE_EXC_PAD and not padded:
        p.pool = PoolingParameter.AVE
    if (top, left) == (bottom, right):
        if any(sides):
            p.pad_h, p.pad_w = top, left
        return
    strides = (p.stride_h or p.stride, p.stride_w or p.stride)
    ceil = p.ceil_mode if p.HasField("ceil_mode") else p.round_mode == PoolingParameter.CEIL
    if p.pool != PoolingParameter.MAX or ceil or (top, left) != (0, 0) or (bottom + 1, right + 1) != strides:
        raise _wrong(layer, k, f"pads {top} above, {bottom} below, {left} left, {right} right", "use pad_h and pad_w")
    p.ClearField("round_mode")
    p.ceil_mode = True  # floor((n + s - 1 - w) / s) is ceil((n - w) / s)


def _taken(layer: LayerParameter, p: Any, k: int) -> tuple[int, ...]:
    """Return the paddings of the sides, and clear them."""
    sides = tuple(getattr(p, side) for side in _SIDES)
    for side in _SIDES:
        p.ClearField(side)
    pads = p.pad if isinstance(p.pad, int) else any(p.pad)
    if any(sides) and (pads or p.pad_h or p.pad_w):
        raise _wrong(layer, k, "has paddings of single sides and pad", "keep one of them")
    if min(sides) < 0:
        raise _wrong(layer, k, f"has a padding of {min(sides)}", "give 0 or more")
    return sides


def _wrong(layer: LayerParameter, k: int, what: str, fix: str) -> UpgradeError:
    return UpgradeError(what, source=k, layer=layer.name, fix=fix)


def spread_layers(net: NetParameter) -> Upgraded:
    """Turn layers that Synopsys' Caffe has in one into several.

    Reshape with pixelshuffler r: (N, C r r, H, W) becomes (N, C, H r, W r); channel (c r + i) r + j becomes pixel
    (i, j) of squares in channel c. HardSwish: x times x / 6 + 1 / 2, which is cut to 0..1. Mul of (N, C, H, W) and a
    factor for each channel, (N, C, 1, 1). UpsampleDarknet repeats pixels, as Upsample with one bottom does.

    Raises: UpgradeError where reshape_param says more, a Mul has one bottom, or a stride is below 1.
    """
    if {*map(_SIDE, net.layer)} <= {1} and {*map(_TYPE, net.layer)}.isdisjoint(_TYPES):
        return unchanged(net)
    new, origins = NetParameter(), list[int | None]()
    new.CopyFrom(net)
    del new.layer[:]
    for k, old in enumerate(net.layer):
        for made in _layers(copy.deepcopy(old), k):
            new.layer.append(made)
            origins.append(k)
    return Upgraded(new, tuple(origins))


def _layers(layer: LayerParameter, k: int) -> list[LayerParameter]:
    """Return the layers in place of layer k, which is changed."""
    if layer.type == "HardSwish":
        return _hard_swish(layer)
    if layer.type == "Mul":
        return _product(layer, k)
    if layer.type == "UpsampleDarknet":
        return _repeated(layer, k)
    p, side = layer.reshape_param, layer.reshape_param.pixelshuffler
    if side == 1:
        return [layer]
    p.ClearField("pixelshuffler")
    if side < 1 or p.ListFields():
        raise UpgradeError(
            f"has pixelshuffler {side}" + (" and other fields" if p.ListFields() else ""),
            source=k,
            layer=layer.name,
            fix="give pixelshuffler above 0 alone",
        )
    made = [LayerParameter(name=f"{layer.name}/{what}", type="Reshape") for what in ("channels", "order", "rows")]
    made[0].reshape_param.axis, made[0].reshape_param.num_axes = 1, 1
    made[0].reshape_param.shape.dim.extend((-1, side, side))
    made[1].type = "Permute"
    made[1].permute_param.order.extend((0, 1, 4, 2, 5, 3))
    made[2].reshape_param.axis, made[2].reshape_param.num_axes = 2, 2
    made[2].reshape_param.shape.dim.append(-1)
    p.axis, p.num_axes = 3, 2
    p.shape.dim.append(-1)
    layer.bottom[:] = [_chained(layer, made, layer.bottom[0])] if layer.bottom else []
    return [*made, layer]


def _hard_swish(layer: LayerParameter) -> list[LayerParameter]:
    made = [LayerParameter(name=f"{layer.name}/{what}", type=what) for what in ("Power", "Clip")]
    made[0].power_param.scale, made[0].power_param.shift = 1 / 6, 0.5
    made[1].clip_param.min, made[1].clip_param.max = 0, 1
    layer.type = "Eltwise"
    layer.eltwise_param.operation = EltwiseParameter.PROD
    if layer.bottom:
        layer.bottom.append(_chained(layer, made, layer.bottom[0]))
    return [*made, layer]


def _repeated(layer: LayerParameter, k: int) -> list[LayerParameter]:
    stride = layer.upsample_darknet_param.stride
    if stride < 1 or len(layer.bottom) != 1:
        raise UpgradeError(
            f"has stride {stride} and {len(layer.bottom)} bottom(s)",
            source=k,
            layer=layer.name,
            fix="give it a stride of at least 1 and one bottom",
        )
    layer.ClearField("upsample_darknet_param")
    layer.type, layer.upsample_param.scale = "Upsample", stride
    return [layer]


def _product(layer: LayerParameter, k: int) -> list[LayerParameter]:
    if len(layer.bottom) != 2:
        raise UpgradeError(
            f"has {len(layer.bottom)} bottoms",
            source=k,
            layer=layer.name,
            fix='write a "Scale" layer for a learned factor',
        )
    made = LayerParameter(name=f"{layer.name}/factors", type="Reshape")
    made.reshape_param.shape.dim.extend((0, -1))
    layer.type = "Scale"
    layer.scale_param.axis = 0
    layer.bottom[1] = _chained(layer, [made], layer.bottom[1])
    return [made, layer]


def _chained(layer: LayerParameter, made: list[LayerParameter], below: str) -> str:
    """Make these layers one after the other, beginning with a blob, where the layer is. Return the last one's top."""
    for one in made:
        one.bottom.append(below)
        one.top.append(one.name)
        one.include.extend(layer.include)
        one.exclude.extend(layer.exclude)
        below = one.name
    return below
