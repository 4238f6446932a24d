"""Multiply stacks of matrices on a GPU by cuBLAS."""

from __future__ import annotations

from ....arrays import AnyArray
from ....backend import cuda
from ...product_plan import ProductPlan

__all__ = ["matmul"]


def matmul(a: AnyArray, b: AnyArray, y: AnyArray, plan: ProductPlan) -> None:
    """Compute y = op(a) op(b) for the matrices of a plan."""
    if y.size == 0:
        return
    if plan.k == 0 or not plan.starts or plan.batch == 0:
        y.fill(0)
        return
    op, (m, n, k), (step_a, step_b, step_y) = (
        (plan.transpose_a, plan.transpose_b),
        (plan.m, plan.n, plan.k),
        plan.strides,
    )
    a, b, y = (x.reshape(-1) for x in (a, b, y))
    for in_a, in_b, in_y, adds in plan.starts:
        arrays = a[in_a:], step_a, b[in_b:], step_b, 1.0 if adds else 0.0, y[in_y:], step_y
        cuda.gemm_batched(*op, m, n, k, 1.0, *arrays, plan.batch)
