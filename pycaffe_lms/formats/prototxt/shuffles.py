"""Write pixel shuffling, a field of Reshape in Synopsys' and Intel's Caffe, as layers that there are.

Source: Synopsys Caffe, src/caffe/layers/reshape_layer.cpp (behaviour).
"""

from __future__ import annotations

import copy
from operator import attrgetter

from ...proto.caffe_pb2 import LayerParameter, NetParameter
from .upgraded import Upgraded, UpgradeError, unchanged

_SIDE = attrgetter("reshape_param.pixelshuffler")  # 1: none


def spread_shuffles(net: NetParameter) -> Upgraded:
    """Turn each Reshape with pixelshuffler r into four layers: (N, C r r, H, W) becomes (N, C, H r, W r).

    Channel (c r + i) r + j becomes pixel (i, j) of squares in channel c.

    Raises: UpgradeError where reshape_param says more.
    """
    if {*map(_SIDE, net.layer)} <= {1}:
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
    below = list(layer.bottom)
    for one in made:
        one.bottom.extend(below)
        one.top.append(one.name)
        one.include.extend(layer.include)
        one.exclude.extend(layer.exclude)
        below = [one.name]
    layer.bottom[:] = below
    return [*made, layer]
