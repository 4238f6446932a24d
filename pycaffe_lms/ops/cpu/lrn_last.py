"""Local response normalisation across channels that lie behind the other axes, on the CPU: on transposed copies."""

from __future__ import annotations

import numpy as np

from .lrn import lrn_across_backward, lrn_across_forward

__all__ = ["lrn_last_backward", "lrn_last_forward"]


def lrn_last_forward(x, y, rows, channels, size, alpha, beta, k) -> None:
    """y = x * (k + alpha / size * sum of x^2 over `size` channels) ^ -beta; arrays are (rows, channels)."""
    _run(lrn_across_forward, (x,), y, rows, channels, size, alpha, beta, k)


def lrn_last_backward(x, dy, dx, rows, channels, size, alpha, beta, k) -> None:
    """dx from x and dy; the scale is computed again from x."""
    _run(lrn_across_backward, (x, dy), dx, rows, channels, size, alpha, beta, k)


def _run(function, inputs, output, rows, channels, *numbers) -> None:
    if output.size == 0:
        return
    inputs = [np.ascontiguousarray(a.reshape(rows, channels).T) for a in inputs]
    result = np.empty((channels, rows), output.dtype)
    function(*inputs, result, 1, channels, rows, *numbers)
    np.copyto(output.reshape(rows, channels), result.T)
