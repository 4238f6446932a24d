"""Local response normalisation on the CPU. Window sums are sums of shifted slices: running sums would cancel."""

from __future__ import annotations

import numpy as np

__all__ = ["lrn_across_backward", "lrn_across_forward", "lrn_within_backward", "lrn_within_forward"]

_CHUNK = 1 << 18  # elements worked on at a time: the temporaries stay in the cache


def lrn_across_forward(x, y, outer, channels, inner, size, alpha, beta, k) -> None:
    """y = x * (k + alpha / size * sum of x^2 over `size` channels) ^ -beta; arrays are (outer, channels, inner)."""
    for x_part, y_part in _chunks((outer, channels, inner), x, y):
        np.multiply(x_part, _power(_across_scale(x_part, size, alpha, k), beta), out=y_part)


def lrn_across_backward(x, dy, dx, outer, channels, inner, size, alpha, beta, k) -> None:
    """dx from x and dy; the scale is computed again from x."""
    for x_part, dy_part, dx_part in _chunks((outer, channels, inner), x, dy, dx):
        scale = _across_scale(x_part, size, alpha, k)
        np.multiply(dy_part, _power(scale, beta), out=dx_part)
        total = _window_sum(dx_part * x_part / scale, size, 1)
        total *= x_part
        total *= 2 * alpha * beta / size
        dx_part -= total


def lrn_within_forward(x, y, planes, height, width, size, alpha, beta) -> None:
    """y = x * (1 + alpha / size^2 * sum of x^2 over a size x size window) ^ -beta, in (planes, height, width)."""
    for x_part, y_part in _chunks((planes, height, width), x, y):
        np.multiply(x_part, _power(_within_scale(x_part, size, alpha), beta), out=y_part)


def lrn_within_backward(x, dy, dx, ratio, planes, height, width, size, alpha, beta) -> None:
    """dx from x and dy. `ratio` is workspace of x's size."""
    for x_part, dy_part, dx_part, ratio_part in _chunks((planes, height, width), x, dy, dx, ratio):
        scale = _within_scale(x_part, size, alpha)
        np.multiply(dy_part, _power(scale, beta), out=dx_part)
        np.multiply(dx_part, x_part, out=ratio_part)
        ratio_part /= scale
        total = _window_sum(_window_sum(ratio_part, size, 1), size, 2)
        total *= x_part
        total *= 2 * alpha * beta / size**2
        dx_part -= total


def _chunks(shape, *arrays):
    """The arrays as `shape`, a few items of axis 0 at a time."""
    arrays = [a.reshape(shape) for a in arrays]
    step = max(1, _CHUNK // max(1, shape[1] * shape[2]))
    for first in range(0, shape[0], step):
        yield [a[first : first + step] for a in arrays]


def _window_sum(values, size: int, axis: int):
    """The sum over a centred window of `size` (odd) along axis 1 or 2; nothing lies outside."""
    values = values.swapaxes(1, axis)
    length = values.shape[1]
    total = values.copy(order="K")
    for shift in range(1, min(size // 2, length - 1) + 1):
        total[:, shift:] += values[:, :-shift]
        total[:, :-shift] += values[:, shift:]
    return total.swapaxes(1, axis)


def _across_scale(x, size: int, alpha: float, k: float):
    scale = _window_sum(x * x, size, 1)
    scale *= alpha / size
    scale += k
    return scale


def _within_scale(x, size: int, alpha: float):
    scale = _window_sum(_window_sum(x * x, size, 1), size, 2)
    scale *= alpha / size**2
    scale += 1
    return scale


def _power(scale, beta: float):
    """scale ^ -beta. Caffe's default, 3/4, is two square roots: several times faster than a general power."""
    if beta == 0.75:
        root = np.sqrt(scale)
        root *= np.sqrt(root)
        return np.reciprocal(root, out=root)
    return scale**-beta
