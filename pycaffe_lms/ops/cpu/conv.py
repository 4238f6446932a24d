"""Convolution on the CPU: column matrices (im2col) and BLAS products, over chunks of images.

Columns of a chunk are laid out (group, row, image, position), so that one product per group serves all its images.
Every sum runs in a fixed order: results depend on the plan, never on addresses.
"""

from __future__ import annotations

from math import prod

import numpy as np

from ..column_plan import ColumnPlan, column_plan
from ..geometry import ConvGeometry, tap_range

__all__ = [
    "conv_add_bias",
    "conv_backward_bias",
    "conv_backward_data",
    "conv_backward_filter",
    "conv_bias_gradient",
    "conv_forward",
    "conv_plan",
]

_CHUNK_BYTES = 8 << 20  # more makes no product faster, and leaves the caches
_WIDE = 512  # positions per image from which a product per image is as fast as one over several images


def conv_plan(geometry: ConvGeometry, dtype, workspace_limit: int) -> ColumnPlan:
    """Chunks whose workspace stays within `workspace_limit` bytes, if one image's columns for one group do."""
    return column_plan(geometry, np.dtype(dtype).itemsize, min(workspace_limit, _CHUNK_BYTES), _WIDE)


def conv_forward(plan, x, w, b, y, work) -> None:
    """y = w * x (+ b): x (N, C, *in), w (O, C/group, *kernel), b (O) or None, y (N, O, *out)."""
    g = plan.geometry
    x, y = _inputs(g, x), _outputs(g, y)
    w = w.reshape(g.group, g.group_outputs, g.rows)
    for n0, n1, g0, g1 in plan.chunks():
        columns = _im2col(plan, x[n0:n1, g0:g1], work, first=n0 == g0 == 0)
        out = y[n0:n1, g0:g1]
        if n1 - n0 == 1:
            np.matmul(w[g0:g1], columns, out=out[0])
        else:
            values = _values(plan, n1 - n0, work, y.dtype)
            np.matmul(w, columns, out=values)
            out[...] = _by_image(values, n1 - n0)
        if b is not None:
            out += b.reshape(g.group, g.group_outputs, 1)[g0:g1]


def conv_backward_data(plan, dy, w, dx, work) -> None:
    """dx from dy: the transpose of `conv_forward` (every element of dx is written)."""
    g = plan.geometry
    dx, dy = _inputs(g, dx), _outputs(g, dy)
    w = w.reshape(g.group, g.group_outputs, g.rows).swapaxes(1, 2)
    for n0, n1, g0, g1 in plan.chunks():
        n = n1 - n0
        values = _gather(plan, dy[n0:n1, g0:g1], work)
        target = dx[n0:n1, g0:g1]
        if g.pointwise and n == 1:
            np.matmul(w[g0:g1], values, out=target.reshape(g1 - g0, g.rows, g.out_size))
            continue
        columns = _columns(plan, n, g1 - g0, work, dx.dtype)
        np.matmul(w[g0:g1], values, out=columns)
        _col2im(plan, columns, target)


def conv_backward_filter(plan, x, dy, dw, work, accumulate) -> None:
    """dw (+)= the gradient of the weights, summed over images and positions."""
    g = plan.geometry
    x, dy = _inputs(g, x), _outputs(g, dy)
    dw = dw.reshape(g.group, g.group_outputs, g.rows)
    if not (accumulate or g.batch):
        dw[...] = 0
    for n0, n1, g0, g1 in plan.chunks():
        columns = _im2col(plan, x[n0:n1, g0:g1], work, first=n0 == g0 == 0)
        values = _gather(plan, dy[n0:n1, g0:g1], work)
        if accumulate or n0:
            dw[g0:g1] += np.matmul(values, columns.swapaxes(1, 2))
        else:
            np.matmul(values, columns.swapaxes(1, 2), out=dw[g0:g1])


