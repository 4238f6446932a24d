"""Convolve depthwise on a GPU: direct kernels, without columns or products of matrices.

Arrays are those of `conv.py`, with one channel per group, in either memory order; for bfloat16 images weights and their
gradient are float32. Kernels are compiled for all sizes but the batch's. A thread works on a strip of rows in one
column, so that a row it has read serves several outputs, and with channels last on neighbouring channels. Every sum has
a fixed order: the weights' gradient is added up in parts whose number follows from the shapes, by a tree within each.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import DTypeLike

from ....arrays import AnyArray
from ....backend import cuda
from ...geometry import ConvGeometry, Ints
from ..packs import aligned
from .depthwise_source import ADD_PARTS, SOURCE

__all__ = ["depthwise_backward_data", "depthwise_backward_filter", "depthwise_forward", "depthwise_plan"]

BLOCK = 256
_UNROLLED = 49  # taps up to which a thread holds all their sums
_BLOCKS = 2048  # blocks that fill any GPU
_EACH = 1 << 10, 1 << 16  # strips of one part and 256 threads: at least (while there are blocks enough), at most
_ACROSS = 32  # channels of a block, where they are last
_SUMS = 50  # sums of the weights' gradient that a thread holds
_VECTOR_BYTES, _FILTER_VECTOR_BYTES = 8, 16  # of the widest load of one thread
# Rows of inputs and outputs that a thread holds for a 3x3 kernel, with channels first and last; for the weights'
# gradient too. More save loads, fewer leave registers for more threads: these were fastest on an H200.
_ROWS, _FILTER_ROWS = (26, 10), (18, 10)
_FILTER_HELD = 24  # values of those rows
_HELD = 40  # values that a thread holds, if it is to work on more than one channel
_REGISTERS = 256  # of a multiprocessor for each thread of a block
_SPARE = 20  # registers that a thread needs beside the values it holds
_THREADS = 1 << 16  # threads from which longer strips do not leave parts of a GPU idle


@dataclass(frozen=True, slots=True)
class CudaDepthwisePlan:
    """Hold how the kernels cut the work, and the numbers in front of their source.

    A thread takes `strip` output rows, or `band` input rows, of `vector` channels; `lanes` threads of a block stand
    side by side along channels. For the weights' gradient these are `filter_strip`, `filter_vector`, `filter_lanes`; it
    is summed in `parts` of `each` strips (the last is shorter), taps that a thread cannot hold in `splits` blocks.
    """

    geometry: ConvGeometry
    vector: int
    lanes: int
    strip: int
    band: int
    filter_vector: int
    filter_lanes: int
    filter_strip: int
    splits: int
    parts: int
    each: int
    workspace_bytes: int


def depthwise_plan(
    geometry: ConvGeometry, dtype: DTypeLike, workspace_limit: int, half: bool = False
) -> CudaDepthwisePlan:
    """Plan how the kernels cut a convolution whose `geometry.depthwise` is true. half: images are bfloat16."""
    g = geometry.with_axes(3)
    kernel, stride, reach = g.kernel[1], g.stride[1], g.dilation[1] * (g.kernel[1] - 1)
    columns = g.kernel[0] * g.kernel[2]
    splits = 1 if g.rows <= _UNROLLED else columns
    sums = columns * kernel if splits == 1 else kernel
    itemsize = 2 if half else np.dtype(dtype).itemsize
    vector = _vector(g, _VECTOR_BYTES // itemsize, reach + 2, 0)
    filter_vector = _vector(g, _FILTER_VECTOR_BYTES // itemsize, reach + 2, sums)
    lanes = _lanes(g, vector, _ACROSS)
    filter_lanes = _lanes(g, filter_vector, _ACROSS if sums <= 24 else 8)  # their sums fit into shared memory

    def rows(strip: int) -> int:  # input rows that a strip of outputs reads
        return (strip - 1) * stride + reach + 1

    outputs = g.batch * g.out_channels * g.out_spatial[0] * g.out_spatial[2]
    inputs = g.batch * g.channels * g.in_spatial[0] * g.in_spatial[2]
    more = 2 * max(0, reach - 2)  # larger kernels: so that rows still serve several outputs
    most, filter_most = _ROWS[g.channels_last] + more, _FILTER_ROWS[g.channels_last]
    filter_most = min(filter_most, _FILTER_HELD // filter_vector) + more
    strip = _strip(g.out_spatial[1], 1, rows, columns, most, outputs // vector)
    filter_strip = _strip(g.out_spatial[1], 1, rows, columns, filter_most, 1 << 62)
    band = _strip(g.in_spatial[1], stride, functools.partial(_band_rows, g), columns, most, inputs // vector)

    strips = g.batch * g.out_spatial[0] * -(-g.out_spatial[1] // filter_strip) * g.out_spatial[2]
    least, most = (max(1, n // filter_lanes) for n in _EACH)
    groups = splits * (-(-g.out_channels // (filter_vector * filter_lanes)) if g.channels_last else g.out_channels)
    parts = max(min(strips // least, _BLOCKS // groups), -(-strips // most), min(strips, 1))
    each = -(-strips // max(parts, 1))
    size = parts * g.out_channels * g.rows * np.dtype(dtype).itemsize
    cut = vector, lanes, strip, band, filter_vector, filter_lanes, filter_strip, splits, parts, each
    return CudaDepthwisePlan(geometry, *cut, size)


def _vector(g: ConvGeometry, widest: int, rows: int, sums: int) -> int:
    """Return how many neighbouring channels a thread works on, if it holds at least so many values of each."""
    if not g.channels_last or g.group_outputs > 1:
        return 1
    return next(
        (v for v in (4, 2) if v <= widest and g.channels % v == 0 and v * rows <= _HELD and v * sums <= _SUMS), 1
    )


def _lanes(g: ConvGeometry, vector: int, across: int) -> int:
    """Return how many threads stand side by side along channels: a power of two, at most a warp's."""
    if not g.channels_last:
        return 1
    needed = 1 << (-(-g.out_channels // vector) - 1).bit_length()
    return min(needed, across // vector)


def _strip(size: int, step: int, rows: Callable[[int], int], columns: int, most: int, threads: int) -> int:
    """Return of how many rows, a multiple of `step`, a strip is to be so that a thread reads least.

    Args:
        size: rows to be cut into strips.
        rows: how many rows of the other array a strip reads.
        columns: how often they are read.
        most: rows of both arrays that a thread can hold.
        threads: threads if a strip were the whole size.
    """
    can = [s for k in range(1, 9) if (s := k * step) < size + step and (s + rows(s) <= most or k == 1)]
    full = [s for s in can if threads * -(-size // s) >= _THREADS]
    return min(full or can[:1] or [step], key=lambda s: (-(-size // s) * (columns * rows(s) + s), -s))


def _low(g: ConvGeometry) -> int:
    """Return the output row of a band's first value, counted from the band's first row; see `BACKWARD_DATA`."""
    return (g.pad[1] - g.dilation[1] * (g.kernel[1] - 1)) // g.stride[1]


def _band_rows(g: ConvGeometry, band: int) -> int:
    """Return how many output rows a band of input rows reads."""
    return (band - 1 + g.pad[1]) // g.stride[1] - _low(g) + 1


def _resident(g: ConvGeometry, values: int) -> int:
    """Return how many blocks a multiprocessor is to hold at once, where a thread holds `values`."""
    return min(6, max(1, _REGISTERS // (values + _SPARE))) if g.channels_last else 2


def depthwise_forward(
    plan: CudaDepthwisePlan,
    x: AnyArray,
    w: AnyArray,
    b: AnyArray | None,
    y: AnyArray,
    work: AnyArray | None,
    relu: bool = False,
) -> None:
    """Compute y = w * x (+ b), and set negative values to 0 if `relu`.

    x (N, C, *in), w (O, 1, *kernel), b (O) or None, y (N, O, *out).
    """
    g = plan.geometry.with_axes(3)
    n, blocks = _cut(plan, g.out_channels, g.out_spatial, plan.strip)
    arrays = x, w, w if b is None else b, y  # w stands in for a bias: an argument that the kernel never reads
    _launch(plan, "forward", (x, y), blocks, *arrays, int(b is not None), int(relu), n)


def depthwise_backward_data(
    plan: CudaDepthwisePlan, dy: AnyArray, w: AnyArray, dx: AnyArray, work: AnyArray | None
) -> None:
    """Compute dx from dy, the transpose of `depthwise_forward`; every element of dx is written."""
    g = plan.geometry.with_axes(3)
    n, blocks = _cut(plan, g.channels, g.in_spatial, plan.band)
    _launch(plan, "backward_data", (dy, dx), blocks, dy, w, dx, n)


def depthwise_backward_filter(
    plan: CudaDepthwisePlan, x: AnyArray, dy: AnyArray, dw: AnyArray, work: AnyArray | None, accumulate: bool
) -> None:
    """Write to dw (or add, if `accumulate`) the gradient of the weights, summed over images and positions."""
    g = plan.geometry.with_axes(3)
    total = g.batch * g.out_spatial[0] * -(-g.out_spatial[1] // plan.filter_strip) * g.out_spatial[2]
    parts = dw if work is None else work.view(dw.dtype)  # without images it is not read
    groups = -(-g.out_channels // (plan.filter_vector * plan.filter_lanes))
    _launch(plan, "backward_filter", (x, dy), plan.parts * groups * plan.splits, x, dy, parts, plan.each, total)
    cuda.launch(
        ADD_PARTS, "add_parts", dw.dtype, 0, parts, dw, plan.parts, dw.size, int(accumulate), grid=-(-dw.size // 8)
    )


def _cut(plan: CudaDepthwisePlan, channels: int, spatial: Ints, rows: int) -> tuple[int, int]:
    """Return how many strips the threads of one lane work on, and the blocks of a launch."""
    n = plan.geometry.batch * spatial[0] * -(-spatial[1] // rows) * spatial[2]
    if not plan.geometry.channels_last:
        n *= channels
        return n, -(-n // BLOCK)
    return n, -(-n // (BLOCK // plan.lanes)) * -(-channels // (plan.vector * plan.lanes))


def _launch(
    plan: CudaDepthwisePlan, name: str, images: tuple[AnyArray, AnyArray], blocks: int, *args: AnyArray | int
) -> None:
    source = _source(plan, aligned(*images))
    cuda.launch(source, name, images[0].dtype, 0, *args, grid=blocks, block=BLOCK)


@functools.cache
def _source(plan: CudaDepthwisePlan, is_aligned: int) -> str:
    """Return the kernels for all sizes of a convolution but the batch's."""
    g = plan.geometry.with_axes(3)
    sizes = {
        f"{name}_{axis}": values[i]
        for name, values in (("K", g.kernel), ("S", g.stride), ("P", g.pad), ("L", g.dilation))
        for i, axis in enumerate("DHW")
    }
    for name, spatial in (("IN", g.in_spatial), ("OUT", g.out_spatial)):
        sizes |= {f"{name}_{axis}": max(1, n) for axis, n in zip("DHW", spatial, strict=True)}
    reach = g.dilation[1] * (g.kernel[1] - 1)
    rows, filter_rows = ((s - 1) * g.stride[1] + reach + 1 for s in (plan.strip, plan.filter_strip))
    columns = g.kernel[0] * g.kernel[2] if plan.splits == 1 else 1
    sums = columns * g.kernel[1]
    sizes |= {
        "LAST": int(g.channels_last),
        "ALIGNED": is_aligned,
        "CHANNELS": g.channels,
        "OUTPUTS": g.out_channels,
        "MULTIPLE": g.group_outputs,
        "TAPS": g.rows,
        "UNROLL": g.rows if g.rows <= _UNROLLED else 1,
        "V": plan.vector,
        "LANES": plan.lanes,
        "STRIP": plan.strip,
        "ROWS": rows,
        "BLOCKS": _resident(g, plan.vector * (plan.strip + rows)),
        "BAND": plan.band,
        "LOW": _low(g),
        "BAND_ROWS": _band_rows(g, plan.band),
        "BAND_BLOCKS": _resident(g, plan.vector * (plan.band + _band_rows(g, plan.band))),
        "F_V": plan.filter_vector,
        "F_LANES": plan.filter_lanes,
        "F_STRIP": plan.filter_strip,
        "F_ROWS": filter_rows,
        "F_BLOCKS": _resident(g, plan.filter_vector * (plan.filter_strip + filter_rows + sums)),
        "SPLITS": plan.splits,
        "COLUMNS": columns,
    }
    image = max(g.channels * g.in_size, g.out_channels * g.out_size)
    strips = g.batch * image
    types = (("Offset", "int", image < 1 << 31), ("Index", "unsigned", strips < 1 << 31))
    text = "".join(f"constexpr int {name} = {value};\n" for name, value in sizes.items())
    text += "".join(f"typedef {short if fits else 'long long'} {name};\n" for name, short, fits in types)
    return text + SOURCE
