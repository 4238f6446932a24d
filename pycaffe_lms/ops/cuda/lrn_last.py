"""Local response normalisation across channels that lie behind the other axes, on a GPU: one pass over the data.

A thread works on N neighbouring channels of a row and reads those around from the cache; every window is summed anew
(see `lrn.py`). Backward needs dy y / scale of the channels around: the threads of a block hand each other theirs
through shared memory, and REACH threads at both ends of a block work for their neighbours alone.
"""

from __future__ import annotations

import functools

from ...backend import cuda
from ..channel_window import WIDEST_IN_REGISTERS, effective_width
from .packs import PACK, packs_of
from .source import DIVIDE, divider

__all__ = ["lrn_last_backward", "lrn_last_forward"]

BLOCK = 256

SOURCE = """
#define HALF (SIZE / 2)
#define REACH ((HALF + N - 1) / N)  // packs to either side that hold the windows of a pack
#define WIDTH ((2 * REACH + 1) * N)

// scale ^ -beta
__device__ inline A power(A scale, A beta) {
#if THREE_QUARTERS
  const A root = rsqrt(scale);
  return root * sqrt(root);
#else
  return pow(scale, -beta);
#endif
}

// k + share * the sum of x^2 over the channels around each of pack i, which is pack `lane` of its row; own: pack i
__device__ inline void scales(const T* x, long long i, int lane, int packs, A share, A k, Values& own, A (&scale)[N]) {
  A squares[WIDTH];
  #pragma unroll
  for (int d = -REACH; d <= REACH; d++) {
    Values values;
    #pragma unroll
    for (int j = 0; j < N; j++) values.v[j] = 0;
    if (lane + d >= 0 && lane + d < packs) values = ((const Values*)x)[i + d];
    if (d == 0) own = values;
    #pragma unroll
    for (int j = 0; j < N; j++) squares[(d + REACH) * N + j] = (A)values.v[j] * (A)values.v[j];
  }
  #pragma unroll
  for (int j = 0; j < N; j++) {
    A sum = 0;
    #pragma unroll
    for (int s = -HALF; s <= HALF; s++) sum += squares[REACH * N + j + s];
    scale[j] = k + share * sum;
  }
}

extern "C" __global__ void forward(const T* __restrict__ x, T* __restrict__ y, long long n, long long packs,
                                   long long magic, long long shift, double share, double beta, double k) {
  LOOP(i, n) {
    const int lane = (int)(i - quotient(i, packs, magic, shift) * packs);
    Values value;
    A scale[N];
    scales(x, i, lane, (int)packs, (A)share, (A)k, value, scale);
    #pragma unroll
    for (int j = 0; j < N; j++) value.v[j] = (T)((A)value.v[j] * power(scale[j], (A)beta));
    ((Values*)y)[i] = value;
  }
}

extern "C" __global__ void backward(const T* __restrict__ x, const T* __restrict__ dy, T* __restrict__ dx, long long n,
                                    long long packs, long long magic, long long shift, double share, double beta,
                                    double k) {
  __shared__ Pack<C, N> ratios[256];  // dy y / scale
  const int t = threadIdx.x;
  const long long i = (long long)blockIdx.x * (256 - 2 * REACH) + t - REACH;
  const int lane = i >= 0 && i < n ? (int)(i - quotient(i, packs, magic, shift) * packs) : 0;
  Values value;
  Pack<C, N> slope, ratio;
  #pragma unroll
  for (int j = 0; j < N; j++) ratio.v[j] = 0;
  if (i >= 0 && i < n) {
    A scale[N];
    const Values gradient = ((const Values*)dy)[i];
    scales(x, i, lane, (int)packs, (A)share, (A)k, value, scale);
    #pragma unroll
    for (int j = 0; j < N; j++) {
      slope.v[j] = (C)gradient.v[j] * power(scale[j], (A)beta);
      ratio.v[j] = slope.v[j] * (C)value.v[j] / scale[j];
    }
  }
  ratios[t] = ratio;
  __syncthreads();
  if (t < REACH || t >= 256 - REACH || i >= n) return;
  A around[WIDTH];
  #pragma unroll
  for (int d = -REACH; d <= REACH; d++) {
    const bool inside = lane + d >= 0 && lane + d < (int)packs;
    const Pack<C, N> values = ratios[t + d];
    #pragma unroll
    for (int j = 0; j < N; j++) around[(d + REACH) * N + j] = inside ? (A)values.v[j] : (A)0;
  }
  const A factor = (A)(2 * share * beta);
  #pragma unroll
  for (int j = 0; j < N; j++) {
    A sum = 0;
    #pragma unroll
    for (int s = -HALF; s <= HALF; s++) sum += around[REACH * N + j + s];
    value.v[j] = (T)(slope.v[j] - factor * (C)value.v[j] * sum);
  }
  ((Values*)dx)[i] = value;
}
"""


def lrn_last_forward(x, y, rows, channels, size, alpha, beta, k) -> None:
    """y = x * (k + alpha / size * sum of x^2 over `size` channels) ^ -beta; arrays are (rows, channels)."""
    n = packs_of(channels, x, y)
    packs = rows * channels // n
    numbers = (packs, *divider(channels // n, packs), alpha / size, beta, k)
    cuda.launch(_source(n, size, channels, beta), "forward", x.dtype, packs, x, y, *numbers)


def lrn_last_backward(x, dy, dx, rows, channels, size, alpha, beta, k) -> None:
    """dx from x and dy; the scale is computed again from x."""
    n = packs_of(channels, x, dy, dx)
    packs, reach = rows * channels // n, -(-(effective_width(size, channels) // 2) // n)
    numbers = (packs, *divider(channels // n, packs), alpha / size, beta, k)
    source, blocks = _source(n, size, channels, beta), -(-packs // (BLOCK - 2 * reach))
    cuda.launch(source, "backward", x.dtype, 0, x, dy, dx, *numbers, block=BLOCK, grid=blocks)


def _source(n: int, size: int, channels: int, beta: float) -> str:
    width = effective_width(size, channels)
    assert width <= WIDEST_IN_REGISTERS, "the layer takes channels last only for windows that fit"
    return _compiled(n, width, beta == 0.75)


@functools.cache
def _compiled(n: int, width: int, three_quarters: bool) -> str:
    """Caffe's beta, 3/4, is two square roots: cheaper than a general power."""
    return f"#define N {n}\n#define SIZE {width}\n#define THREE_QUARTERS {int(three_quarters)}\n{PACK}{DIVIDE}{SOURCE}"
