"""Reduce the rows of (rows, dim) to sums of x (SUM), |x| (ASUM) or x^2 (SUMSQ)."""

from __future__ import annotations

from ....arrays import AnyArray
from ....backend.cuda import launch
from ...sum_parts import reduction_parts
from ..channels import stage_two
from ..elementwise import elementwise, run
from ..source import BLOCK_SUM, DIVIDE, divider

__all__ = ["reduction_forward", "reduction_backward"]

_SHORT = 1024  # rows up to this length are a warp's work each
_KINDS = {"SUM": 0, "ASUM": 1, "SUMSQ": 2}

_SOURCE = (
    BLOCK_SUM
    + """
__device__ A term(A v, long long kind) { return kind == 0 ? v : kind == 1 ? fabs(v) : v * v; }
// one block for each part of a row
extern "C" __global__ void long_rows(const T* x, T* work, long long kind, long long dim, long long parts) {
  long long share = (dim + parts - 1) / parts, at = blockIdx.x % parts * share;
  long long end = at + share < dim ? at + share : dim;
  x += blockIdx.x / parts * dim;
  A sum = 0;
  for (long long i = at + threadIdx.x; i < end; i += 256) sum += term(x[i], kind);
  sum = block_sum(sum);
  if (threadIdx.x == 0) work[blockIdx.x] = sum;
}
// one warp for each row
extern "C" __global__ void short_rows(const T* x, T* y, long long kind, double coeff, long long rows, long long dim) {
  LOOP(i, rows * 32) {
    long long row = i / 32;
    A sum = 0;
    for (long long k = i % 32; k < dim; k += 32) sum += term(x[row * dim + k], kind);
    sum = warp_sum(sum);
    if (i % 32 == 0) y[row] = (T)(sum * coeff);
  }
}
"""
)
_SLOPES = {  # the gradient from g = coeff * dy; ASUM: 0 at 0, NaN at NaN
    "SUM": "g",
    "ASUM": "x > 0 ? g : x < 0 ? -g : x * g",
    "SUMSQ": "g * (2 * x)",
}
_BACKWARD = {
    kind: elementwise(
        "backward",
        f"const T g = (T)(dy[quotient(i, dim, magic, shift)] * coeff); dx = {slope};",
        reads="" if kind == "SUM" else "x",
        writes="dx",
        params="const T* dy, double coeff, long long dim, long long magic, long long shift",
        helpers=DIVIDE,
    )
    for kind, slope in _SLOPES.items()
}


def reduction_forward(x: AnyArray, y: AnyArray, kind: str, coeff: float, work: AnyArray, rows: int, dim: int) -> None:
    """Compute y[row] = coeff * sum of f(x[row]). `work` holds the GPU's partial sums: rows * parts elements."""
    if dim <= _SHORT:
        launch(_SOURCE, "short_rows", x.dtype, rows * 32, x, y, _KINDS[kind], float(coeff), rows, dim)
        return
    parts = reduction_parts(1, rows, dim)
    args = (x, work, _KINDS[kind], dim, parts)
    launch(_SOURCE, "long_rows", x.dtype, 0, *args, block=256, grid=rows * parts)
    stage_two(work, 0, y, 0, coeff, False, rows, parts)


def reduction_backward(
    x: AnyArray | None, dy: AnyArray, dx: AnyArray, kind: str, coeff: float, rows: int, dim: int
) -> None:
    """Compute dx = coeff * dy[row] * f'(x); f' of ASUM is the sign of x. x is None for SUM."""
    arrays = (dx,) if kind == "SUM" else (x, dx)
    run(_BACKWARD[kind], "backward", arrays, dy, float(coeff), *divider(dim, rows * dim))
