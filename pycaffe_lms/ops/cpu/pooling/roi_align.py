"""Sample regions (rois) at points between pixels, and average the samples of each cell.

Rois are rows of (image, x1, y1, x2, y2), in pixels of a picture; a pixel of the feature map is 1 / scale of them.
Places of samples are computed in float64, the same on every device. `ops.records.Sampling` says where they lie.
"""

from __future__ import annotations

import numpy as np

from ....arrays import HostArray
from ...records import Samples, Sampling
from ..compiled import kernel
from ..threads import parallel

__all__ = ["roi_align_backward", "roi_align_forward", "roi_warp_corners"]

_FAR = 2.0**20  # limit of coordinates, in pixels of the feature map
_GRID, _SPREAD, _WARP = int(Sampling.GRID), int(Sampling.SPREAD), int(Sampling.WARP)  # numbers, for the kernels


def roi_align_forward(x: HostArray, rois: HostArray, y: HostArray, samples: Samples) -> None:
    """Compute y (R, C, cells_h, cells_w) = the average of the samples of x (N, C, H, W) in each cell of each region.

    With SPREAD x has C * cells_h * cells_w channels, and channel (c * cells_h + p) * cells_w + q is read for cell
    (p, q). A sample is interpolated between the four pixels around it; one that does not count is 0. Coordinates are
    limited to 2^20 pixels. A region is empty, and its samples 0, if its image number (cut to an integer) is not in the
    batch, or if it is not finite.
    """
    image, rows, columns = _axes(rois, x.shape, y.shape, samples)
    parallel(_forward, len(image), x, y, image, rows, columns, int(samples.kind))


def roi_align_backward(dy: HostArray, rois: HostArray, dx: HostArray, samples: Samples) -> None:
    """Compute dx = for each input, the sum of dy times the weight that it has in each cell, region by region."""
    image, rows, columns = _axes(rois, dx.shape, dy.shape, samples)
    parallel(_backward, dx.shape[0] * dx.shape[1], dy, dx, image, rows, columns, int(samples.kind))


def roi_warp_corners(x: HostArray, dy: HostArray, rois: HostArray, work: HostArray, samples: Samples) -> None:
    """Compute work (R, 5, C) = for each channel the sum over cells of dy times the slope of their samples.

    The second axis is that of a region's numbers; its image has slope 0. Corners have the slope that they have without
    rounding; samples on the border of the map, or beyond it, have none across it. Of WARP.
    """
    image, rows, columns = _axes(rois, x.shape, dy.shape, samples)
    slopes = work.reshape(len(image), 5, dy.shape[1])
    parallel(_corners, len(image), x, dy, image, rows, columns, slopes, samples.scale)


def _axes(
    rois: HostArray, x: tuple[int, ...], y: tuple[int, ...], samples: Samples
) -> tuple[HostArray, HostArray, HostArray]:
    """Return (image or -1, (R, 3) start, step and number of samples of a cell's rows, (R, 3) likewise of columns)."""
    wide = rois.reshape(-1, 5).astype(np.float64)
    valid = np.isfinite(wide).all(axis=1) & (wide[:, 0] > -1) & (wide[:, 0] < x[0])
    wide = np.where(valid[:, None], wide, 0)
    found = []
    for axis, size in ((1, y[2]), (0, y[3])):
        low, high = wide[:, 1 + axis], wide[:, 3 + axis]
        half, cells = 0.0, size
        if samples.kind == Sampling.GRID:
            pad = (high - low + 1) * samples.pad_ratio
            low, high, half, cells = low - pad, high + pad, 0.5, size - 1
        elif samples.kind == Sampling.SPREAD:
            high = high + 1
        with np.errstate(over="ignore"):
            start, end = (np.clip(v * samples.scale - half, -_FAR, _FAR) for v in (low, high))
        if samples.kind == Sampling.WARP:
            start, end = (np.trunc(v + np.copysign(0.5, v)) for v in (start, end))
        length = end - start
        if samples.kind == Sampling.WARP:
            length = np.maximum(length, 0)
        elif samples.kind != Sampling.GRID:
            length = np.maximum(length, 0.1 if samples.kind == Sampling.SPREAD else 1.0)
        step = length / cells
        number = np.full(len(step), float(samples.number)) if samples.number else np.ceil(step)
        there = (length > 0) | (samples.kind == Sampling.WARP)
        found.append(np.stack([start, step, np.where(there, number, 0)], axis=1))
    return np.where(valid, wide[:, 0], -1).astype(np.int64), *found


@kernel
def _place(axis: HostArray, kind: int, cell: int, i: int, size: int) -> float:
    """Return where sample i of a cell lies along one axis, from 0 to size - 1; -1: it does not count."""
    start, step, number = axis[0], axis[1], axis[2]
    at, far = start + cell * step, size - 1.0
    if kind in (_GRID, _WARP):
        if at < -0.5 or at > size - 0.5:
            return -1.0
    elif kind == _SPREAD:
        end = min(max((cell + 1) * step + start, 0.0), far)
        at = min(max(at, 0.0), far)
        if end <= at:
            return -1.0
        at += (i + 1) * (step / (number + 1))
        if at >= end:
            return -1.0
    else:
        at += (i + 0.5) * step / number
        if at < -1.0 or at > size:
            return -1.0
    return min(max(at, 0.0), far)


