"""Define caffe.coord_map: map coordinates of a blob to another blob of a NetSpec, and crop one to the other.

    n.score = coord_map.crop(n.upscore, n.data)  # upscore cut to the part that covers data

A map is (axis, scale, shift): on the axes after `axis` a coordinate x becomes scale * x + shift. Layers that change no
coordinates have the axis None. Scale and shift are numbers or arrays, one value per spatial axis.
Layers whose outputs depend on more than a window (InnerProduct, Reshape, ...) have no map.
Source of the behaviour: BVLC/caffe, python/caffe/coord_map.py.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Mapping
from typing import Any

import numpy as np
from google.protobuf.message import Message

from .errors import GraphError, LayerParamError, Where
from .net_spec import Function, Top
from .net_spec import layers as L

Map = tuple[Any, Any, Any]
IDENTITY: Map = (None, 1, 0)

PASS_THROUGH_LAYERS = [
    *("AbsVal", "BatchNorm", "Bias", "BNLL", "Dropout", "Eltwise", "ELU", "Log", "LRN", "Exp", "MVN", "Power", "ReLU"),
    *("PReLU", "Scale", "Sigmoid", "Split", "TanH", "Threshold"),
]
_LEGACY = frozenset(f"{what}_{side}" for what in ("pad", "kernel", "stride") for side in "hw")


class UndefinedMapException(GraphError):
    """Signal a layer type that has no coordinate map."""


class AxisMismatchException(GraphError):
    """Signal two maps over different axes, which cannot be joined."""


class CropError(LayerParamError, AssertionError):
    """Signal blobs that no Crop aligns, or parameters without a map; it is an AssertionError too, as in pycaffe."""


def _fields(fn: Function, *messages: str) -> Mapping[str, Any]:
    """Return the parameters of a layer, from its message where that was given, else from its keywords."""
    given = next((fn.params[name] for name in messages if name in fn.params), fn.params)
    if isinstance(given, Message):
        return {f.name: list(v) if hasattr(v, "extend") else v for f, v in given.ListFields()}
    return given


def conv_params(fn: Function) -> tuple[int, np.ndarray, np.ndarray, np.ndarray]:
    """Return (axis, stride, kernel, pad) of a Convolution, Deconvolution, Pooling or Im2col; the kernel dilated.

    axis: the channel axis. Arrays have one value, or one per spatial axis.
    Raises: CropError for kernel_h, kernel_w and their like; LayerParamError without kernel_size.
    """
    fields = _fields(fn, "convolution_param", "pooling_param")
    legacy = sorted(_LEGACY & {*fn.params, *fields})
    if legacy:
        raise CropError(
            f"cropping does not support legacy _h/_w params: {', '.join(legacy)}",
            where=Where(type=fn.type_name, layer=f"L.{fn.type_name}"),
            fix="write kernel_size, stride and pad, as lists where height and width differ",
        )
    if "kernel_size" not in fields:
        raise LayerParamError(
            "there is no kernel_size, so coordinates have no map", where=Where(layer=f"L.{fn.type_name}")
        )
    kernel, dilation, stride, pad = (
        np.array(fields.get(name, default), ndmin=1)
        for name, default in (("kernel_size", None), ("dilation", 1), ("stride", 1), ("pad", 0))
    )
    return fields.get("axis", 1), stride, (kernel - 1) * dilation + 1, pad


def crop_params(fn: Function) -> tuple[int, np.ndarray]:
    """Return (axis, offset) of a Crop layer; the axis is the first one that it crops."""
    fields = _fields(fn, "crop_param")
    return fields.get("axis", 2), np.array(fields.get("offset", 0), ndmin=1)


def coord_map(fn: Function) -> Map:
    """Return the map from a layer's top to its bottom's coordinates; for example, stride 2 has the scale 1/2.

    axis is the last axis before the spatial ones. Raises: UndefinedMapException for a type that has none.
    """
    if fn.type_name in ("Convolution", "Pooling", "Im2col"):
        axis, stride, kernel, pad = conv_params(fn)
        return axis, 1 / stride, (pad - (kernel - 1) / 2) / stride
    if fn.type_name == "Deconvolution":
        axis, stride, kernel, pad = conv_params(fn)
        return axis, stride, (kernel - 1) / 2 - pad
    if fn.type_name in PASS_THROUGH_LAYERS:
        return IDENTITY
    if fn.type_name == "Crop":
        axis, offset = crop_params(fn)
        return axis - 1, 1, -offset
    raise UndefinedMapException(f"layers of type {fn.type_name} have no coordinate map")


def compose(base_map: Map, next_map: Map) -> Map:
    """Return the map `next_map` followed by `base_map`. Raises: AxisMismatchException where their axes differ."""
    axis, scale, shift = base_map
    next_axis, next_scale, next_shift = next_map
    if None not in (axis, next_axis) and axis != next_axis:
        raise AxisMismatchException(f"a map over axis {axis} does not join one over axis {next_axis}")
    return next_axis if axis is None else axis, scale * next_scale, scale * next_shift + shift


def inverse(coord_map: Map) -> Map:
    """Return the inverse of a map."""
    axis, scale, shift = coord_map
    return axis, 1 / scale, -shift / scale


def coord_map_from_to(top_from: Top, top_to: Top) -> Map:
    """Return the map between two tops that have a common ancestor, through layers with maps.

    All paths to an ancestor are taken to have the same map, as in a net whose sums and concatenations fit. A path on
    which a layer gives the axis (a residual block's convolutions) is preferred to one without (its shortcut).
    Raises: GraphError (a RuntimeError) where there is no common ancestor; AxisMismatchException.
    """
    for top in (top_from, top_to):
        if not isinstance(top, Top):
            raise TypeError(f"{top!r} is no Top (type is {type(top)}): give what L.Convolution and its like return")
    from_maps = _ancestors(top_from)
    to_maps = _ancestors(top_to, until=from_maps)
    found = None
    for top in (t for t in to_maps if t in from_maps):
        joined = compose(to_maps[top], inverse(from_maps[top]))
        if joined[0] is not None:
            return joined
        found = found or joined
    if found is None:
        raise GraphError("Could not compute map between tops; are they connected by spatial layers?")
    return found


def _ancestors(top: Top, until: Collection[Top] = ()) -> dict[Top, Map]:
    """Return the maps of `top` and its ancestors, nearest first, as far as layers have maps, and not beyond `until`.

    Of several paths to a top the shortest counts, but one with an axis before those without.
    """
    maps, waiting = {top: IDENTITY}, deque([top])
    while waiting:
        top = waiting.popleft()
        if top in until:
            continue
        # The second bottom of a Crop gives only its size, no pixels.
        bottoms = top.fn.inputs[:1] if top.fn.type_name == "Crop" else top.fn.inputs
        if not bottoms:
            continue
        try:
            step = coord_map(top.fn)
        except UndefinedMapException:
            continue
        for bottom in bottoms:
            if bottom not in maps or maps[bottom][0] is None:
                found = compose(maps[top], step)
                if bottom not in maps or found[0] is not None:
                    maps[bottom] = found
                    waiting.append(bottom)
    return maps


def crop(top_from: Top, top_to: Top) -> Top:
    """Return a Crop layer that cuts `top_from` to the part that covers `top_to`.

    Raises: CropError (an AssertionError) where they differ in scale, `top_from` would have to grow, or the offset is no
    whole number of pixels; and as `coord_map_from_to`.
    """
    axis, scale, shift = coord_map_from_to(top_from, top_to)
    scale, shift = np.array(scale, ndmin=1), np.array(shift, ndmin=1)
    if not (scale == 1).all():
        raise CropError(f"scale mismatch on crop (a = {scale})", fix="crop tops of the same resolution")
    if not (shift <= 0).all():
        raise CropError(f"cannot crop negative offset (b = {shift})", fix="pad the first convolution more")
    if not (np.round(shift) == shift).all():
        raise CropError(f"cannot crop noninteger offset (b = {shift})", fix="change a pad or a kernel_size by one")
    axis = 1 if axis is None else axis  # no layer between them changes coordinates: the channel axis will do
    cut: Top = L.Crop(top_from, top_to, crop_param={"axis": axis + 1, "offset": [int(-s) for s in shift]})
    return cut
