"""Find the offsets of Crop layers that forks leave out: FCN's first, CRF-RNN's, RCF's.

There a Crop finds by itself which part of its bottom 0 lies over its bottom 1: windows, strides and paddings of the
layers between say where each pixel lies.
Source: yun-liu/rcf, auto_crop_layer.cpp, torrvision/caffe, crop_layer.cpp (behaviour).
See also: pycaffe_lms/coord_map.py, which does so for a NetSpec.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator
from fractions import Fraction
from operator import attrgetter
from typing import Any, NamedTuple

from ...proto.caffe_pb2 import LayerParameter, NetParameter
from .upgraded import Upgraded, UpgradeError, unchanged

AUTOMATIC = "AutoCrop"  # the type of such a layer, in RCF's texts too
_FORKS = ("MultiStageMeanfield",)  # nets that have such a layer have no other Crop
_SAME = {
    *("AbsVal", "BatchNorm", "Bias", "BN", "BNLL", "Clip", "Concat", "Dropout", "ELU", "Eltwise", "Exp", "Log", "LRN"),
    *("MVN", "Power", "PReLU", "ReLU", "ReLU6", "Scale", "Sigmoid", "Slice", "Softmax", "Split", "Swish", "TanH"),
    "Threshold",
}


class _Place(NamedTuple):
    """Say that pixel x of a blob lies at scale * x + shift of another one, along one axis."""

    scale: Fraction = Fraction(1)
    shift: Fraction = Fraction(0)

    def then(self, other: _Place) -> _Place:
        return _Place(self.scale * other.scale, self.scale * other.shift + self.shift)


def place_crops(net: NetParameter) -> Upgraded:
    """Turn each AutoCrop into a Crop with its offset, and in a net of CRF-RNN each Crop without crop_param.

    Raises: UpgradeError where a bottom does not lie over the other one pixel by pixel.
    """
    types = {*map(attrgetter("type"), net.layer)}
    of_fork = not types.isdisjoint(_FORKS)
    if not of_fork and AUTOMATIC not in types:
        return unchanged(net)
    automatic = [
        k
        for k, layer in enumerate(net.layer)
        if layer.type == AUTOMATIC or (of_fork and layer.type == "Crop" and not layer.HasField("crop_param"))
    ]
    if not automatic:
        return unchanged(net)
    new = copy.deepcopy(net)
    for k in automatic:
        layer = new.layer[k]
        if len(layer.bottom) != 2:
            raise _wrong(layer, k, f"has {len(layer.bottom)} bottoms", "give two")
        offsets = [_offset(new, k, axis) for axis in (0, 1)]
        layer.type = "Crop"
        layer.crop_param.axis = 2
        layer.crop_param.offset.extend(offsets if offsets[0] != offsets[1] else offsets[:1])
    return Upgraded(new, tuple(range(len(new.layer))))


def _offset(net: NetParameter, k: int, axis: int) -> int:
    """Return where bottom 1 of layer k begins in bottom 0. axis: 0 of the height, 1 of the width."""
    layer = net.layer[k]
    maps: list[dict[str, _Place]] = []
    for bottom in layer.bottom:
        maps.append(dict(_places(net, k, bottom, axis)))
    common = next((name for name in maps[1] if name in maps[0]), None)
    if common is None:
        raise _wrong(layer, k, "has bottoms without a common origin", "write crop_param { offset: ... }")
    here, there = maps[0][common], maps[1][common]
    scale = there.scale / here.scale
    shift = there.shift - scale * here.shift
    if scale != 1 or shift > 0 or shift.denominator != 1:
        raise _wrong(
            layer,
            k,
            f"has a bottom 0 whose pixel x lies at {scale} x + {shift} of bottom 1",
            "give bottoms of one resolution, the first no smaller, or write crop_param { offset: ... }",
        )
    return -int(shift)


def _places(net: NetParameter, k: int, blob: str, axis: int) -> Iterator[tuple[str, _Place]]:
    """Yield the blobs from which a bottom of layer k is made, by first bottoms, and where its pixels lie in them.

    A version that an in-place layer makes has the name, and the places, of the first one.
    """
    place, seen = _Place(), {blob}
    yield blob, place
    while True:
        made = next((n for n in range(k) if blob in net.layer[n].top and blob not in net.layer[n].bottom), None)
        if made is None or not net.layer[made].bottom:
            return
        step = _step(net.layer[made], axis)
        if step is None:
            return
        place, blob = place.then(step), net.layer[made].bottom[0]
        if blob in seen:
            return
        seen.add(blob)
        yield blob, place


def _step(layer: LayerParameter, axis: int) -> _Place | None:
    """Return where pixels of a layer's top lie in its bottom; None for a type that does not say."""
    if layer.type in _SAME:
        return _Place()
    if layer.type == "Crop":
        offsets = list(layer.crop_param.offset) or [0]
        return _Place(Fraction(1), Fraction(-offsets[min(axis, len(offsets) - 1)]))
    if layer.type in ("Convolution", "Deconvolution", "Im2col"):
        kernel, stride, pad = (_size(layer.convolution_param, what, axis) for what in ("kernel", "stride", "pad"))
        dilation = list(layer.convolution_param.dilation) or [1]
        kernel = (kernel - 1) * dilation[min(axis, len(dilation) - 1)] + 1
    elif layer.type == "Pooling" and not layer.pooling_param.global_pooling:
        kernel, stride, pad = (_size(layer.pooling_param, what, axis) for what in ("kernel", "stride", "pad"))
    else:
        return None
    middle = Fraction(kernel - 1, 2)
    if layer.type == "Deconvolution":
        return _Place(Fraction(stride), middle - pad)
    return _Place(Fraction(1, stride), (pad - middle) / stride)


def _size(param: Any, what: str, axis: int) -> int:
    """Return the kernel, stride or pad of an axis."""
    side = f"{what}_{'hw'[axis]}"
    if param.HasField(side):
        return int(getattr(param, side))
    given = getattr(param, "kernel_size" if what == "kernel" else what)
    values = list(given) if hasattr(given, "extend") else [given]
    return int(values[min(axis, len(values) - 1)]) if values else int(what == "stride")


def _wrong(layer: LayerParameter, k: int, what: str, fix: str) -> UpgradeError:
    return UpgradeError(f"finds its offset by itself, but {what}", source=k, layer=layer.name or None, fix=fix)
