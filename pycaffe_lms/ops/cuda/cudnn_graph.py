"""What cuDNN's frontend is told of a convolution: one graph per direction, with every size and stride stated."""

from __future__ import annotations

import itertools
from math import prod
from typing import NamedTuple

from ..geometry import ConvGeometry

DIRECTIONS = ("forward", "backward_data", "backward_filter")
FIRST, SECOND, RESULT, BIAS = 1, 2, 3, 4  # names of the two inputs, the output and the bias within every graph


class Fused(NamedTuple):
    """What follows the forward convolution in the same graph."""

    bias: bool = False
    relu: bool = False


def describe(frontend, g: ConvGeometry, direction: str, fused: Fused, handle):
    """The frontend's graph. That a weight has fewer channels than x is how it learns of groups."""
    kind = frontend.data_type.FLOAT
    graph = frontend.pygraph(
        io_data_type=kind, intermediate_data_type=kind, compute_data_type=kind, handle=handle, name=direction
    )
    first, second, result = _dims(g, direction)
    steps = {"padding": list(g.pad), "stride": list(g.stride), "dilation": list(g.dilation)}

    def tensor(name, dims, uid):
        return graph.tensor(name=name, dim=dims, stride=strides(dims, g.channels_last), data_type=kind, uid=uid)

    def sized(out):
        # set, never inferred: strides lose the input's size, groups its channels, and the default layout is NHWC
        return out.set_data_type(kind).set_dim(result).set_stride(strides(result, g.channels_last))

    if direction == "forward":
        out = graph.conv_fprop(image=tensor("x", first, FIRST), weight=tensor("w", second, SECOND), **steps)
        if fused.bias:
            out = graph.bias(input=sized(out), bias=tensor("b", [1, g.out_channels, *(1 for _ in g.kernel)], BIAS))
        if fused.relu:
            out = graph.relu(input=sized(out))
    elif direction == "backward_data":
        out = graph.conv_dgrad(loss=tensor("dy", first, FIRST), filter=tensor("w", second, SECOND), **steps)
    else:
        out = graph.conv_wgrad(image=tensor("x", first, FIRST), loss=tensor("dy", second, SECOND), **steps)
    sized(out).set_output(True).set_uid(RESULT)
    return graph


def elements(g: ConvGeometry, direction: str) -> tuple[int, int, int]:
    """Elements of the two inputs and of the output."""
    return tuple(prod(dims) for dims in _dims(g, direction))


def strides(dims: list[int], channels_last: bool) -> list[int]:
    """Elements between neighbours along each axis of a contiguous array with these axes, the second one innermost if
    channels_last."""
    order = [0, *range(2, len(dims)), 1] if channels_last else range(len(dims))
    sizes = [dims[axis] for axis in order]
    steps = list(itertools.accumulate(sizes[:0:-1], lambda a, b: a * b, initial=1))[::-1]
    return [step for _, step in sorted(zip(order, steps, strict=True))]


def _dims(g: ConvGeometry, direction: str) -> tuple[list[int], list[int], list[int]]:
    x = [g.batch, g.channels, *g.in_spatial]
    w = [g.out_channels, g.group_channels, *g.kernel]
    y = [g.batch, g.out_channels, *g.out_spatial]
    return {"forward": (x, w, y), "backward_data": (y, w, x), "backward_filter": (x, y, w)}[direction]
