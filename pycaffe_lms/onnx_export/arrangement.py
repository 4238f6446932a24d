"""Convert layers that rearrange, cut, join or repeat."""

from __future__ import annotations

import numpy as np

from .site import Precision, Site, converts

_FAMILY = "utility"


@converts("Input", family="data", ops="", note="becomes the graph's inputs")
def inputs(site: Site) -> None:
    raise AssertionError("`convert.py` makes inputs itself")


@converts(
    "Split", family=_FAMILY, ops="Identity", note="those that Caffe inserts by itself vanish", precision=Precision.GIVEN
)
def split(site: Site) -> list[str]:
    return [site.x] * len(site.top_shapes)


@converts("Silence", family=_FAMILY, ops="", note="vanishes", precision=Precision.GIVEN)
def silence(site: Site) -> None:
    return None


@converts("Concat", family=_FAMILY, ops="Concat Identity", precision=Precision.GIVEN)
def concat(site: Site) -> str:
    return site.op("Concat", *site.bottoms, axis=site.layer.axis) if len(site.bottoms) > 1 else site.x


@converts("Slice", family=_FAMILY, ops="Split Identity", precision=Precision.GIVEN)
def slices(site: Site) -> str | list[str]:
    n, axis = len(site.top_shapes), site.layer.axis
    if n == 1:
        return site.x
    return site.split(site.x, [shape[axis] for shape in site.top_shapes], axis)


@converts("Reverse", family=_FAMILY, ops="Slice")
def reverse(site: Site) -> str:
    axis = site.layer.canonical_axis(site.param.reverse_param.axis, len(site.shape))
    start, end, axes = site.const([-1]), site.const([-(1 << 62)]), site.const([axis])
    return site.op("Slice", site.x, start, end, axes, start)


@converts("Flatten", family=_FAMILY, ops="Flatten Reshape", precision=Precision.GIVEN)
def flatten(site: Site) -> str:
    ndim, options = len(site.shape), site.param.flatten_param
    start, end = (site.layer.canonical_axis(axis, ndim) for axis in (options.axis, options.end_axis))
    if start == 1 and end == ndim - 1:
        return site.op("Flatten", site.x, axis=1)
    return site.to_top(site.x, first_kept=start > 0)


@converts("Squeeze", family=_FAMILY, ops="Reshape", precision=Precision.GIVEN)
def squeeze(site: Site) -> str:
    return site.to_top(site.x, first_kept=bool(site.shape) and site.shape[:1] == site.top_shapes[0][:1])


@converts("Reshape", family=_FAMILY, ops="Reshape", precision=Precision.GIVEN)
def reshape(site: Site) -> str:
    top, bottom = site.top_shapes[0], site.shape
    kept = bool(top and bottom) and top[0] == bottom[0] and site.other_tops[0][0] == site.other_bottoms[0][0]
    return site.to_top(site.x, first_kept=kept)


@converts("Permute", family=_FAMILY, ops="Transpose Identity", precision=Precision.GIVEN)
def permute(site: Site) -> str:
    if not site.shape:
        return site.x
    return site.op("Transpose", site.x, perm=list(site.layer.axes))


@converts("ShuffleChannel", family=_FAMILY, ops="Reshape Transpose", precision=Precision.GIVEN)
def shuffle_channel(site: Site) -> str:
    _, channels, *sizes = site.shape
    group = site.layer.group
    x = site.reshape(site.x, (0, group, channels // group, *sizes))
    x = site.op("Transpose", x, perm=[0, 2, 1, *range(3, 3 + len(sizes))])
    return site.reshape(x, (0, channels, *sizes))


@converts("Reorg", family=_FAMILY, ops="Reshape Transpose", precision=Precision.GIVEN)
def reorg(site: Site) -> str:
    s, (_, c, h, w) = site.layer.stride, site.shape
    part = c // (s * s)
    if site.param.reorg_param.reverse:
        view, order = (0, s, s, part, h, w), [0, 3, 4, 1, 5, 2]
    else:
        view, order = (0, part, h, s, w, s), [0, 3, 5, 1, 2, 4]
    return site.to_top(site.op("Transpose", site.reshape(site.x, view), perm=order), first_kept=True)


@converts("Pad", family=_FAMILY, ops="Pad", precision=Precision.GIVEN)
def pad(site: Site) -> str:
    return site.op("Pad", site.x, site.const([*site.layer.starts, *site.layer.ends]))


@converts("Crop", family=_FAMILY, ops="Slice Identity", precision=Precision.GIVEN)
def crop(site: Site) -> str:
    layer, axis = site.layer, site.layer.canonical_axis(site.param.crop_param.axis, len(site.shape))
    cut = [
        (i, start, start + size)
        for i, (full, size, start) in enumerate(zip(*layer.shapes, strict=True))
        if i >= axis and (full != size or start)
    ]
    if not cut:
        return site.x
    axes, starts, ends = zip(*cut, strict=True)
    return site.op("Slice", site.x, site.const(starts), site.const(ends), site.const(axes))


@converts("Tile", family=_FAMILY, ops="Tile", precision=Precision.GIVEN)
def tile(site: Site) -> str:
    axis = site.layer.canonical_axis(site.param.tile_param.axis, len(site.shape))
    repeats = [site.layer.tiles if i == axis else 1 for i in range(len(site.shape))]
    return site.op("Tile", site.x, site.const(repeats))


@converts(
    "Filter",
    family=_FAMILY,
    ops="Reshape Cast Compress",
    note="the number of rows is known only after a run",
    precision=Precision.GIVEN,
)
def filter_rows(site: Site) -> list[str]:
    selector = site.reshape(site.bottoms[-1], (-1,)) if len(site.bottom_shapes[-1]) > 1 else site.bottoms[-1]
    chosen = site.cast(selector, np.bool_)
    return [site.op("Compress", x, chosen, axis=0) for x in site.bottoms[:-1]]


@converts("Eltwise", family="common", ops="Sum Mul Max")
def eltwise(site: Site) -> str:
    kind = site.param.eltwise_param.EltwiseOp.Name(site.layer.operation)
    if kind == "MAX":
        return site.op("Max", *site.bottoms)
    if kind == "PROD":
        y = site.x
        for other in site.bottoms[1:]:
            y = site.op("Mul", y, other)
        return y
    return site.op("Sum", *(site.affine(x, c, 0) for x, c in zip(site.bottoms, site.layer.coeff, strict=True)))


@converts("Reduction", family="common", ops="ReduceSum ReduceL1 ReduceSumSquare Mul", precision=Precision.SINGLE)
def reduction(site: Site) -> str:
    axis = site.layer.canonical_axis(site.param.reduction_param.axis, len(site.shape))
    op = {"SUM": "ReduceSum", "ASUM": "ReduceL1", "SUMSQ": "ReduceSumSquare"}[site.layer.kind]
    y = site.reduce(op, site.x, range(axis, len(site.shape)), keep=False)
    return site.affine(y, site.layer.coeff, 0)
