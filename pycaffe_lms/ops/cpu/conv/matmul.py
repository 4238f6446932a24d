"""Multiply stacks of matrices."""

from __future__ import annotations

import numpy as np
from numpy.lib.stride_tricks import as_strided

from ....arrays import HostArray
from ...product_plan import ProductPlan

__all__ = ["matmul"]


def matmul(a: HostArray, b: HostArray, y: HostArray, plan: ProductPlan) -> None:
    """Compute y = op(a) op(b) for the matrices of a plan."""
    if y.size == 0:
        return
    if plan.k == 0 or not plan.starts or plan.batch == 0:
        y.fill(0)
        return
    sizes = (plan.m, plan.k, plan.transpose_a), (plan.k, plan.n, plan.transpose_b), (plan.m, plan.n, False)
    for *at, adds in plan.starts:
        left, right, out = (
            _matrices(array, start, plan.batch, stride, *size)
            for array, start, stride, size in zip((a, b, y), at, plan.strides, sizes, strict=True)
        )
        if adds:
            out += np.matmul(left, right)
        else:
            np.matmul(left, right, out=out)


def _matrices(
    array: HostArray, start: int, batch: int, stride: int, rows: int, columns: int, turned: bool
) -> HostArray:
    """Return a view of `batch` matrices (rows, columns), of which `turned` ones lie in memory column by column."""
    flat, item = array.reshape(-1)[start:], array.itemsize
    steps = (item, rows * item) if turned else (columns * item, item)
    return as_strided(flat, (batch, rows, columns), (stride * item, *steps))
