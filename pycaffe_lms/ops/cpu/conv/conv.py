"""Convolve on the CPU: column matrices (im2col) and BLAS products over chunks of images, or Winograd's transforms.

Columns of a chunk lie as (group, row, image, position), so that one product per group serves all its images. Every sum
runs in a fixed order: results depend on the plan, never on addresses.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from math import prod
from typing import Any, TypeVar

import numpy as np
from numpy.typing import DTypeLike

from ....arrays import HostArray
from ...column_plan import ColumnPlan, column_plan
from ...geometry import ConvGeometry
from ...records import Grid
from ...winograd_plan import WinogradPlan, winograd_plan
from ..activation.bits import bits_backward
from ..activation.relu import relu_backward
from ..channels import channel_sums, over_rows, write_gradient
from ..compiled import kernel
from ..onednn import conv
from ..onednn.conv import OneDnnPlan, onednn_plan
from ..pooling.windows import Windows, windows
from ..threads import ELEMENTS, parallel
from . import conv_channels_last as channels_last
from . import winograd
from .blas import piece, pieces_of, spread

__all__ = [
    "conv_ahead_plan",
    "conv_add_backward_data",
    "conv_add_backward_data_plan",
    "conv_add_bias",
    "conv_backward_data",
    "conv_backward_filter",
    "conv_beside_plan",
    "conv_bias_gradient",
    "conv_bias_relu_backward",
    "conv_channels_last_plan",
    "conv_forward",
    "conv_half_plan",
    "conv_plan",
]

_Answer = TypeVar("_Answer")
_Plan = ColumnPlan | WinogradPlan | OneDnnPlan
_CHUNK_BYTES = 12 << 20  # larger chunks make no product faster, and do not fit into the caches
_WIDE = 512  # positions per image from which one product per image is as fast as one over several images
_PIECE = 128  # least positions in one product of a thread
_LONG = 4096  # positions of all images from which a transposed sum of gradients pays


def conv_channels_last_plan(geometry: ConvGeometry, dtype: DTypeLike) -> bool:
    """Return whether this device convolves channels-last: yes, slowly."""
    return True


def conv_half_plan(geometry: ConvGeometry, dtype: DTypeLike) -> bool:
    """Return whether this device convolves bfloat16 arrays: yes, in float32, as all its operations do."""
    return True


def conv_ahead_plan(ask: Callable[[], _Answer]) -> _Answer:
    """Return `ask()`, which plans many convolutions. A device on which some take long to build begins with those.

    There `ask` runs twice. What it changes the first time must not matter the second time.
    """
    return ask()


def conv_plan(
    geometry: ConvGeometry,
    dtype: DTypeLike,
    workspace_limit: int,
    bias: bool = False,
    relu: bool = False,
    half: bool = False,
    seldom: Collection[str] = (),
) -> ColumnPlan | WinogradPlan:
    """Plan Winograd's transforms where they pay and fit into `workspace_limit` bytes, else column matrices.

    The workspace of column matrices stays within the limit if the columns of one image and one group do. `bias`,
    `relu`, `half` and `seldom` change nothing here.
    """
    plan = winograd_plan(geometry, np.dtype(dtype).itemsize, workspace_limit)
    if plan is not None:
        return plan
    return column_plan(geometry, np.dtype(dtype).itemsize, min(workspace_limit, _CHUNK_BYTES), _WIDE)


def library_conv_plan(
    geometry: ConvGeometry,
    dtype: DTypeLike,
    workspace_limit: int,
    bias: bool = False,
    relu: bool = False,
    half: bool = False,
    seldom: Collection[str] = (),
) -> _Plan:
    """Return oneDNN's plan where the library is installed and has a fast one, else `conv_plan`'s."""
    plan = onednn_plan(geometry, dtype, workspace_limit)
    return conv_plan(geometry, dtype, workspace_limit) if plan is None else plan


def conv_forward(
    plan: _Plan,
    x: HostArray,
    w: HostArray,
    b: HostArray | None,
    y: HostArray,
    work: HostArray | None,
    relu: bool = False,
) -> None:
    """Compute y = w * x (+ b), and set negative values to 0 if `relu`.

    x (N, C, *in), w (O, C/group, *kernel), b (O) or None, y (N, O, *out); `work` is the plan's workspace or None.
    """
    if isinstance(plan, OneDnnPlan):
        conv.forward(plan, x, w, b, y, work, relu)
        return
    g = plan.geometry
    if g.channels_last:
        channels_last.forward(conv_forward, plan, x, w, b, y, work, relu)
        return
    x, y = _inputs(g, x), _outputs(g, y)
    if isinstance(plan, WinogradPlan):
        winograd.forward(plan, x, _by_taps(g, w), y, work)
    else:
        _forward(plan, x, w.reshape(g.group, g.group_outputs, g.rows), y, work)
    if b is not None:
        conv_add_bias(y, b, g.grid)
    if relu:
        np.maximum(y, 0, out=y)


def _forward(plan: ColumnPlan, x: HostArray, w: HostArray, y: HostArray, work: HostArray | None) -> None:
    g = plan.geometry
    for n0, n1, g0, g1 in plan.chunks():
        columns = _im2col(plan, x, n0, n1, g0, g1, work)
        if n1 - n0 == 1:
            _multiply(w[g0:g1], columns, _groups(g, y[n0], g0, g1, g.group_outputs))
        else:
            values = _values(plan, n1 - n0, work, y.dtype)
            _multiply(w, columns, values)
            _move(_scatter, y, values, n0, n1)


def conv_backward_data(plan: _Plan, dy: HostArray, w: HostArray, dx: HostArray, work: HostArray | None) -> None:
    """Compute dx from dy, the transpose of `conv_forward`; every element of dx is written."""
    if isinstance(plan, OneDnnPlan):
        conv.backward_data(plan, dy, w, dx, work)
        return
    g = plan.geometry
    if g.channels_last:
        channels_last.backward_data(conv_backward_data, plan, dy, w, dx, work)
        return
    dx, dy = _inputs(g, dx), _outputs(g, dy)
    if isinstance(plan, WinogradPlan):
        winograd.backward_data(plan, dy, _by_taps(g, w), dx, work)
        return
    w = w.reshape(g.group, g.group_outputs, g.rows).swapaxes(1, 2)
    for n0, n1, g0, g1 in plan.chunks():
        values = _gather(plan, dy, n0, n1, g0, g1, work)
        if g.pointwise and n1 - n0 == 1:
            _multiply(w[g0:g1], values, _groups(g, dx[n0], g0, g1, g.group_channels))
            continue
        columns = _columns(plan, n1 - n0, g1 - g0, work, dx.dtype)
        _multiply(w[g0:g1], values, columns)
        if g.pointwise:
            _move(_scatter, dx, columns, n0, n1)
        else:
            _windows(g).add(columns, dx, n0, g0 * g.group_channels, n1 - n0, (g1 - g0) * g.group_channels)


def conv_add_backward_data_plan(plan: _Plan) -> int | None:
    """Return the bytes of workspace that `conv_add_backward_data` takes; None where it cannot do this convolution."""
    g = plan.geometry
    can = g.channels_last and g.taps_one and g.group == 1 and g.batch and (g.pointwise or g.axes == 2)
    return 0 if can and not isinstance(plan, OneDnnPlan) else None


def conv_add_backward_data(plan: _Plan, dy: HostArray, w: HostArray, dx: HostArray, work: HostArray | None) -> None:
    """Add to dx what `conv_backward_data` would write."""
    channels_last.add_backward_data(plan.geometry, dy, w, dx)


def conv_backward_filter(
    plan: _Plan, x: HostArray, dy: HostArray, dw: HostArray, work: HostArray | None, accumulate: bool
) -> None:
    """Write to dw (or add, if `accumulate`) the gradient of the weights, summed over images and positions."""
    if isinstance(plan, OneDnnPlan):
        conv.backward_filter(plan, x, dy, dw, work, accumulate)
        return
    g = plan.geometry
    if g.channels_last:
        channels_last.backward_filter(conv_backward_filter, plan, x, dy, dw, work, accumulate)
        return
    x, dy = _inputs(g, x), _outputs(g, dy)
    if isinstance(plan, WinogradPlan):
        winograd.backward_filter(plan, x, dy, _by_taps(g, dw), work, accumulate)
        return
    dw = dw.reshape(g.group, g.group_outputs, g.rows)
    total = None  # the transposed sum over chunks: BLAS is faster at columns * dy' than at dy * columns'
    if g.batch * g.out_size >= _LONG and g.group_outputs < g.rows:
        total = np.zeros((g.group, g.rows, g.group_outputs), dw.dtype)
    elif not (accumulate or g.batch):
        dw[...] = 0
    for n0, n1, g0, g1 in plan.chunks():
        columns = _im2col(plan, x, n0, n1, g0, g1, work)
        values = _gather(plan, dy, n0, n1, g0, g1, work)
        left, right = values, columns.swapaxes(1, 2)
        if total is not None:
            left, right = columns, values.swapaxes(1, 2)
        target = dw if total is None else total
        _add_product(left, right, target[g0:g1], add=total is not None or accumulate or n0 > 0)
    if total is not None:
        np.add(dw, total.swapaxes(1, 2), out=dw) if accumulate else np.copyto(dw, total.swapaxes(1, 2))


def conv_beside_plan(plan: _Plan) -> int | None:
    """Return the bytes of workspace with which `conv_backward_filter` can run beside `conv_backward_data`.

    Here None: it does not pay, since all threads work on one operation together.
    """
    return None


def conv_add_bias(y: HostArray, b: HostArray, grid: Grid) -> None:
    """Add b (channels) to y."""
    rows = y.reshape(grid.outer * grid.channels, grid.inner)
    over_rows(_add_bias, grid, rows, b.reshape(grid.channels))


def conv_bias_gradient(dy: HostArray, db: HostArray, grid: Grid, accumulate: bool) -> None:
    """Write to db (channels), or add if `accumulate`, dy summed over outer and inner."""
    write_gradient(db, channel_sums(dy, grid), accumulate)


def conv_bias_relu_backward(
    y: HostArray | None,
    dy: HostArray,
    dy_out: HostArray | None,
    db: HostArray | None,
    accumulate: bool,
    work: HostArray | None,
    grid: Grid,
    bits: HostArray | None = None,
) -> None:
    """Compute the gradients of a bias and a ReLU.

    dy_out = dy * (y > 0); `bits`, where given, say where y > 0; without y and bits dy_out = dy. dy_out may be dy, and
    None where y and bits are. db, where given, becomes the sum of dy_out per channel, or is added to if `accumulate`.
    `work` is for the GPU, where db is given: channels * reduction_parts(*grid) elements.
    """
    if bits is not None:
        bits_backward(bits, dy, dy_out, 0.0)
        dy = dy_out
    elif y is not None:
        relu_backward(y, dy, dy_out, 0.0)
        dy = dy_out
    elif dy_out is not None and dy_out is not dy:
        np.copyto(dy_out.reshape(dy.shape), dy)
    if db is not None:
        conv_bias_gradient(dy, db, grid, accumulate)


def _multiply(a: HostArray, b: HostArray, out: HostArray) -> None:
    """Compute out = a b for each group, in pieces of b's columns."""
    spread(_products, len(a) * pieces_of(b.shape[2], _PIECE), a, b, out)


