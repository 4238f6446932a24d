"""What cuDNN's frontend is told of a convolution: one graph per direction, with every size and stride stated."""

from __future__ import annotations

import itertools
from math import prod
from typing import Any, NamedTuple

from ...geometry import ConvGeometry

DIRECTIONS = ("forward", "backward_data", "backward_filter")
FIRST, SECOND, RESULT, BIAS = 1, 2, 3, 4  # names of the two inputs, the output and the bias within every graph


class Fused(NamedTuple):
    """What follows the forward convolution in the same graph."""

    bias: bool = False
    relu: bool = False


class Types(NamedTuple):
    """half: images and weights are bfloat16; sums, and a bias, are float32 all the same. narrow: so is the result of a
    filter's gradient, which is float32 else."""

    half: bool = False
    narrow: bool = False


def describe(frontend: Any, g: ConvGeometry, direction: str, fused: Fused, types: Types, handle: Any) -> Any:
    """The frontend's graph. That a weight has fewer channels than x is how it learns of groups."""
    wide = frontend.data_type.FLOAT
    kind = frontend.data_type.BFLOAT16 if types.half else wide
    made = wide if direction == "backward_filter" and not types.narrow else kind
    graph = frontend.pygraph(
        io_data_type=kind, intermediate_data_type=wide, compute_data_type=wide, handle=handle, name=direction
    )
    first, second, result = _dims(g, direction)
    steps = {"padding": list(g.pad), "stride": list(g.stride), "dilation": list(g.dilation)}

    def tensor(name: str, dims: list[int], uid: int, of: Any = kind) -> Any:
        return graph.tensor(name=name, dim=dims, stride=strides(dims, g.channels_last), data_type=of, uid=uid)

    def sized(out: Any, of: Any = wide) -> Any:
        # set, never inferred: strides lose the input's size, groups its channels, and the default layout is NHWC
        return out.set_data_type(of).set_dim(result).set_stride(strides(result, g.channels_last))

    if direction == "forward":
        out = graph.conv_fprop(image=tensor("x", first, FIRST), weight=tensor("w", second, SECOND), **steps)
        if fused.bias:
            bias = tensor("b", [1, g.out_channels, *(1 for _ in g.kernel)], BIAS, wide)
            out = graph.bias(input=sized(out), bias=bias)
        if fused.relu:
            out = graph.relu(input=sized(out))
    elif direction == "backward_data":
        out = graph.conv_dgrad(loss=tensor("dy", first, FIRST), filter=tensor("w", second, SECOND), **steps)
    else:
        out = graph.conv_wgrad(image=tensor("x", first, FIRST), loss=tensor("dy", second, SECOND), **steps)
    sized(out, made).set_output(True).set_uid(RESULT)
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
