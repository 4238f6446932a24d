"""Fully connected layers on the CPU: x (m, k), y (m, n), w (n, k), or (k, n) when `transpose`."""

from __future__ import annotations

import numpy as np

__all__ = [
    "inner_product_backward_bias",
    "inner_product_backward_data",
    "inner_product_backward_weight",
    "inner_product_forward",
]


def inner_product_forward(x, w, b, y, m, n, k, transpose) -> None:
    """y = x w' + b; b is None without a bias."""
    y = y.reshape(m, n)
    np.matmul(x.reshape(m, k), w.reshape(k, n) if transpose else w.reshape(n, k).T, out=y)
    if b is not None:
        y += b.reshape(n)


def inner_product_backward_data(dy, w, dx, m, n, k, transpose) -> None:
    """dx = dy w."""
    np.matmul(dy.reshape(m, n), w.reshape(k, n).T if transpose else w.reshape(n, k), out=dx.reshape(m, k))


def inner_product_backward_weight(x, dy, dw, m, n, k, transpose, accumulate) -> None:
    """dw (+)= dy' x (its transpose when `transpose`)."""
    a, b = x.reshape(m, k), dy.reshape(m, n)
    if not transpose:
        a, b = b, a
    dw = dw.reshape(a.shape[1], b.shape[1])
    if accumulate:
        dw += np.matmul(a.T, b)
    else:
        np.matmul(a.T, b, out=dw)


def inner_product_backward_bias(dy, db, m, n, accumulate) -> None:
    """db (+)= the column sums of dy."""
    total = dy.reshape(m, n).sum(axis=0, dtype=np.float64).astype(db.dtype)  # NumPy adds rows one by one: in double
    db = db.reshape(n)
    if accumulate:
        db += total
    else:
        db[...] = total
