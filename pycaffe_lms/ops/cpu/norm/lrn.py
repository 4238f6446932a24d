"""Normalise local responses on the CPU. Window sums add shifted slices: running sums would lose digits."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np

from ....arrays import HostArray
from ...records import Grid, LocalResponse
from ..channels import row_slices
from ..compiled import kernel
from ..threads import parallel

__all__ = [
    "lrn_across_backward",
    "lrn_across_forward",
    "lrn_within_backward",
    "lrn_within_forward",
    "lrn_last_backward",
    "lrn_last_forward",
]

_PIXELS = 1024  # pixels worked on at a time across all channels: the temporaries stay in the cache
_GRAIN = 1 << 13  # elements from which a second thread pays


def lrn_across_forward(x: HostArray, y: HostArray, grid: Grid, lrn: LocalResponse) -> None:
    """Compute y = x * (k + alpha / size * sum of x^2 over `size` channels) ^ -beta."""
    _across(_across_forward, grid, lrn, x, y)


def lrn_across_backward(x: HostArray, dy: HostArray, dx: HostArray, grid: Grid, lrn: LocalResponse) -> None:
    """Compute dx from x and dy; the scale is computed again from x."""
    _across(_across_backward, grid, lrn, x, dy, dx)


def _across(function: Callable[..., None], grid: Grid, lrn: LocalResponse, *arrays: HostArray) -> None:
    """Run function(first block, last block, blocks of an item, *arrays, half the window, alpha / size, beta, k)."""
    (outer, channels, inner), (size, alpha, beta, k) = grid, lrn
    blocks = -(-inner // _PIXELS)
    views, typed = [a.reshape(grid) for a in arrays], map(arrays[0].dtype.type, (alpha / size, beta, k))
    parallel(function, outer * blocks, blocks, *views, size // 2, *typed, grain=_GRAIN // (channels * _PIXELS) + 1)


@kernel
def _window_squares(x: HostArray, start: int, c: int, half: int, total: HostArray) -> None:
    """Compute total = the sum of x^2 over the channels around c, at the pixels from `start` on."""
    total[:] = 0
    for other in range(max(c - half, 0), min(c + half + 1, len(x))):
        row = x[other, start : start + total.size]
        for j in range(total.size):
            total[j] += row[j] * row[j]


@kernel
def _powers(scale: HostArray, share: float, beta: float, k: float, power: HostArray) -> None:
    """Compute scale = k + share * scale, power = scale ^ -beta; for Caffe's beta, 3/4, by two square roots."""
    if beta == 0.75:
        for j in range(power.size):
            scale[j] = k + share * scale[j]
            root = np.sqrt(scale[j])
            power[j] = scale.dtype.type(1) / (root * np.sqrt(root))
    else:
        for j in range(power.size):
            scale[j] = k + share * scale[j]
            power[j] = scale[j] ** -beta


@kernel
def _across_forward(
    first: int, last: int, blocks: int, x: HostArray, y: HostArray, half: int, share: float, beta: float, k: float
) -> None:
    channels, inner = x.shape[1:]
    scales, powers = np.empty(_PIXELS, x.dtype), np.empty(_PIXELS, x.dtype)
    for block in range(first, last):
        item, start = block // blocks, block % blocks * _PIXELS
        n = min(_PIXELS, inner - start)
        scale, power = scales[:n], powers[:n]
        for c in range(channels):
            _window_squares(x[item], start, c, half, scale)
            _powers(scale, share, beta, k, power)
            row, result = x[item, c, start : start + n], y[item, c, start : start + n]
            for j in range(n):
                result[j] = row[j] * power[j]


@kernel
def _across_backward(
    first: int,
    last: int,
    blocks: int,
    x: HostArray,
    dy: HostArray,
    dx: HostArray,
    half: int,
    share: float,
    beta: float,
    k: float,
) -> None:
    """Compute dx = dy * scale^-beta - 2 * share * beta * x * sum of dy * x * scale^(-beta - 1) over the window."""
    channels, inner = x.shape[1:]
    scales, powers = np.empty(_PIXELS, x.dtype), np.empty(_PIXELS, x.dtype)
    ratios = np.empty((channels, _PIXELS), x.dtype)
    factor = x.dtype.type(2) * share * beta
    for block in range(first, last):
        item, start = block // blocks, block % blocks * _PIXELS
        n = min(_PIXELS, inner - start)
        scale, power = scales[:n], powers[:n]
        for c in range(channels):
            _window_squares(x[item], start, c, half, scale)
            _powers(scale, share, beta, k, power)
            row, gradient = x[item, c, start : start + n], dy[item, c, start : start + n]
            result, ratio = dx[item, c, start : start + n], ratios[c, :n]
            for j in range(n):
                result[j] = gradient[j] * power[j]
                ratio[j] = gradient[j] * power[j] * row[j] / scale[j]
        for c in range(channels):
            scale[:] = 0
            for other in range(max(c - half, 0), min(c + half + 1, channels)):
                ratio = ratios[other, :n]
                for j in range(n):
                    scale[j] += ratio[j]
            row, result = x[item, c, start : start + n], dx[item, c, start : start + n]
            for j in range(n):
                result[j] -= factor * row[j] * scale[j]


