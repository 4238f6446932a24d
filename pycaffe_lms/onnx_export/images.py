"""Convert layers for resizing and unpooling, and constants."""

from __future__ import annotations

import numpy as np

from .site import Precision, Site, converts

_FAMILY = "vision"


@converts("Interp", family=_FAMILY, ops="Slice Resize Shape Concat")
def interp(site: Site) -> str:
    layer, x = site.layer, site.x
    if layer.size != layer.full:
        ends = [layer.start + size for size in layer.size]
        x = site.op("Slice", x, site.const([layer.start] * 2), site.const(ends), site.const([2, 3]))
    if site.follows_batch(0):
        first = site.op("Slice", site.op("Shape", x), site.const([0]), site.const([2]), site.const([0]))
        sizes = site.op("Concat", first, site.const(layer.out), axis=0)
    else:
        sizes = site.const(site.top_shapes[0])
    return site.resize(x, sizes=sizes, mode="linear", coordinate_transformation_mode="align_corners")


@converts(
    "Upsample",
    family=_FAMILY,
    ops="Resize Cast Reshape Less Greater And Where Shape Concat Slice Expand ScatterElements",
    note="with a mask: where several values go to one place, which one stays is the runtime's choice",
    precision=Precision.SINGLE,
)
def upsample(site: Site) -> str:
    if not site.layer.masked:
        scales = [1, 1, *site.layer.scale]
        return site.resize(
            site.x, scales=scales, mode="nearest", coordinate_transformation_mode="asymmetric", nearest_mode="floor"
        )
    size = int(np.prod(site.top_shapes[0][2:]))
    values, places = (site.reshape(x, (0, 0, -1)) for x in site.bottoms)
    places = site.cast(places, np.int64)
    inside = site.op("And", site.op("Greater", places, site.const(-1)), site.op("Less", places, site.const(size)))
    places = site.op("Where", inside, places, site.const(size))  # an extra place for values that are dropped
    first = site.op("Slice", site.op("Shape", values), site.const([0]), site.const([2]), site.const([0]))
    empty = site.op("Expand", site.number(0), site.op("Concat", first, site.const([size + 1]), axis=0))
    filled = site.op("ScatterElements", empty, places, values, axis=2)
    planes = site.op("Slice", filled, site.const([0]), site.const([size]), site.const([2]))
    return site.reshape(planes, (0, 0, *site.top_shapes[0][2:]))


@converts(
    "PriorBox",
    "DummyData",
    family="data",
    ops="Identity",
    note="a constant; DummyData with constant fillers only",
    precision=Precision.SINGLE,
)
def constants(site: Site) -> list[str]:
    tops = []
    for i, shape in enumerate(site.top_shapes):
        if site.layer.rewrites(i):
            site.refuse("makes random values", "use a constant filler, or an Input layer")
        array = np.empty(shape, site.dtype)
        site.layer.fill_once(i, array)
        tops.append(site.const(array, site.dtype))
    return tops
