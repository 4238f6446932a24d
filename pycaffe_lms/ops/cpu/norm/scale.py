"""Scale and shift arrays: one factor and one shift per channel."""

from __future__ import annotations

import numpy as np

from ....arrays import HostArray
from ...records import Affine, AffineGradients, Grid
from ..channels import channel_dots, channel_sums, over_rows, write_gradient
from ..compiled import BLOCK, kernel

__all__ = ["scale_forward", "scale_backward"]


def scale_forward(x: HostArray, affine: Affine, y: HostArray, grid: Grid) -> None:
    """Compute y = x * scale + bias; y may be x."""
    (s, b), (outer, channels, inner) = affine, grid
    if inner == 1:
        _few(x.reshape(outer, channels), s, b, y.reshape(outer, channels))
        return
    rows = outer * channels
    nothing = np.empty(0, x.dtype)
    factor = nothing if s is None else s.reshape(-1)
    shift = nothing if b is None else b.reshape(-1)
    over_rows(_scale, grid, x.reshape(rows, inner), factor, shift, y.reshape(rows, inner), channels)


def scale_backward(
    x: HostArray | None,
    scale: HostArray | None,
    dy: HostArray,
    dx: HostArray | None,
    gradients: AffineGradients,
    work: HostArray,
    grid: Grid,
) -> None:
    """Compute the gradients of scale and bias, and dx = dy * scale (dy where scale is None).

    Those of the scale and bias are the sums of x * dy and dy over outer and inner. Each of dx (which may be dy) and the
    gradients may be None. x is read for the gradient of the scale only, the scale for dx only. `work` holds the GPU's
    partial sums: channels * parts elements for each gradient.
    """
    ds, db, add_scale, add_bias = gradients
    if ds is not None:
        write_gradient(ds, channel_dots(x, dy, grid), add_scale)
    if db is not None:
        write_gradient(db, channel_sums(dy, grid), add_bias)
    if dx is not None and scale is None:
        np.copyto(dx.reshape(-1), dy.reshape(-1))
    elif dx is not None:
        scale_forward(dy, Affine(scale, None), dx, grid)


def _few(x: HostArray, s: HostArray | None, b: HostArray | None, y: HostArray) -> None:
    """Compute y = x * s + b for rows (outer, channels), by NumPy's broadcasting."""
    if s is not None:
        x = np.multiply(x, s.reshape(-1), out=y)
    if b is not None:
        np.add(x, b.reshape(-1), out=y)


@kernel
def _scale(first: int, last: int, x: HostArray, s: HostArray, b: HostArray, y: HostArray, dim: int) -> None:
    """Compute y = x * s + b; an empty s or b counts as none."""
    result = np.empty(BLOCK, x.dtype)
    for r in range(first, last):
        factor = s[r % dim] if s.size else x.dtype.type(1)
        shift = b[r % dim] if b.size else x.dtype.type(0)
        for start in range(0, x.shape[1], BLOCK):
            row = x[r, start : min(start + BLOCK, x.shape[1])]
            if b.size:
                for j in range(row.size):
                    result[j] = row[j] * factor + shift
            else:
                for j in range(row.size):
                    result[j] = row[j] * factor
            y[r, start : start + row.size] = result[: row.size]