def conv_backward_bias(plan, dy, db, accumulate) -> None:
    """db (+)= dy summed over images and positions."""
    g = plan.geometry
    conv_bias_gradient(dy, db, g.batch, g.out_channels, g.out_size, accumulate)


def conv_add_bias(y, b, outer, channels, inner) -> None:
    """y (outer, channels, inner) += b (channels)."""
    y = y.reshape(outer, channels, inner)
    y += b.reshape(channels, 1)


def conv_bias_gradient(dy, db, outer, channels, inner, accumulate) -> None:
    """db (channels) (+)= dy (outer, channels, inner) summed over outer and inner."""
    total = dy.reshape(outer, channels, inner).sum(axis=2).sum(axis=0)
    db = db.reshape(channels)
    if accumulate:
        db += total
    else:
        db[...] = total


def _inputs(g: ConvGeometry, x):
    return x.reshape(g.batch, g.group, g.group_channels, *g.in_spatial)


def _outputs(g: ConvGeometry, y):
    return y.reshape(g.batch, g.group, g.group_outputs, g.out_size)


def _columns(plan, images: int, groups: int, work, dtype):
    """The column matrices (groups, rows, images * positions), uninitialised, in the front of `work`."""
    g = plan.geometry
    shape = (groups, g.rows, images * g.out_size)
    return work[: prod(shape) * dtype.itemsize].view(dtype).reshape(shape)


def _values(plan, images: int, work, dtype):
    """Room for outputs (group, outputs, images * positions), at the end of `work`."""
    g = plan.geometry
    shape = (g.group, g.group_outputs, images * g.out_size)
    nbytes = prod(shape) * dtype.itemsize
    return work[plan.workspace_bytes - nbytes : plan.workspace_bytes].view(dtype).reshape(shape)


def _by_image(values, images: int):
    """(group, outputs, images * positions) seen as (images, group, outputs, positions)."""
    groups, outputs, size = values.shape
    return values.reshape(groups, outputs, images, size // images).transpose(2, 0, 1, 3)


def _gather(plan, dy, work):
    """dy of a chunk (images, groups, outputs, positions) as (groups, outputs, images * positions)."""
    if len(dy) == 1:
        return dy[0]
    values = _values(plan, len(dy), work, dy.dtype)
    _by_image(values, len(dy))[...] = dy
    return values


def _taps(g: ConvGeometry, columns, images):
    """For every kernel tap: its part of the columns and of the images, both (groups, channels, images, *positions)."""
    n, groups = images.shape[:2]
    columns = columns.reshape(groups, g.group_channels, *g.kernel, n, *g.out_spatial)
    images = np.moveaxis(images, 0, 2)
    for tap in np.ndindex(*g.kernel):
        rows, pixels = [], []
        for a, t in enumerate(tap):
            offset = t * g.dilation[a] - g.pad[a]
            first, last = tap_range(g.in_spatial[a], g.out_spatial[a], g.stride[a], offset)
            start = first * g.stride[a] + offset
            rows.append(slice(first, last))
            pixels.append(slice(start, start + (last - first) * g.stride[a], g.stride[a]) if last > first else slice(0))
        yield columns[(slice(None), slice(None), *tap, slice(None), *rows)], images[(..., *pixels)]


def _im2col(plan, x, work, first: bool):
    """The columns of a chunk x (images, groups, channels, *in); x itself where it already is its columns."""
    g = plan.geometry
    n, groups = x.shape[:2]
    if g.pointwise and n == 1:
        return x.reshape(groups, g.rows, g.out_size)
    columns = _columns(plan, n, groups, work, x.dtype)
    if any(g.pad) and (first or n < plan.images):
        columns[...] = 0  # taps in the padding are never written, and are the same ones in every chunk of n images
    for rows, pixels in _taps(g, columns, x):
        rows[...] = pixels
    return columns


def _col2im(plan, columns, dx) -> None:
    """dx (images, groups, channels, *in) = the sum of all columns that a pixel went into."""
    dx[...] = 0
    for rows, pixels in _taps(plan.geometry, columns, dx):
        pixels += rows
