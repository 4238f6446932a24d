"""Sample maps bilinearly where a flow leads: y at (row, column) is x at (row + v, column + u).

Places are computed in the type of the arrays, weights and sums in float64.
"""

from __future__ import annotations

import math

import numpy as np

from ....arrays import HostArray
from ...records import Warping
from ..compiled import kernel
from ..threads import parallel

__all__ = ["warp_backward", "warp_backward_flow", "warp_forward"]


def warp_forward(x: HostArray, flow: HostArray, y: HostArray, how: Warping) -> None:
    """Compute y (N, C, H, W) = x at the places where the flow (N, 2, H, W; columns, then rows) leads.

    Places outside have how.fill; see `Warping`.
    """
    parallel(_forward, x.shape[0] * x.shape[1], x, flow, y, how.whole_pixels, y.dtype.type(how.fill))


def warp_backward(flow: HostArray, dy: HostArray, dx: HostArray, work: HostArray, how: Warping) -> None:
    """Compute dx = for each input, the sum of dy * its weight.

    work: (N, 3 * H * W), uint32, of the GPU: which outputs come from between which inputs.
    """
    parallel(_backward, dx.shape[0] * dx.shape[1], flow, dy, dx, how.whole_pixels)


def warp_backward_flow(x: HostArray, flow: HostArray, dy: HostArray, dflow: HostArray, how: Warping) -> None:
    """Compute the gradient of the flow, 0 where it leads outside.

    At whole numbers slopes jump. There it is that to the right, or below; with how.whole_pixels the mean of both sides,
    of which one beyond the border counts as 0.
    """
    parallel(_flow, x.shape[0] * x.shape[2], x, flow, dy, dflow, how.whole_pixels)


@kernel
def _place(flow: HostArray, n: int, h: int, w: int, whole: bool) -> tuple[bool, float, float]:
    """Return whether the place to which the flow leads from (h, w) is inside, and its column and row."""
    height, width = flow.shape[2:]
    x, y = flow.dtype.type(w) + flow[n, 0, h, w], flow.dtype.type(h) + flow[n, 1, h, w]
    if whole:
        return x >= 0 and y >= 0 and x <= width - 1 and y <= height - 1, x, y
    return x >= 0 and y >= 0 and x < width and y < height, x, y


@kernel
def _around(x: float, size: int, whole: bool) -> tuple[int, int, float]:
    """Return the inputs on both sides of a place, and the weight of the second."""
    low = math.floor(x)
    share = np.float64(x) - low
    high = low + 1 if share > 0 or not whole else low
    return low, min(high, size - 1), share


@kernel
def _forward(first: int, last: int, x: HostArray, flow: HostArray, y: HostArray, whole: bool, fill: float) -> None:
    channels, height, width = x.shape[1:]
    for plane in range(first, last):
        n, c = plane // channels, plane % channels
        for h in range(height):
            for w in range(width):
                inside, column, row = _place(flow, n, h, w, whole)
                if not inside:
                    y[n, c, h, w] = fill
                    continue
                left, right, across = _around(column, width, whole)
                top, bottom, down = _around(row, height, whole)
                above = (1 - across) * x[n, c, top, left] + across * x[n, c, top, right]
                below = (1 - across) * x[n, c, bottom, left] + across * x[n, c, bottom, right]
                y[n, c, h, w] = (1 - down) * above + down * below


@kernel
def _backward(first: int, last: int, flow: HostArray, dy: HostArray, dx: HostArray, whole: bool) -> None:
    channels, height, width = dx.shape[1:]
    total = np.empty((height, width), np.float64)
    for plane in range(first, last):
        n, c = plane // channels, plane % channels
        total[:] = 0
        for h in range(height):
            for w in range(width):
                inside, column, row = _place(flow, n, h, w, whole)
                if not inside:
                    continue
                left, right, across = _around(column, width, whole)
                top, bottom, down = _around(row, height, whole)
                slope = np.float64(dy[n, c, h, w])
                total[top, left] += (1 - down) * (1 - across) * slope
                total[top, right] += (1 - down) * across * slope
                total[bottom, left] += down * (1 - across) * slope
                total[bottom, right] += down * across * slope
        for h in range(height):
            for w in range(width):
                dx[n, c, h, w] = total[h, w]


@kernel
def _flow(first: int, last: int, x: HostArray, flow: HostArray, dy: HostArray, dflow: HostArray, whole: bool) -> None:
    channels, height, width = x.shape[1:]
    for line in range(first, last):
        n, h = line // height, line % height
        for w in range(width):
            inside, column, row = _place(flow, n, h, w, whole)
            du = dv = 0.0
            if inside:
                left, right, across = _around(column, width, whole)
                top, bottom, down = _around(row, height, whole)
                # at whole pixels: half of the difference between both neighbours, or to the one that there is
                first_column, last_column, columns = left, right, 1.0
                if whole and across == 0:
                    first_column, last_column, columns = max(left - 1, 0), min(left + 1, width - 1), 0.5
                first_row, last_row, rows = top, bottom, 1.0
                if whole and down == 0:
                    first_row, last_row, rows = max(top - 1, 0), min(top + 1, height - 1), 0.5
                for c in range(channels):
                    slope = np.float64(dy[n, c, h, w])
                    above = np.float64(x[n, c, top, last_column]) - x[n, c, top, first_column]
                    below = np.float64(x[n, c, bottom, last_column]) - x[n, c, bottom, first_column]
                    du += columns * ((1 - down) * above + down * below) * slope
                    before = np.float64(x[n, c, last_row, left]) - x[n, c, first_row, left]
                    behind = np.float64(x[n, c, last_row, right]) - x[n, c, first_row, right]
                    dv += rows * ((1 - across) * before + across * behind) * slope
            dflow[n, 0, h, w], dflow[n, 1, h, w] = du, dv
