"""Fully connected layers on the CPU: x (m, k), y (m, n), w (n, k), or (k, n) when `transpose`."""

from __future__ import annotations

import numpy as np

from .blas import piece, pieces_of, spread

__all__ = [
    "inner_product_backward_bias",
    "inner_product_backward_data",
    "inner_product_backward_weight",
    "inner_product_forward",
]

_PIECE = 128  # least rows or columns in one product of a thread


def inner_product_forward(x, w, b, y, m, n, k, transpose) -> None:
    """y = x w' + b; b is None without a bias."""
    y = y.reshape(m, n)
    _multiply(x.reshape(m, k), w.reshape(k, n) if transpose else w.reshape(n, k).T, y)
    if b is not None:
        y += b.reshape(n)


def inner_product_backward_data(dy, w, dx, m, n, k, transpose) -> None:
    """dx = dy w."""
    _multiply(dy.reshape(m, n), w.reshape(k, n).T if transpose else w.reshape(n, k), dx.reshape(m, k))


def inner_product_backward_weight(x, dy, dw, m, n, k, transpose, accumulate) -> None:
    """dw (+)= dy' x (its transpose when `transpose`)."""
    a, b = x.reshape(m, k), dy.reshape(m, n)
    if not transpose:
        a, b = b, a
    dw = dw.reshape(a.shape[1], b.shape[1])
    if accumulate:
        dw += np.matmul(a.T, b)
    else:
        _multiply(a.T, b, dw)


def inner_product_backward_bias(dy, db, m, n, accumulate) -> None:
    """db (+)= the column sums of dy."""
    total = dy.reshape(m, n).sum(axis=0, dtype=np.float64).astype(db.dtype)  # NumPy adds rows one by one: in double
    db = db.reshape(n)
    if accumulate:
        db += total
    else:
        db[...] = total


def _multiply(a, b, out) -> None:
    """out = a b, in pieces of the longer side of out, in threads."""
    spread(_products, _pieces(out), a, b, out)


def _pieces(out) -> int:
    return pieces_of(max(out.shape), _PIECE)


def _products(first, last, a, b, out) -> None:
    for i in range(first, last):
        rows, columns = slice(None), slice(None)
        if out.shape[0] > out.shape[1]:
            rows = piece(out.shape[0], _pieces(out), i)
        else:
            columns = piece(out.shape[1], _pieces(out), i)
        np.matmul(a[rows], b[:, columns], out=out[rows, columns])