def _products(first: int, last: int, a: HostArray, b: HostArray, out: HostArray) -> None:
    pieces = pieces_of(b.shape[2], _PIECE)
    for i in range(first, last):
        group, columns = i // pieces, piece(b.shape[2], pieces, i % pieces)
        np.matmul(a[group], b[group, :, columns], out=out[group, :, columns])


def _add_product(a: HostArray, b: HostArray, out: HostArray, add: bool) -> None:
    """Compute out = a b, or out += a b if `add`, for each group, in pieces of the longer side of out."""
    spread(_added_products, len(a) * pieces_of(max(out.shape[1:]), _PIECE), a, b, out, add)


def _added_products(first: int, last: int, a: HostArray, b: HostArray, out: HostArray, add: bool) -> None:
    pieces = pieces_of(max(out.shape[1:]), _PIECE)
    for i in range(first, last):
        group, rows, columns = i // pieces, slice(None), slice(None)
        if out.shape[1] >= out.shape[2]:
            rows = piece(out.shape[1], pieces, i % pieces)
        else:
            columns = piece(out.shape[2], pieces, i % pieces)
        left, right, part = a[group, rows], b[group, :, columns], out[group, rows, columns]
        if add:
            part += np.matmul(left, right)
        else:
            np.matmul(left, right, out=part)


