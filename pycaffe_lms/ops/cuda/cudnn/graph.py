"""Describe a convolution to cuDNN's frontend: one graph per direction, with every size and stride stated."""

from __future__ import annotations

import itertools
from math import prod
from typing import Any, NamedTuple

from ...geometry import ConvGeometry

DIRECTIONS = ("forward", "backward_data", "backward_filter")
FIRST, SECOND, RESULT, BIAS = 1, 2, 3, 4  # names of the two inputs, the output and the bias within every graph


class Fused(NamedTuple):
    """Say what follows the forward convolution in the same graph."""

    bias: bool = False
    relu: bool = False


class Types(NamedTuple):
    """Say which tensors of a graph are bfloat16.

    `half`: images and weights are; sums and a bias stay float32. `narrow`: so is the gradient of the weights.
    """

    half: bool = False
    narrow: bool = False


def describe(frontend: Any, g: ConvGeometry, direction: str, fused: Fused, types: Types, handle: Any) -> Any:
    """Return the frontend's graph of one direction.

    The frontend learns of groups from a weight that has fewer channels than x.
    """
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
    """Return the numbers of elements of the two inputs and of the output."""
    return tuple(prod(dims) for dims in _dims(g, direction))


def strides(dims: list[int], channels_last: bool) -> list[int]:
    """Return the strides in elements of a contiguous array of `dims`; if `channels_last` the second is innermost."""
    order = [0, *range(2, len(dims)), 1] if channels_last else range(len(dims))
    sizes = [dims[axis] for axis in order]
    steps = list(itertools.accumulate(sizes[:0:-1], lambda a, b: a * b, initial=1))[::-1]
    return [step for _, step in sorted(zip(order, steps, strict=True))]


def _dims(g: ConvGeometry, direction: str) -> tuple[list[int], list[int], list[int]]:
    x = [g.batch, g.channels, *g.in_spatial]
    w = [g.out_channels, g.group_channels, *g.kernel]
    y = [g.batch, g.out_channels, *g.out_spatial]
    return {"forward": (x, w, y), "backward_data": (y, w, x), "backward_filter": (x, y, w)}[direction]
