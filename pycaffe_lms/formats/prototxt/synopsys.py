"""Write layers of Synopsys' Caffe as layers that there are: pixel shuffling, HardSwish, Mul, UpsampleDarknet.

Source: Synopsys Caffe, src/caffe/layers/reshape_layer.cpp, hard_swish_layer.cpp, mul_layer.cpp,
upsample_darknet_layer.cpp (behaviour).
"""

from __future__ import annotations

import copy
from operator import attrgetter

from ...proto.caffe_pb2 import EltwiseParameter, LayerParameter, NetParameter
from .upgraded import Upgraded, UpgradeError, unchanged

_SIDE = attrgetter("reshape_param.pixelshuffler")  # 1: none
_TYPE = attrgetter("type")
_TYPES = ("HardSwish", "Mul", "UpsampleDarknet")


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
