"""Normalise mean and variance of the rows of (rows, dim)."""

from __future__ import annotations

import numpy as np

from ....arrays import HostArray
from ..channels import row_slices

__all__ = ["mvn_forward", "mvn_backward"]


def mvn_forward(
    x: HostArray, y: HostArray, inv_std: HostArray, work: HostArray, variance: bool, eps: float, rows: int, dim: int
) -> None:
    """Compute y = (x - mean) * inv_std, inv_std = 1 / (std + eps), or 1 without `variance`; y may be x.

    `work` holds the GPU's partial sums: 2 * rows * (parts + 1) elements.
    """
    if dim == 0:
        inv_std.fill(1)
        return
    x, y = x.reshape(rows, dim), y.reshape(rows, dim)
    for part in row_slices(rows, dim):
        np.subtract(x[part], x[part].mean(axis=1, keepdims=True), out=y[part])
        if not variance:
            inv_std[part] = 1
            continue
        with np.errstate(divide="ignore", invalid="ignore"):
            inv_std[part] = 1 / (np.sqrt(np.square(y[part]).mean(axis=1, dtype=np.float64)) + eps)
            y[part] *= inv_std[part, None]


def mvn_backward(
    y: HostArray | None, dy: HostArray, dx: HostArray, inv_std: HostArray | None, work: HostArray, rows: int, dim: int
) -> None:
    """Compute dx = (dy - mean(dy) - y * mean(dy * y)) * inv_std, or dy - mean(dy) without inv_std; dx may be dy."""
    if dim == 0:
        return
    dy, dx = dy.reshape(rows, dim), dx.reshape(rows, dim)
    for part in row_slices(rows, dim):
        mean = dy[part].mean(axis=1, keepdims=True)
        if inv_std is None:
            np.subtract(dy[part], mean, out=dx[part])
            continue
        out = y.reshape(rows, dim)[part]
        mean = mean + out * (dy[part] * out).mean(axis=1, keepdims=True)
        np.multiply(dy[part] - mean, inv_std[part, None], out=dx[part])
