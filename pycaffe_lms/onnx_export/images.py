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


@converts("DeephiResize", family=_FAMILY, ops="Resize Shape Slice Concat")
def deephi_resize(site: Site) -> str:
    resize = site.layer.resize
    if site.follows_batch(0):
        first = site.op("Slice", site.op("Shape", site.x), site.const([0]), site.const([2]), site.const([0]))
        sizes = site.op("Concat", first, site.const(resize.out), axis=0)
    else:
        sizes = site.const(site.top_shapes[0])
    if resize.nearest:
        return site.resize(
            site.x, sizes=sizes, mode="nearest", coordinate_transformation_mode="asymmetric", nearest_mode="floor"
        )
    return site.resize(site.x, sizes=sizes, mode="linear", coordinate_transformation_mode="half_pixel")


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
    "ContinuationIndicator",
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


@converts(
    "SpatialTransformer",
    family="vision",
    ops="Reshape MatMul Add Transpose GridSample",
    note="from opset 16 on; ONNX's AffineGrid has other places",
)
def spatial_transformer(site: Site) -> str:
    if site.opset < 16:
        site.refuse("needs GridSample, which opset 16 brought", "export with opset 16 or newer")
    affinity, (*_, height, width), (*_, oh, ow) = np.array(site.layer.affinity), site.shape, site.top_shapes[0]
    own = np.flatnonzero(np.isnan(affinity))
    if not own.size:
        site.refuse("has constants only, and no number of theta", "leave one of the constants out of st_param")
    columns_first = [3, 4, 5, 0, 1, 2]  # ONNX's order
    choice = np.zeros((own.size, 6))
    choice[range(own.size), own] = 1
    theta = site.op("Reshape", site.bottoms[1], site.const([-1, own.size]))
    numbers = site.op("MatMul", theta, site.const(choice[:, columns_first], site.dtype))
    numbers = site.op("Add", numbers, site.const(np.nan_to_num(affinity)[columns_first], site.dtype))
    rows, columns = np.meshgrid(np.arange(oh) * 2 / oh - 1, np.arange(ow) * 2 / ow - 1, indexing="ij")
    grid = np.stack([rows.reshape(-1), columns.reshape(-1), np.ones(oh * ow)])
    places = site.op("MatMul", site.op("Reshape", numbers, site.const([-1, 2, 3])), site.const(grid, site.dtype))
    half = site.const([1 / width, 1 / height], site.dtype)  # of a pixel, which ONNX takes off
    places = site.op("Add", site.op("Transpose", places, perm=[0, 2, 1]), half)
    places = site.op("Reshape", places, site.const([-1, oh, ow, 2]))
    return site.op("GridSample", site.x, places, mode="bilinear" if site.opset < 20 else "linear")


@converts(
    "FlowWarp",
    "Warp",
    family="vision",
    ops="Transpose Add Mul GridSample Less LessOrEqual And Unsqueeze Where ReduceMin Cast",
    note="from opset 16 on; places that lie on a border to rounding may fall on the other side",
    precision=Precision.SINGLE,
)
def flow_warp(site: Site) -> str:
    if site.opset < 16:
        site.refuse("needs GridSample, which opset 16 brought", "export with opset 16 or newer")
    how, (*_, height, width) = site.layer.how, site.shape
    rows, columns = np.meshgrid(np.arange(height), np.arange(width), indexing="ij")
    places = site.op("Transpose", site.bottoms[1], perm=[0, 2, 3, 1])
    places = site.op("Add", places, site.const(np.stack([columns, rows], axis=-1), site.dtype))
    ends = site.const(np.array([width, height]) - int(how.whole_pixels), site.dtype)
    before = site.op("LessOrEqual", site.const([0, 0], site.dtype), places)
    inside = site.op("And", before, site.op("LessOrEqual" if how.whole_pixels else "Less", places, ends))
    inside = site.cast(site.reduce("ReduceMin", site.cast(inside, np.float32), [3], keep=False), np.bool_)
    size = np.array([width, height])
    places = site.op("Mul", places, site.const(2 / size, site.dtype))
    places = site.op("Add", places, site.const(1 / size - 1, site.dtype))  # ONNX's places are the middles of pixels
    mode = "bilinear" if site.opset < 20 else "linear"
    sampled = site.op("GridSample", site.x, places, mode=mode, padding_mode="border")
    return site.op("Where", site.unsqueeze(inside, [1]), sampled, site.number(how.fill))
