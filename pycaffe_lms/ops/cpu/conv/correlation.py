"""Compare each place of one map with places around it in another."""

from __future__ import annotations

import numpy as np

from ....arrays import HostArray
from ...records import Displacements
from ..compiled import kernel
from ..threads import parallel

__all__ = ["correlation_backward", "correlation_forward"]


def correlation_forward(a: HostArray, b: HostArray, y: HostArray, ways: Displacements) -> None:
    """Compute y (N, D, oh, ow) from a and b (N, C, H, W): the mean of a * b, or |a - b|, over channels and a window.

    Both maps have `pad` zeros around them. Output (d, p, q) compares the window of a whose corner is at (p, q) * step +
    reach with that of b which is displaced by (d / across - across / 2, d % across - across / 2) * stride; quotients
    are rounded down.
    """
    parallel(_forward, y.shape[0] * y.shape[1], a, b, y, *ways)


def correlation_backward(
    a: HostArray, b: HostArray, dy: HostArray, dx: HostArray, second: bool, ways: Displacements
) -> None:
    """Compute dx, of b if `second`, else of a: the sum of dy * the other value, or the sign of the difference."""
    parallel(_backward, dx.shape[0] * dx.shape[1], a, b, dy, dx, second, *ways)


@kernel
def _forward(
    first: int,
    last: int,
    a: HostArray,
    b: HostArray,
    y: HostArray,
    pad: int,
    window: int,
    reach: int,
    step: int,
    stride: int,
    across: int,
    differ: bool,
) -> None:
    channels, height, width = a.shape[1:]
    total = np.empty(y.shape[3], np.float64)
    for plane in range(first, last):
        n, d = plane // y.shape[1], plane % y.shape[1]
        down, right = (d // across - across // 2) * stride, (d % across - across // 2) * stride
        for p in range(y.shape[2]):
            total[:] = 0
            for c in range(channels):
                for j in range(window):
                    h = p * step + reach + j - pad
                    for i in range(window):
                        for q in range(y.shape[3]):
                            w = q * step + reach + i - pad
                            here = 0.0
                            if 0 <= h < height and 0 <= w < width:
                                here = np.float64(a[n, c, h, w])
                            there = 0.0
                            if 0 <= h + down < height and 0 <= w + right < width:
                                there = np.float64(b[n, c, h + down, w + right])
                            total[q] += abs(here - there) if differ else here * there
            for q in range(y.shape[3]):
                y[n, d, p, q] = total[q] / (window * window * channels)


@kernel
def _backward(
    first: int,
    last: int,
    a: HostArray,
    b: HostArray,
    dy: HostArray,
    dx: HostArray,
    second: bool,
    pad: int,
    window: int,
    reach: int,
    step: int,
    stride: int,
    across: int,
    differ: bool,
) -> None:
    channels, height, width = a.shape[1:]
    total = np.empty((height, width), np.float64)
    for plane in range(first, last):
        n, c = plane // channels, plane % channels
        total[:] = 0
        for d in range(dy.shape[1]):
            down, right = (d // across - across // 2) * stride, (d % across - across // 2) * stride
            for p in range(dy.shape[2]):
                for j in range(window):
                    h = p * step + reach + j - pad
                    mine_h = h + down if second else h
                    if mine_h < 0 or mine_h >= height:
                        continue
                    for q in range(dy.shape[3]):
                        for i in range(window):
                            w = q * step + reach + i - pad
                            mine_w = w + right if second else w
                            if mine_w < 0 or mine_w >= width:
                                continue
                            here = 0.0
                            if 0 <= h < height and 0 <= w < width:
                                here = np.float64(a[n, c, h, w])
                            there = 0.0
                            if 0 <= h + down < height and 0 <= w + right < width:
                                there = np.float64(b[n, c, h + down, w + right])
                            slope = here if second else there
                            if differ:
                                slope = (1.0 if here > there else -1.0) if here != there else 0.0
                                slope = -slope if second else slope
                            total[mine_h, mine_w] += slope * dy[n, d, p, q]
        for h in range(height):
            for w in range(width):
                dx[n, c, h, w] = total[h, w] / (window * window * channels)
