"""Compute fully connected layers on the CPU: x (m, k), y (m, n), w (n, k), or (k, n) if `transpose`."""

from __future__ import annotations

import numpy as np
from numpy.typing import DTypeLike

from ....arrays import HostArray
from ..channels import write_gradient
from . import few_rows
from .blas import piece, pieces_of, spread

__all__ = [
    "inner_product_backward_bias",
    "inner_product_backward_data",
    "inner_product_backward_weight",
    "inner_product_forward",
    "product_half_plan",
]

_PIECE = 128  # least rows or columns in one product of a thread


def product_half_plan(dtype: DTypeLike) -> bool:
    """Return whether this device multiplies bfloat16 arrays of a net of `dtype`: yes, in float32."""
    return True


def inner_product_forward(
    x: HostArray, w: HostArray, b: HostArray | None, y: HostArray, m: int, n: int, k: int, transpose: bool
) -> None:
    """Compute y = x w' + b; no bias where b is None."""
    y = y.reshape(m, n)
    _times(x.reshape(m, k), w, y, not transpose, False)
    if b is not None:
        y += b.reshape(n)


def inner_product_backward_data(
    dy: HostArray, w: HostArray, dx: HostArray, m: int, n: int, k: int, transpose: bool, accumulate: bool
) -> None:
    """Write to dx, or add if `accumulate`, dy w. Of bfloat16 arrays a device may round dy w before it adds it."""
    _times(dy.reshape(m, n), w, dx.reshape(m, k), transpose, accumulate)


def inner_product_backward_weight(
    x: HostArray, dy: HostArray, dw: HostArray, m: int, n: int, k: int, transpose: bool, accumulate: bool
) -> None:
    """Write to dw, or add if `accumulate`, dy' x (its transpose if `transpose`)."""
    a, b = x.reshape(m, k), dy.reshape(m, n)
    if not transpose:
        a, b = b, a
    dw = dw.reshape(a.shape[1], b.shape[1])
    if few_rows.worthwhile(m, n, k):
        few_rows.outer(a, b, dw, accumulate)
    elif accumulate:
        dw += np.matmul(a.T, b)
    else:
        _multiply(a.T, b, dw, False)


def inner_product_backward_bias(
    dy: HostArray, db: HostArray, m: int, n: int, accumulate: bool, work: HostArray | None = None
) -> None:
    """Write to db, or add if `accumulate`, the column sums of dy.

    work: for the GPU, n * reduction_parts(m, n, 1) elements.
    """
    # in double, for NumPy adds one row after the other
    write_gradient(db, dy.reshape(m, n).sum(axis=0, dtype=np.float64), accumulate)


def _times(a: HostArray, w: HostArray, out: HostArray, transposed: bool, accumulate: bool) -> None:
    """Write to out (m, columns), or add if `accumulate`, a (m, rows) w, or a times the transpose of w as it lies in
    memory."""
    shape = (out.shape[1], a.shape[1]) if transposed else (a.shape[1], out.shape[1])
    w = w.reshape(shape)
    if few_rows.worthwhile(len(a), *shape):
        (few_rows.times_transposed if transposed else few_rows.times)(a, w, out, accumulate)
    else:
        _multiply(a, w.T if transposed else w, out, accumulate)


def _multiply(a: HostArray, b: HostArray, out: HostArray, accumulate: bool) -> None:
    """Write a b to out, or add it if `accumulate`, in threads, in pieces of the longer side of out."""
    spread(_products, _pieces(out), a, b, out, accumulate)


def _pieces(out: HostArray) -> int:
    return pieces_of(max(out.shape), _PIECE)


def _products(first: int, last: int, a: HostArray, b: HostArray, out: HostArray, accumulate: bool) -> None:
    for i in range(first, last):
        rows, columns = slice(None), slice(None)
        if out.shape[0] > out.shape[1]:
            rows = piece(out.shape[0], _pieces(out), i)
        else:
            columns = piece(out.shape[1], _pieces(out), i)
        if accumulate:
            out[rows, columns] += np.matmul(a[rows], b[:, columns])
        else:
            np.matmul(a[rows], b[:, columns], out=out[rows, columns])
