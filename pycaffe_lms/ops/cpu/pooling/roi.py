"""Pool regions (rois), plain and position-sensitive.

Rois are rows of (image, x1, y1, x2, y2), in pixels of a picture; a pixel of the feature map is 1 / scale of them. All
arithmetic on coordinates is in their own type, and the same on every device.
"""

from __future__ import annotations

import numpy as np

from ....arrays import HostArray
from ...geometry import Ints
from ..compiled import kernel
from ..threads import parallel
from .window_places import LEAST

__all__ = ["roi_pool_backward", "roi_pool_forward", "psroi_pool_backward", "psroi_pool_forward"]

_FAR = 2.0**20  # limit of coordinates; a float, since NumPy 1 would clip to an integer in float64


def roi_pool_forward(
    x: HostArray, rois: HostArray, y: HostArray, argmax: HostArray | None, scale: float, pad: float = 0.0
) -> None:
    """Compute y (R, C, ph, pw) = the maximum of x (N, C, H, W) in each cell of each region; 0 for an empty cell.

    `argmax` (int32, or None) receives the index h * W + w of the first maximum, -1 for an empty cell; a NaN is never
    one. Corners are limited to 2^20 pixels, rounded (halves away from 0) and inclusive; a region is at least 1 x 1. A
    cell goes from the floor of its start to the ceiling of its end, cut to the map. A region is empty if its image
    number (cut to an integer) is not in the batch, or if it is not finite. `pad` of its size, both ends counted in, is
    added on each side before.
    """
    image, rows, columns = _cells(rois.reshape(-1, 5), scale, x.shape, y.shape[2:], pad)
    saved = np.empty((0,) * 4, np.int32) if argmax is None else argmax
    parallel(_forward, len(image), x, y, saved, argmax is not None, image, rows, columns, y.dtype.type(LEAST))


def roi_pool_backward(
    dy: HostArray, rois: HostArray, argmax: HostArray, dx: HostArray, scale: float, pad: float = 0.0
) -> None:
    """Compute dx = for each input, the sum of dy over the cells whose maximum it was, region by region."""
    image, _, _ = _cells(rois.reshape(-1, 5), scale, dx.shape, dy.shape[2:], pad)
    parallel(_backward, dx.shape[0] * dx.shape[1], dy, argmax, dx, image)


def _cells(
    rois: HostArray, scale: float, shape: Ints, pooled: tuple[int, int], pad: float = 0.0
) -> tuple[HostArray, HostArray, HostArray]:
    """Return (image or -1, (R, ph, 2) first and last row of each cell, (R, pw, 2) columns); the last are excluded."""
    valid = np.isfinite(rois).all(axis=1) & (rois[:, 0] > -1) & (rois[:, 0] < shape[0])
    rois = np.where(valid[:, None], rois, 0)
    with np.errstate(over="ignore"):
        if pad:
            more = (rois[:, 3:] - rois[:, 1:3] + 1) * rois.dtype.type(pad)
            rois = np.concatenate([rois[:, :1], rois[:, 1:3] - more, rois[:, 3:] + more], axis=1)
        corners = np.clip(rois[:, 1:] * rois.dtype.type(scale), -_FAR, _FAR)
    whole = np.trunc(corners)
    whole += np.trunc(2 * (corners - whole))
    left, top, right, bottom = whole.astype(np.int64).T
    ranges = []
    for first, last, size, cells in ((top, bottom, shape[2], pooled[0]), (left, right, shape[3], pooled[1])):
        step = np.maximum(last - first + 1, 1).astype(rois.dtype) / rois.dtype.type(cells)
        edges = np.arange(cells + 1, dtype=rois.dtype) * step[:, None]
        ends = np.stack([np.floor(edges[:, :-1]), np.ceil(edges[:, 1:])], axis=2).astype(np.int64)
        ranges.append(np.clip(ends + first[:, None, None], 0, size) * valid[:, None, None])
    return np.where(valid, rois[:, 0], -1).astype(np.int64), *ranges


@kernel
def _forward(
    first: int,
    last: int,
    x: HostArray,
    y: HostArray,
    argmax: HostArray,
    save: bool,
    image: HostArray,
    rows: HostArray,
    columns: HostArray,
    least: float,
) -> None:
    width = x.shape[3]
    for r in range(first, last):
        for c in range(x.shape[1]):
            for p in range(y.shape[2]):
                top, bottom = rows[r, p, 0], rows[r, p, 1]
                for q in range(y.shape[3]):
                    left, right = columns[r, q, 0], columns[r, q, 1]
                    some = bottom > top and right > left
                    best, where = least if some else least - least, -1
                    for h in range(top, bottom):
                        row = x[image[r], c, h]
                        for w in range(left, right):
                            if row[w] > best:
                                best, where = row[w], h * width + w
                    y[r, c, p, q] = best
                    if save:
                        argmax[r, c, p, q] = where