@kernel
def _counted(axis: HostArray, kind: int, cell: int, size: int) -> tuple[int, int]:
    """Return the first sample of a cell that can count, and the one behind the last."""
    number = int(axis[2])
    if number == 0 or size == 0:
        return 0, 0
    if kind in (_GRID, _SPREAD, _WARP):
        return 0, number
    gap, base = axis[1] / axis[2], axis[0] + cell * axis[1]
    first, last = np.floor((-1.0 - base) / gap - 1.5), np.ceil((size - base) / gap + 1.5)
    return int(min(max(first, 0.0), axis[2])), int(min(max(last, 0.0), axis[2]))


@kernel
def _forward(
    first: int,
    last: int,
    x: HostArray,
    y: HostArray,
    image: HostArray,
    rows: HostArray,
    columns: HostArray,
    kind: int,
) -> None:
    cells_h, cells_w, height, width = y.shape[2], y.shape[3], x.shape[2], x.shape[3]
    for r in range(first, last):
        y[r] = 0
        if image[r] < 0:
            continue
        for p in range(cells_h):
            i0, i1 = _counted(rows[r], kind, p, height)
            for q in range(cells_w):
                j0, j1 = _counted(columns[r], kind, q, width)
                for c in range(y.shape[1]):
                    plane = x[image[r], (c * cells_h + p) * cells_w + q if kind == _SPREAD else c]
                    total = 0.0
                    for i in range(i0, i1):
                        h = _place(rows[r], kind, p, i, height)
                        if h < 0:
                            continue
                        top = int(h)
                        below, part = min(top + 1, height - 1), h - top
                        for j in range(j0, j1):
                            w = _place(columns[r], kind, q, j, width)
                            if w < 0:
                                continue
                            left = int(w)
                            right, rest = min(left + 1, width - 1), w - left
                            total += (1 - part) * ((1 - rest) * plane[top, left] + rest * plane[top, right])
                            total += part * ((1 - rest) * plane[below, left] + rest * plane[below, right])
                    if rows[r, 2] > 0 and columns[r, 2] > 0:
                        y[r, c, p, q] = total / (rows[r, 2] * columns[r, 2])


@kernel
def _backward(
    first: int,
    last: int,
    dy: HostArray,
    dx: HostArray,
    image: HostArray,
    rows: HostArray,
    columns: HostArray,
    kind: int,
) -> None:
    cells_h, cells_w, height, width = dy.shape[2], dy.shape[3], dx.shape[2], dx.shape[3]
    total = np.zeros((height, width), np.float64)
    for plane in range(first, last):
        n, c = plane // dx.shape[1], plane % dx.shape[1]
        total[:] = 0
        for r in range(len(image)):
            if image[r] != n or not (rows[r, 2] > 0 and columns[r, 2] > 0):
                continue
            for p in range(cells_h):
                for q in range(cells_w):
                    d = c
                    if kind == _SPREAD:
                        if c // cells_w % cells_h != p or c % cells_w != q:
                            continue
                        d = c // (cells_h * cells_w)
                    share = dy[r, d, p, q] / (rows[r, 2] * columns[r, 2])
                    i0, i1 = _counted(rows[r], kind, p, height)
                    j0, j1 = _counted(columns[r], kind, q, width)
                    for i in range(i0, i1):
                        h = _place(rows[r], kind, p, i, height)
                        if h < 0:
                            continue
                        top = int(h)
                        below, part = min(top + 1, height - 1), h - top
                        for j in range(j0, j1):
                            w = _place(columns[r], kind, q, j, width)
                            if w < 0:
                                continue
                            left = int(w)
                            right, rest = min(left + 1, width - 1), w - left
                            total[top, left] += share * (1 - part) * (1 - rest)
                            total[top, right] += share * (1 - part) * rest
                            total[below, left] += share * part * (1 - rest)
                            total[below, right] += share * part * rest
        dx[n, c] = total


@kernel
def _corners(
    first: int,
    last: int,
    x: HostArray,
    dy: HostArray,
    image: HostArray,
    rows: HostArray,
    columns: HostArray,
    work: HostArray,
    scale: float,
) -> None:
    cells_h, cells_w, height, width = dy.shape[2], dy.shape[3], x.shape[2], x.shape[3]
    for r in range(first, last):
        work[r] = 0
        if image[r] < 0:
            continue
        for c in range(dy.shape[1]):
            plane = x[image[r], c]
            x1 = y1 = x2 = y2 = 0.0
            for p in range(cells_h):
                h = _place(rows[r], _WARP, p, 0, height)
                for q in range(cells_w):
                    w = _place(columns[r], _WARP, q, 0, width)
                    if h < 0 or w < 0:
                        continue
                    top, left = int(h), int(w)
                    below, right = min(top + 1, height - 1), min(left + 1, width - 1)
                    part, rest = h - top, w - left
                    near, far = plane[below, left] - plane[top, left], plane[below, right] - plane[top, right]
                    down = ((1 - rest) * near + rest * far) * dy[r, c, p, q]
                    near, far = plane[top, right] - plane[top, left], plane[below, right] - plane[below, left]
                    across = ((1 - part) * near + part * far) * dy[r, c, p, q]
                    if rows[r, 0] + p * rows[r, 1] < 0:
                        down = 0.0
                    if columns[r, 0] + q * columns[r, 1] < 0:
                        across = 0.0
                    of_end = p / cells_h if rows[r, 1] > 0 else 0.0
                    y1 += down * (1 - of_end)
                    y2 += down * of_end
                    of_end = q / cells_w if columns[r, 1] > 0 else 0.0
                    x1 += across * (1 - of_end)
                    x2 += across * of_end
            work[r, 1, c], work[r, 2, c] = x1 * scale, y1 * scale
            work[r, 3, c], work[r, 4, c] = x2 * scale, y2 * scale
