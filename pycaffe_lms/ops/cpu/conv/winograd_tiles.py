"""Transform tiles for Winograd on the CPU: between planes of positions and arrays (point, tile, channel).

A transform multiplies tiles of 16 channels at once by a small matrix from both sides. Its instructions are written out
for vectors of 16 numbers with the matrix's values as constants, since loops over so few values would not become
vectors. The matrices stand in this file because the disk cache of compiled kernels looks at one file (see
`cpu/compiled.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from math import prod
from typing import Any

import numpy as np
from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from ....arrays import HostArray
from ...geometry import Ints
from ...winograd_plan import LANES
from ..compiled import kernel
from ..threads import parallel

_POINTS = (0.0, 0.75, -0.75, 1.5, -1.5)  # and infinity; small whole numbers err four times as much
_SIZES = ((4, 3),)  # (outputs of a tile, kernel)
_WAYS = ("inputs", "outputs", "outputs_back", "weights", "weights_turned", "weights_back")


@cache
def matrices(outputs: int, size: int) -> dict[str, HostArray]:
    """Return the matrices of a one-dimensional correlation y = outputs ((weights w) * (inputs x)) and its gradients.

    They follow from the product of polynomials of Toom and Cook, transposed.
    """
    points = _POINTS[: outputs + size - 2]
    at = np.array([[p**i for p in points] + [float(i == outputs - 1)] for i in range(outputs)])
    gains, inputs = [], []
    for p in points:
        others = [q for q in points if q != p]
        gains.append([p**i / prod(p - q for q in others) for i in range(size)])
        inputs.append([*np.poly(others)[::-1], 0.0])
    gains = np.array([*gains, [0.0] * (size - 1) + [1.0]])
    inputs = np.array([*inputs, np.poly(points)[::-1]])
    return {
        "inputs": inputs,
        "outputs": at,
        "outputs_back": at.T,
        "weights": gains,
        "weights_turned": gains[:, ::-1],
        "weights_back": gains.T,
    }


def transform(
    way: str, outputs: int, size: int, x: HostArray, spatial: Ints, pad: Ints, tiles: Ints, values: HostArray
) -> None:
    """Transform tiles of x (images, channels, positions) to values (points, images * tiles, channels).

    The first tile begins at -pad; tiles overlap as the inputs of neighbouring outputs do; x counts as 0 outside.
    """
    tag, (points, taps) = _tag(way, outputs, size)
    step = outputs if way == "inputs" else taps
    units = len(x) * (x.shape[1] // LANES)
    parallel(_transform, units, x, spatial, pad, tiles, step, points, taps, values, tag)


def restore(
    way: str, outputs: int, size: int, values: HostArray, y: HostArray, spatial: Ints, tiles: Ints, accumulate: bool
) -> None:
    """Transform values (points, images * tiles, channels) to y (images, channels, positions); add if `accumulate`."""
    tag, (step, points) = _tag(way, outputs, size)
    units = len(y) * (y.shape[1] // LANES)
    parallel(_restore, units, values, y, spatial, tiles, step, points, accumulate, tag)


def _tag(way: str, outputs: int, size: int) -> tuple[Ints, tuple[int, int]]:
    """Return (a tuple whose length, part of its type, tells the compiler which matrix is meant; the matrix's shape)."""
    number = _SIZES.index((outputs, size)) * len(_WAYS) + _WAYS.index(way)
    return (0,) * (number + 1), matrices(outputs, size)[way].shape


@intrinsic
def _tile(
    typingctx: Any,
    source: Any,
    source_at: Any,
    source_row: Any,
    source_column: Any,
    target: Any,
    target_at: Any,
    target_row: Any,
    target_column: Any,
    tag: Any,
) -> tuple[Any, Callable[..., Any]]:
    """Compute target = M source M' of LANES numbers side by side at every place; places are counted in numbers."""
    number = tag.count - 1
    matrix = matrices(*_SIZES[number // len(_WAYS)])[_WAYS[number % len(_WAYS)]]
    signature = types.void(source, *[types.intp] * 3, target, *[types.intp] * 3, tag)

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        value = context.get_value_type(source.dtype)
        vector = ir.VectorType(value, LANES)
        align = source.dtype.bitwidth // 8

        def place(array_type: Any, array: Any, at: Any, row: Any, column: Any, i: int, j: int) -> Any:
            data = context.make_array(array_type)(context, builder, array).data
            index = builder.add(at, builder.add(_times(builder, row, i), _times(builder, column, j)))
            return builder.bitcast(builder.gep(data, [index]), vector.as_pointer())

        def combine(factors: HostArray, values: Sequence[Any]) -> Any:
            total = None
            for factor, v in zip(factors, values, strict=True):
                if factor == 0:
                    continue
                term = v
                if abs(factor) != 1:
                    term = builder.fmul(v, ir.Constant(vector, [abs(float(factor))] * LANES), flags=("contract",))
                if total is None:
                    total = term if factor > 0 else builder.fsub(ir.Constant(vector, [-0.0] * LANES), term)
                else:
                    total = (builder.fadd if factor > 0 else builder.fsub)(total, term, flags=("contract",))
            return total

        outs, taps = matrix.shape
        columns = []
        for j in range(taps):
            loaded = [builder.load(place(source, *args[:4], i, j), align=align) for i in range(taps)]
            columns.append([combine(matrix[i], loaded) for i in range(outs)])
        for i in range(outs):
            for j in range(outs):
                result = combine(matrix[j], [columns[k][i] for k in range(taps)])
                builder.store(result, place(target, *args[4:8], i, j), align=align)
        return context.get_dummy_value()

    return signature, codegen


def _times(builder: Any, value: Any, factor: int) -> Any:
    return builder.mul(value, ir.Constant(value.type, factor))


@kernel
def _transform(
    first: int,
    last: int,
    x: HostArray,
    spatial: Ints,
    pad: Ints,
    tiles: Ints,
    step: int,
    points: int,
    taps: int,
    values: HostArray,
    tag: Ints,
) -> None:
    height, width = spatial
    images, channels, _ = x.shape
    span = (tiles[1] - 1) * step + taps  # positions of a row of tiles
    line = span * LANES
    rows = np.zeros(taps * line, x.dtype)  # (tap, position, channel)
    begin, end = min(pad[1], span), min(width + pad[1], span)
    blocks = channels // LANES
    plane = values.strides[0] // values.itemsize
    for unit in range(first, last):
        n, c0 = unit // blocks, unit % blocks * LANES
        for tile_row in range(tiles[0]):
            for k in range(taps):
                if tile_row and k + step < taps:
                    for i in range(line):
                        rows[k * line + i] = rows[(k + step) * line + i]
                    continue
                at = tile_row * step - pad[0] + k
                if at < 0 or at >= height:
                    rows[k * line : (k + 1) * line] = 0
                    continue
                for c in range(LANES):
                    for j in range(begin, end):
                        rows[k * line + j * LANES + c] = x[n, c0 + c, at * width + j - pad[1]]
                rows[k * line : k * line + begin * LANES] = 0
                rows[k * line + end * LANES : (k + 1) * line] = 0
            for t in range(tiles[1]):
                tile = (n * tiles[0] + tile_row) * tiles[1] + t
                to = tile * channels + c0
                _tile(rows, t * step * LANES, line, LANES, values, to, points * plane, plane, tag)


@kernel
def _restore(
    first: int,
    last: int,
    values: HostArray,
    y: HostArray,
    spatial: Ints,
    tiles: Ints,
    step: int,
    points: int,
    accumulate: bool,
    tag: Ints,
) -> None:
    height, width = spatial
    images, channels, _ = y.shape
    line = tiles[1] * step * LANES
    rows = np.zeros(step * line, y.dtype)
    blocks = channels // LANES
    plane = values.strides[0] // values.itemsize
    for unit in range(first, last):
        n, c0 = unit // blocks, unit % blocks * LANES
        for tile_row in range(tiles[0]):
            for t in range(tiles[1]):
                tile = (n * tiles[0] + tile_row) * tiles[1] + t
                at = tile * channels + c0
                _tile(values, at, points * plane, plane, rows, t * step * LANES, line, LANES, tag)
            for k in range(min(step, height - tile_row * step)):
                to = (tile_row * step + k) * width
                for c in range(LANES):
                    if accumulate:
                        for j in range(width):
                            y[n, c0 + c, to + j] += rows[k * line + j * LANES + c]
                    else:
                        for j in range(width):
                            y[n, c0 + c, to + j] = rows[k * line + j * LANES + c]