@kernel
def _backward(first: int, last: int, dy: HostArray, argmax: HostArray, dx: HostArray, image: HostArray) -> None:
    channels, width = dx.shape[1], dx.shape[3]
    total = np.zeros((dx.shape[2], width), np.float64)
    for plane in range(first, last):
        n, c = plane // channels, plane % channels
        total[:] = 0
        for r in range(len(image)):
            if image[r] == n:
                for p in range(dy.shape[2]):
                    for q in range(dy.shape[3]):
                        where = argmax[r, c, p, q]
                        if where >= 0:
                            total[where // width, where % width] += dy[r, c, p, q]
        for h in range(dx.shape[2]):
            for w in range(width):
                dx[n, c, h, w] = total[h, w]


def psroi_pool_forward(x: HostArray, rois: HostArray, y: HostArray, scale: float) -> None:
    """Compute y (R, D, g, g): the average of channel (d * g + p) * g + q of x (N, D * g * g, H, W) in cell (p, q).

    An empty cell gives 0. Corners are limited to 2^20 pixels, rounded (halves away from 0), then scaled, 1 being added
    to the far ones before; a region is at least 0.1 x 0.1. A cell goes from the floor of its start to the ceiling of
    its end, cut to the map. A region is empty if its image number (cut to an integer) is not in the batch, or if it is
    not finite.
    """
    image, rows, columns = _psroi_cells(rois.reshape(-1, 5), scale, x.shape, y.shape[2])
    parallel(_psroi_forward, len(image), x, y, image, rows, columns)


def psroi_pool_backward(dy: HostArray, rois: HostArray, dx: HostArray, scale: float) -> None:
    """Compute dx = for each input, the sum of dy / the cell's size over the cells that hold it, region by region."""
    image, rows, columns = _psroi_cells(rois.reshape(-1, 5), scale, dx.shape, dy.shape[2])
    parallel(_psroi_backward, dx.shape[0] * dx.shape[1], dy, dx, image, rows, columns)


def _psroi_cells(rois: HostArray, scale: float, shape: Ints, cells: int) -> tuple[HostArray, HostArray, HostArray]:
    """Return (image or -1, (R, g, 2) first and last row of each cell, (R, g, 2) columns); the last are excluded."""
    kind = rois.dtype.type
    valid = np.isfinite(rois).all(axis=1) & (rois[:, 0] > -1) & (rois[:, 0] < shape[0])
    rois = np.where(valid[:, None], rois, 0)
    corners = np.clip(rois[:, 1:], -_FAR, _FAR)
    whole = np.trunc(corners)
    whole += np.trunc(2 * (corners - whole))
    near, far = whole[:, :2] * kind(scale), (whole[:, 2:] + 1) * kind(scale)
    step = np.maximum(far - near, kind(0.1)) / kind(cells)
    ranges = []
    for axis, size in ((1, shape[2]), (0, shape[3])):
        edges = np.arange(cells + 1, dtype=rois.dtype) * step[:, axis, None] + near[:, axis, None]
        ends = np.stack([np.floor(edges[:, :-1]), np.ceil(edges[:, 1:])], axis=2)
        ranges.append(np.clip(ends, 0, size).astype(np.int64) * valid[:, None, None])
    return np.where(valid, rois[:, 0], -1).astype(np.int64), *ranges


@kernel
def _psroi_forward(
    first: int, last: int, x: HostArray, y: HostArray, image: HostArray, rows: HostArray, columns: HostArray
) -> None:
    cells = y.shape[2]
    for r in range(first, last):
        for d in range(y.shape[1]):
            for p in range(cells):
                top, bottom = rows[r, p, 0], rows[r, p, 1]
                for q in range(cells):
                    left, right = columns[r, q, 0], columns[r, q, 1]
                    total = 0.0
                    if bottom > top and right > left:
                        for h in range(top, bottom):
                            row = x[image[r], (d * cells + p) * cells + q, h]
                            for w in range(left, right):
                                total += row[w]
                        total /= (bottom - top) * (right - left)
                    y[r, d, p, q] = total


@kernel
def _psroi_backward(
    first: int, last: int, dy: HostArray, dx: HostArray, image: HostArray, rows: HostArray, columns: HostArray
) -> None:
    channels, cells = dx.shape[1], dy.shape[2]
    total = np.zeros(dx.shape[2:], np.float64)
    for plane in range(first, last):
        n, c = plane // channels, plane % channels
        d, p, q = c // (cells * cells), c // cells % cells, c % cells
        total[:] = 0
        for r in range(len(image)):
            top, bottom, left, right = rows[r, p, 0], rows[r, p, 1], columns[r, q, 0], columns[r, q, 1]
            if image[r] == n and bottom > top and right > left:
                share = dy[r, d, p, q] / ((bottom - top) * (right - left))
                for h in range(top, bottom):
                    for w in range(left, right):
                        total[h, w] += share
        for h in range(dx.shape[2]):
            for w in range(dx.shape[3]):
                dx[n, c, h, w] = total[h, w]
