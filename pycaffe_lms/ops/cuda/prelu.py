"""ReLU with one slope per channel of arrays seen as (outer, dim, inner).

Backward reads x and dy once: the kernel that writes dx also adds up the slopes' gradients, cut into parts and walked as
in `channels.py`. `work` holds dim * parts elements.
"""

from __future__ import annotations

from ...backend.cuda import launch
from ..parts import reduction_parts
from .channels import WALK, stage_two
from .source import BLOCK_SUM, DIVIDE, divider

__all__ = ["prelu_forward", "prelu_backward"]

_SOURCE = (
    BLOCK_SUM
    + DIVIDE
    + WALK
    + """
extern "C" __global__ void prelu_forward(const T* x, const T* a, T* y, long long n, long long inner,
                                         long long i_magic, long long i_shift, long long dim, long long d_magic,
                                         long long d_shift) {
  LOOP(i, n) {
    long long row = quotient(i, inner, i_magic, i_shift), c = row - quotient(row, dim, d_magic, d_shift) * dim;
    T v = x[i];
    y[i] = (v < 0 ? (T)0 : v) + a[c] * (v > 0 ? (T)0 : v);  // NaN passes both comparisons
  }
}
__device__ T visit(T v, T g, T slope, T* dx, long long want_dx) {  // writes dx; returns what the slope's gradient gets
  if (want_dx) *dx = g * (v > 0 ? (T)1 : v <= 0 ? slope : (T)0);
  return g * (v > 0 ? (T)0 : v);
}
extern "C" __global__ void rows(const T* x, const T* a, const T* dy, T* dx, T* work, long long want_dx,
                                long long want_da, long long outer, long long dim, long long inner,
                                long long parts) {
  const T slope = want_dx ? a[blockIdx.x / parts] : (T)0;
  A sum = 0;
  for (Walk w(outer, dim, inner, blockIdx.x / parts, blockIdx.x % parts, parts); w.more(); w.next()) {
    long long i = w.index();
    sum += visit(x[i], dy[i], slope, dx + i, want_dx);
  }
  if (!want_da) return;
  sum = block_sum(sum);
  if (threadIdx.x == 0) work[blockIdx.x] = sum;
}
extern "C" __global__ void columns(const T* x, const T* a, const T* dy, T* dx, T* work, long long want_dx,
                                   long long want_da, long long outer, long long dim, long long parts) {
  __shared__ A sums[256];
  long long share = (outer + parts - 1) / parts, part = blockIdx.x % parts;
  long long channel = blockIdx.x / parts * 32 + threadIdx.x % 32;
  long long end = part * share + share < outer ? part * share + share : outer;
  A sum = 0;
  if (channel < dim) {
    const T slope = want_dx ? a[channel] : (T)0;
    for (long long o = part * share + threadIdx.x / 32; o < end; o += 8) {
      long long i = o * dim + channel;
      sum += visit(x[i], dy[i], slope, dx + i, want_dx);
    }
  }
  if (!want_da) return;
  sums[threadIdx.x] = sum;
  __syncthreads();
  if (threadIdx.x >= 32 || channel >= dim) return;
  for (int row = 1; row < 8; ++row) sum += sums[threadIdx.x + 32 * row];
  work[channel * parts + part] = sum;
}
"""
)


def prelu_forward(x, a, y, outer, dim, inner):
    """y = max(x, 0) + a * min(x, 0); y may be x."""
    n = y.size
    launch(_SOURCE, "prelu_forward", y.dtype, n, x, a, y, n, *divider(inner, n), *divider(dim, n))


def prelu_backward(x, a, dy, dx, da, accumulate, work, outer, dim, inner):
    """da (+)= sum over outer and inner of dy * x where x <= 0; dx = dy * (1 where x > 0, a where x <= 0, 0 at NaN).

    dx or da may be None; a is read for dx only; dx may be dy. `work` is for the GPU's partial sums: dim * parts
    elements.
    """
    want_dx, want_da = dx is not None, da is not None
    parts = 0  # sums of nothing are zero
    if x.size:
        parts = reduction_parts(outer, dim, inner)
        arrays = (x, a if want_dx else x, dy, dx if want_dx else x, work)  # x stands in for what is not touched
        size = (outer, dim, parts) if inner == 1 else (outer, dim, inner, parts)
        name, grid = ("columns", (dim + 31) // 32 * parts) if inner == 1 else ("rows", dim * parts)
        launch(_SOURCE, name, x.dtype, 0, *arrays, int(want_dx), int(want_da), *size, block=256, grid=grid)
    if want_da:
        stage_two(work, 0, da, 0, 1.0, accumulate, dim, parts)
