"""One factor per row of (rows, dim), and a sum."""

from __future__ import annotations

from ...backend.cuda import MAX_BLOCKS, launch
from .source import BLOCK_SUM, DIVIDE, divider

__all__ = ["axpy_forward", "axpy_backward_factor", "axpy_backward_data"]

_SOURCE = (
    BLOCK_SUM
    + DIVIDE
    + """
extern "C" __global__ void forward(const T* a, const T* x, const T* y, T* out, long long n, long long dim,
                                   long long magic, long long shift) {
  LOOP(i, n) out[i] = a[quotient(i, dim, magic, shift)] * x[i] + y[i];
}
extern "C" __global__ void scale(const T* a, const T* dy, T* dx, long long n, long long dim, long long magic,
                                 long long shift) {
  LOOP(i, n) dx[i] = a[quotient(i, dim, magic, shift)] * dy[i];
}
// short rows: a warp for each; whole warps stay together, because the stride of the loop is a multiple of 32
extern "C" __global__ void dot_warp(const T* x, const T* dy, T* da, long long rows, long long dim) {
  LOOP(i, rows * 32) {
    A sum = 0;
    for (long long k = i / 32 * dim + i % 32; k < (i / 32 + 1) * dim; k += 32) sum += (A)x[k] * dy[k];
    sum = warp_sum(sum);
    if (i % 32 == 0) da[i / 32] = (T)sum;
  }
}
// long rows: a block for each
extern "C" __global__ void dot_block(const T* x, const T* dy, T* da, long long rows, long long dim) {
  for (long long row = blockIdx.x; row < rows; row += gridDim.x) {
    A sum = 0;
    for (long long k = row * dim + threadIdx.x; k < (row + 1) * dim; k += 256) sum += (A)x[k] * dy[k];
    sum = block_sum(sum);
    if (threadIdx.x == 0) da[row] = (T)sum;
  }
}
"""
)
_SHORT = 1024


def axpy_forward(a, x, y, out, rows, dim):
    """out = a * x + y, a per row."""
    launch(_SOURCE, "forward", out.dtype, out.size, a, x, y, out, out.size, *divider(dim, out.size))


def axpy_backward_factor(x, dy, da, rows, dim):
    """da = sum of x * dy over each row."""
    if dim <= _SHORT:
        launch(_SOURCE, "dot_warp", da.dtype, rows * 32, x, dy, da, rows, dim)
    else:
        launch(_SOURCE, "dot_block", da.dtype, 0, x, dy, da, rows, dim, block=256, grid=min(rows, MAX_BLOCKS))


def axpy_backward_data(a, dy, dx, rows, dim):
    """dx = a * dy, a per row."""
    launch(_SOURCE, "scale", dx.dtype, dx.size, a, dy, dx, dx.size, *divider(dim, dx.size))
