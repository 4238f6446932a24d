"""One factor per row of (rows, dim), and a sum."""

from __future__ import annotations

import numpy as np

__all__ = ["axpy_forward", "axpy_backward_factor", "axpy_backward_data"]


def axpy_forward(a, x, y, out, rows, dim):
    """out = a * x + y, a per row."""
    out = out.reshape(rows, dim)
    np.multiply(x.reshape(rows, dim), a.reshape(rows, 1), out=out)
    out += y.reshape(rows, dim)


def axpy_backward_factor(x, dy, da, rows, dim):
    """da = sum of x * dy over each row."""
    da = da.reshape(rows)
    step = max(1, (1 << 18) // max(1, dim))
    for i in range(0, rows, step):
        part = slice(i, i + step)
        (x.reshape(rows, dim)[part] * dy.reshape(rows, dim)[part]).sum(axis=1, out=da[part])


def axpy_backward_data(a, dy, dx, rows, dim):
    """dx = a * dy, a per row."""
    np.multiply(dy.reshape(rows, dim), a.reshape(rows, 1), out=dx.reshape(rows, dim))