def lrn_within_forward(x: HostArray, y: HostArray, shape: tuple[int, int, int], lrn: LocalResponse) -> None:
    """Compute y = x * (1 + alpha / size^2 * sum of x^2 over a window size x size) ^ -beta.

    `shape` is (planes, height, width).
    """
    for x_part, y_part in _chunks(shape, x, y):
        np.multiply(x_part, _power(_within_scale(x_part, lrn), lrn.beta), out=y_part)


def lrn_within_backward(
    x: HostArray,
    dy: HostArray,
    dx: HostArray,
    ratio: HostArray,
    shape: tuple[int, int, int],
    lrn: LocalResponse,
) -> None:
    """Compute dx from x and dy. `ratio` is workspace of x's size."""
    size, alpha, beta, _ = lrn
    for x_part, dy_part, dx_part, ratio_part in _chunks(shape, x, dy, dx, ratio):
        scale = _within_scale(x_part, lrn)
        np.multiply(dy_part, _power(scale, beta), out=dx_part)
        np.multiply(dx_part, x_part, out=ratio_part)
        ratio_part /= scale
        total = _window_sum(_window_sum(ratio_part, size, 1), size, 2)
        total *= x_part
        total *= 2 * alpha * beta / size**2
        dx_part -= total


def _chunks(shape: tuple[int, int, int], *arrays: HostArray) -> Iterator[list[HostArray]]:
    """Yield the arrays, reshaped to `shape`, a few items of axis 0 at a time."""
    arrays = [a.reshape(shape) for a in arrays]
    for items in row_slices(shape[0], shape[1] * shape[2]):
        yield [a[items] for a in arrays]


def _window_sum(values: HostArray, size: int, axis: int) -> HostArray:
    """Return sums over a centred window of `size` (odd) along axis 1 or 2; values outside count as 0."""
    values = values.swapaxes(1, axis)
    length = values.shape[1]
    total = values.copy(order="K")
    for shift in range(1, min(size // 2, length - 1) + 1):
        total[:, shift:] += values[:, :-shift]
        total[:, :-shift] += values[:, shift:]
    return total.swapaxes(1, axis)


def _within_scale(x: HostArray, lrn: LocalResponse) -> HostArray:
    scale = _window_sum(_window_sum(x * x, lrn.size, 1), lrn.size, 2)
    scale *= lrn.alpha / lrn.size**2
    scale += 1
    return scale


def _power(scale: HostArray, beta: float) -> HostArray:
    """Return scale ^ -beta; for Caffe's beta, 3/4, by two square roots, several times faster than a general power."""
    if beta == 0.75:
        root = np.sqrt(scale)
        root *= np.sqrt(root)
        return np.reciprocal(root, out=root)
    return scale**-beta


def lrn_last_forward(x: HostArray, y: HostArray, grid: Grid, lrn: LocalResponse) -> None:
    """Compute y = x * (k + alpha / size * sum of x^2 over `size` channels) ^ -beta, of arrays whose `inner` is 1."""
    _last(lrn_across_forward, (x,), y, grid, lrn)


def lrn_last_backward(x: HostArray, dy: HostArray, dx: HostArray, grid: Grid, lrn: LocalResponse) -> None:
    """Compute dx from x and dy; the scale is computed again from x."""
    _last(lrn_across_backward, (x, dy), dx, grid, lrn)


def _last(
    function: Callable[..., None], inputs: tuple[HostArray, ...], output: HostArray, grid: Grid, lrn: LocalResponse
) -> None:
    """Run `function` on transposed copies, (channels, rows)."""
    rows, channels, _ = grid
    if output.size == 0:
        return
    inputs = [np.ascontiguousarray(a.reshape(rows, channels).T) for a in inputs]
    result = np.empty((channels, rows), output.dtype)
    function(*inputs, result, Grid(1, channels, rows), lrn)
    np.copyto(output.reshape(rows, channels), result.T)