def _inputs(g: ConvGeometry, x: HostArray) -> HostArray:
    return x.reshape(g.batch, g.channels, g.in_size)


def _outputs(g: ConvGeometry, y: HostArray) -> HostArray:
    return y.reshape(g.batch, g.out_channels, g.out_size)


def _by_taps(g: ConvGeometry, w: HostArray) -> HostArray:
    return w.reshape(g.group, g.group_outputs, g.group_channels, -1)


def _groups(g: ConvGeometry, image: HostArray, g0: int, g1: int, channels: int) -> HostArray:
    """Return the channels of groups g0 to g1 of an image as (groups, channels of one, size)."""
    return image.reshape(g.group, channels, image.shape[1])[g0:g1]


def _windows(g: ConvGeometry) -> Windows:
    return windows(g.in_spatial, g.out_spatial, g.kernel, g.stride, g.pad, g.dilation)


def _columns(plan: ColumnPlan, images: int, groups: int, work: HostArray, dtype: np.dtype[Any]) -> HostArray:
    """Return the front of `work` as column matrices (groups, rows, images * positions), uninitialised."""
    g = plan.geometry
    shape = (groups, g.rows, images * g.out_size)
    return work[: prod(shape) * dtype.itemsize].view(dtype).reshape(shape)


def _values(plan: ColumnPlan, images: int, work: HostArray, dtype: np.dtype[Any]) -> HostArray:
    """Return the end of `work` as outputs (group, outputs, images * positions), uninitialised."""
    g = plan.geometry
    shape = (g.group, g.group_outputs, images * g.out_size)
    nbytes = prod(shape) * dtype.itemsize
    return work[plan.workspace_bytes - nbytes : plan.workspace_bytes].view(dtype).reshape(shape)


