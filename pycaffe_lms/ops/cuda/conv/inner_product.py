"""Fully connected layers on a GPU: x (m, k), y (m, n), w (n, k), or (k, n) when `transpose`; products by cuBLAS."""

from __future__ import annotations

from ....backend import cuda
from . import channel_bias

__all__ = [
    "inner_product_backward_bias",
    "inner_product_backward_data",
    "inner_product_backward_weight",
    "inner_product_forward",
]


def inner_product_forward(x, w, b, y, m, n, k, transpose) -> None:
    """y = x w' + b; b is None without a bias."""
    cuda.gemm(False, not transpose, m, n, k, 1.0, x, w, 0.0, y)
    if b is not None:
        channel_bias.add_bias(y, b, m, n, 1)


def inner_product_backward_data(dy, w, dx, m, n, k, transpose) -> None:
    """dx = dy w."""
    cuda.gemm(False, transpose, m, k, n, 1.0, dy, w, 0.0, dx)


def inner_product_backward_weight(x, dy, dw, m, n, k, transpose, accumulate) -> None:
    """dw (+)= dy' x (its transpose when `transpose`)."""
    beta = 1.0 if accumulate else 0.0
    if m == 0:
        if not accumulate:
            dw.fill(0)
    elif transpose:
        cuda.gemm(True, False, k, n, m, 1.0, x, dy, beta, dw)
    else:
        cuda.gemm(True, False, n, k, m, 1.0, dy, x, beta, dw)


def inner_product_backward_bias(dy, db, m, n, accumulate) -> None:
    """db (+)= the column sums of dy."""
    channel_bias.bias_gradient(dy, db, m, n, 1, accumulate)
