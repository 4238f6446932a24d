"""Scale each channel by a factor, and add: arrays are seen as a grid whose `outer` is 1."""

from __future__ import annotations

import numpy as np

from ....arrays import HostArray
from ...records import Grid
from ..channels import row_slices

__all__ = ["axpy_forward", "axpy_backward"]


def axpy_forward(a: HostArray, x: HostArray, y: HostArray, out: HostArray, grid: Grid) -> None:
    """Compute out = a * x + y, with one factor a per channel."""
    _, rows, dim = grid
    out = out.reshape(rows, dim)
    np.multiply(x.reshape(rows, dim), a.reshape(rows, 1), out=out)
    out += y.reshape(rows, dim)


def axpy_backward(
    a: HostArray | None,
    x: HostArray | None,
    dout: HostArray,
    da: HostArray | None,
    dx: HostArray | None,
    dy: HostArray | None,
    work: HostArray | None,
    grid: Grid,
) -> None:
    """Compute da = sum of x * dout over each channel, dx = a * dout, dy = dout.

    Each may be None; only dy may be dout. x is read for da only, a for dx only. `work` holds the GPU's partial sums of
    da: channels * parts elements.
    """
    _, rows, dim = grid
    dout = dout.reshape(rows, dim)
    if da is not None:
        x, da = x.reshape(rows, dim), da.reshape(rows)
        for part in row_slices(rows, dim):
            (x[part] * dout[part]).sum(axis=1, out=da[part])
    if dx is not None:
        np.multiply(dout, a.reshape(rows, 1), out=dx.reshape(rows, dim))
    if dy is not None:
        np.copyto(dy.reshape(rows, dim), dout)
