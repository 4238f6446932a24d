"""Sample maps bilinearly at the places to which an affine transformation takes a grid.

Places are computed in float64, with the same roundings on every device, since slopes jump where they are whole numbers.
"""

from __future__ import annotations

import numpy as np

from ....arrays import HostArray
from ...records import Affinity
from ..compiled import kernel
from ..threads import parallel

__all__ = ["affine_sample_backward", "affine_sample_backward_theta", "affine_sample_forward"]


def affine_sample_forward(x: HostArray, theta: HostArray, y: HostArray, affinity: Affinity) -> None:
    """Compute y (N, C, oh, ow) = x (N, C, H, W) at (u, v), bilinearly, with zeros around x.

    For output (p, q), (g, k) = (2 p / oh - 1, 2 q / ow - 1), u = (m0 g + m1 k + m2 + 1) / 2 * H and v = (m3 g + m4 k +
    m5 + 1) / 2 * W. m0 to m5: the numbers of `affinity` that are not NaN, and in order those of theta for the item.
    """
    matrices = _matrices(theta, affinity)
    parallel(_forward, x.shape[0] * x.shape[1], x, matrices, y)


def affine_sample_backward(theta: HostArray, dy: HostArray, dx: HostArray, affinity: Affinity) -> None:
    """Compute dx = for each input, the sum of dy * its weight."""
    parallel(_backward, dx.shape[0] * dx.shape[1], _matrices(theta, affinity), dy, dx)


def affine_sample_backward_theta(
    x: HostArray, theta: HostArray, dy: HostArray, dtheta: HostArray, work: HostArray, affinity: Affinity
) -> None:
    """Compute the gradient of theta. work (N, SAMPLE_PARTS, 6), in float64: the GPU's partial sums."""
    total = np.zeros((x.shape[0], 6))
    parallel(_theta, x.shape[0], x, _matrices(theta, affinity), dy, total)
    own = np.isnan(affinity)
    dtheta.reshape(x.shape[0], own.sum())[...] = total[:, own]


def _matrices(theta: HostArray, affinity: Affinity) -> HostArray:
    """Return the six numbers of each item, in float64."""
    found = np.tile(np.array(affinity), (len(theta), 1))
    own = np.isnan(affinity)
    found[:, own] = theta.reshape(len(theta), own.sum())
    return found


@kernel
def _place(m: HostArray, p: int, q: int, out_h: int, out_w: int, height: int, width: int) -> tuple[float, float]:
    g, k = 2.0 * p / out_h - 1.0, 2.0 * q / out_w - 1.0
    u, v = m[0] * g + m[1] * k + m[2], m[3] * g + m[4] * k + m[5]
    return (u + 1.0) / 2.0 * height, (v + 1.0) / 2.0 * width


@kernel
def _near(u: float, size: int) -> bool:
    return u > -1.0 and u < size  # false for NaN


@kernel
def _forward(first: int, last: int, x: HostArray, matrices: HostArray, y: HostArray) -> None:
    channels, height, width = x.shape[1:]
    for plane in range(first, last):
        n, c = plane // channels, plane % channels
        for p in range(y.shape[2]):
            for q in range(y.shape[3]):
                u, v = _place(matrices[n], p, q, y.shape[2], y.shape[3], height, width)
                total = 0.0
                if _near(u, height) and _near(v, width):
                    top, left = int(np.floor(u)), int(np.floor(v))
                    for h in range(top, top + 2):
                        for w in range(left, left + 2):
                            if 0 <= h < height and 0 <= w < width:
                                total += (1 - abs(u - h)) * (1 - abs(v - w)) * x[n, c, h, w]
                y[n, c, p, q] = total


@kernel
def _backward(first: int, last: int, matrices: HostArray, dy: HostArray, dx: HostArray) -> None:
    channels, height, width = dx.shape[1:]
    total = np.empty((height, width), np.float64)
    for plane in range(first, last):
        n, c = plane // channels, plane % channels
        total[:] = 0
        for p in range(dy.shape[2]):
            for q in range(dy.shape[3]):
                u, v = _place(matrices[n], p, q, dy.shape[2], dy.shape[3], height, width)
                if _near(u, height) and _near(v, width):
                    top, left = int(np.floor(u)), int(np.floor(v))
                    for h in range(top, top + 2):
                        for w in range(left, left + 2):
                            if 0 <= h < height and 0 <= w < width:
                                total[h, w] += (1 - abs(u - h)) * (1 - abs(v - w)) * dy[n, c, p, q]
        for h in range(height):
            for w in range(width):
                dx[n, c, h, w] = total[h, w]


@kernel
def _theta(first: int, last: int, x: HostArray, matrices: HostArray, dy: HostArray, total: HostArray) -> None:
    channels, height, width = x.shape[1:]
    for n in range(first, last):
        for p in range(dy.shape[2]):
            for q in range(dy.shape[3]):
                u, v = _place(matrices[n], p, q, dy.shape[2], dy.shape[3], height, width)
                if not (_near(u, height) and _near(v, width)):
                    continue
                top, left = int(np.floor(u)), int(np.floor(v))
                du = dv = 0.0
                for c in range(channels):
                    for h in range(top, top + 2):
                        for w in range(left, left + 2):
                            if 0 <= h < height and 0 <= w < width:
                                value = np.float64(x[n, c, h, w]) * dy[n, c, p, q]
                                du += (1.0 if h > top else -1.0) * (1 - abs(v - w)) * value
                                dv += (1.0 if w > left else -1.0) * (1 - abs(u - h)) * value
                du, dv = du * height / 2, dv * width / 2
                g, k = 2.0 * p / dy.shape[2] - 1.0, 2.0 * q / dy.shape[3] - 1.0
                total[n, 0] += du * g
                total[n, 1] += du * k
                total[n, 2] += du
                total[n, 3] += dv * g
                total[n, 4] += dv * k
                total[n, 5] += dv
