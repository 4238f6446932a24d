"""Convolve with weights of their own for each place."""

from __future__ import annotations

from ....arrays import HostArray
from ...records import LocalWindows
from ..compiled import kernel
from ..threads import parallel

__all__ = ["local_backward_input", "local_backward_weight", "local_forward"]


def local_forward(x: HostArray, w: HostArray, b: HostArray | None, y: HostArray, windows: LocalWindows) -> None:
    """Compute y (N, M, oh, ow) from x (N, C, H, W): y[n, m, p] = sum of x's window k at p * w[m, k, p] + b[m, p].

    w: (M, C * size * size, oh * ow), the elements of a window in the order of its axes. b: (M, oh * ow), or None.
    """
    weights = w.reshape(y.shape[1], x.shape[1], windows.size, windows.size, *y.shape[2:])
    if b is None:
        y[...] = 0
    else:
        y[...] = b.reshape(1, *y.shape[1:])
    parallel(_forward, y.shape[0] * y.shape[1], x, weights, y, *windows)


def local_backward_input(dy: HostArray, w: HostArray, dx: HostArray, windows: LocalWindows) -> None:
    """Compute dx (N, C, H, W) = for each element, the sum of dy * weight over the windows that hold it."""
    weights = w.reshape(dy.shape[1], dx.shape[1], windows.size, windows.size, *dy.shape[2:])
    dx[...] = 0
    parallel(_backward_input, dx.shape[0] * dx.shape[1], dy, weights, dx, *windows)


def local_backward_weight(x: HostArray, dy: HostArray, dw: HostArray, windows: LocalWindows, accumulate: bool) -> None:
    """Write to dw, or add if `accumulate`, the sum over items of dy * the window's element, shaped as `w`."""
    slopes = dw.reshape(dy.shape[1], x.shape[1], windows.size, windows.size, *dy.shape[2:])
    if not accumulate:
        slopes[...] = 0
    parallel(_backward_weight, slopes.shape[0] * slopes.shape[1], x, dy, slopes, *windows)


@kernel
def _forward(first: int, last: int, x: HostArray, w: HostArray, y: HostArray, size: int, stride: int, pad: int) -> None:
    for plane in range(first, last):
        n, m = plane // y.shape[1], plane % y.shape[1]
        for c in range(x.shape[1]):
            for j in range(size):
                for i in range(size):
                    for p in range(y.shape[2]):
                        h = p * stride + j - pad
                        if h < 0 or h >= x.shape[2]:
                            continue
                        for q in range(y.shape[3]):
                            v = q * stride + i - pad
                            if v >= 0 and v < x.shape[3]:
                                y[n, m, p, q] += x[n, c, h, v] * w[m, c, j, i, p, q]


@kernel
def _backward_input(
    first: int, last: int, dy: HostArray, w: HostArray, dx: HostArray, size: int, stride: int, pad: int
) -> None:
    for plane in range(first, last):
        n, c = plane // dx.shape[1], plane % dx.shape[1]
        for m in range(dy.shape[1]):
            for j in range(size):
                for i in range(size):
                    for p in range(dy.shape[2]):
                        h = p * stride + j - pad
                        if h < 0 or h >= dx.shape[2]:
                            continue
                        for q in range(dy.shape[3]):
                            v = q * stride + i - pad
                            if v >= 0 and v < dx.shape[3]:
                                dx[n, c, h, v] += dy[n, m, p, q] * w[m, c, j, i, p, q]


@kernel
def _backward_weight(
    first: int, last: int, x: HostArray, dy: HostArray, dw: HostArray, size: int, stride: int, pad: int
) -> None:
    for plane in range(first, last):
        m, c = plane // dw.shape[1], plane % dw.shape[1]
        for n in range(x.shape[0]):
            for j in range(size):
                for i in range(size):
                    for p in range(dy.shape[2]):
                        h = p * stride + j - pad
                        if h < 0 or h >= x.shape[2]:
                            continue
                        for q in range(dy.shape[3]):
                            v = q * stride + i - pad
                            if v >= 0 and v < x.shape[3]:
                                dw[m, c, j, i, p, q] += dy[n, m, p, q] * x[n, c, h, v]
