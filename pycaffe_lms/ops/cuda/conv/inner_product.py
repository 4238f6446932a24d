"""Compute fully connected layers on a GPU by cuBLAS: x (m, k), y (m, n), w (n, k), or (k, n) if `transpose`."""

from __future__ import annotations

import numpy as np
from numpy.typing import DTypeLike

from ....arrays import AnyArray
from ....backend import cuda
from ...records import Grid
from .. import bias_relu
from .channel_bias import conv_bias_gradient

__all__ = [
    "inner_product_backward_bias",
    "inner_product_backward_data",
    "inner_product_backward_weight",
    "inner_product_forward",
    "product_half_plan",
]


def product_half_plan(dtype: DTypeLike) -> bool:
    """Return whether this device multiplies bfloat16 arrays of a net of `dtype`, with sums in float32."""
    return np.dtype(dtype) == np.float32 and cuda.knows_bfloat16() and cuda.math() == "tf32"


def inner_product_forward(
    x: AnyArray, w: AnyArray, b: AnyArray | None, y: AnyArray, m: int, n: int, k: int, transpose: bool
) -> None:
    """Compute y = x w' + b; no bias where b is None."""
    cuda.gemm(False, not transpose, m, n, k, 1.0, x, w, 0.0, y)
    if b is not None:
        bias_relu.forward(y, b, False, Grid(m, n, 1))


def inner_product_backward_data(
    dy: AnyArray, w: AnyArray, dx: AnyArray, m: int, n: int, k: int, transpose: bool, accumulate: bool
) -> None:
    """Write to dx, or add if `accumulate`, dy w. Of bfloat16 arrays a device may round dy w before it adds it."""
    cuda.gemm(False, transpose, m, k, n, 1.0, dy, w, 1.0 if accumulate else 0.0, dx)


def inner_product_backward_weight(
    x: AnyArray, dy: AnyArray, dw: AnyArray, m: int, n: int, k: int, transpose: bool, accumulate: bool
) -> None:
    """Write to dw, or add if `accumulate`, dy' x (its transpose if `transpose`)."""
    beta = 1.0 if accumulate else 0.0
    if m == 0:
        if not accumulate:
            dw.fill(0)
    elif transpose:
        cuda.gemm(True, False, k, n, m, 1.0, x, dy, beta, dw)
    else:
        cuda.gemm(True, False, n, k, m, 1.0, dy, x, beta, dw)


def inner_product_backward_bias(
    dy: AnyArray, db: AnyArray, m: int, n: int, accumulate: bool, work: AnyArray | None = None
) -> None:
    """Write to db, or add if `accumulate`, the column sums of dy.

    work: n * reduction_parts(m, n, 1) elements of db's type; without it a few blocks add up all rows, which is slow
    where rows are many.
    """
    grid = Grid(m, n, 1)
    if work is None:
        conv_bias_gradient(dy, db, grid, accumulate)
    else:
        bias_relu.backward(None, None, dy, None, db, accumulate, work, grid)