def _gather(plan: ColumnPlan, dy: HostArray, n0: int, n1: int, g0: int, g1: int, work: HostArray | None) -> HostArray:
    """Return dy of a chunk as (groups, outputs, images * positions)."""
    g = plan.geometry
    if n1 - n0 == 1:
        return _groups(g, dy[n0], g0, g1, g.group_outputs)
    values = _values(plan, n1 - n0, work, dy.dtype)
    _move(_collect, dy, values, n0, n1)
    return values


def _im2col(plan: ColumnPlan, x: HostArray, n0: int, n1: int, g0: int, g1: int, work: HostArray | None) -> HostArray:
    """Return the columns of a chunk; x itself where it already is its column matrix."""
    g = plan.geometry
    if g.pointwise and n1 - n0 == 1:
        return _groups(g, x[n0], g0, g1, g.group_channels)
    columns = _columns(plan, n1 - n0, g1 - g0, work, x.dtype)
    if g.pointwise:
        _move(_collect, x, columns, n0, n1)
    else:
        _windows(g).gather(x, columns, n0, g0 * g.group_channels, n1 - n0, (g1 - g0) * g.group_channels)
    return columns


def _move(function: Callable[..., None], images: HostArray, rows: HostArray, n0: int, n1: int) -> None:
    """Copy between images n0 to n1 of (all, channels, size) and rows (channels, images, size), either way."""
    _, channels, size = images.shape
    rows = rows.reshape(channels, n1 - n0, size)
    parallel(function, channels, images[n0:n1], rows, grain=ELEMENTS // max(1, (n1 - n0) * size) + 1)


@kernel
def _collect(first: int, last: int, images: HostArray, rows: HostArray) -> None:
    for c in range(first, last):
        for i in range(len(images)):
            rows[c, i] = images[i, c]


@kernel
def _scatter(first: int, last: int, images: HostArray, rows: HostArray) -> None:
    for c in range(first, last):
        for i in range(len(images)):
            images[i, c] = rows[c, i]


@kernel
def _add_bias(first: int, last: int, y: HostArray, b: HostArray) -> None:
    for r in range(first, last):
        row, shift = y[r], b[r % b.size]
        for j in range(row.size):
            row[j] += shift
