"""Normalise local responses on a GPU.

Across channels a thread walks down SEGMENT channels of one position with the window in registers (its width is a
compile-time constant), so that each value is read about once. The window is summed again at each step: a running sum
would keep the rounding error of a large value that has left it. Within a channel a thread per pixel sums its window
from the cache.
"""

from __future__ import annotations

import functools
import math

from ....arrays import AnyArray
from ....backend import cuda
from ...axes import WIDEST_IN_REGISTERS, effective_width
from ...records import Grid, LocalResponse
from ..packs import PACK, packs_of
from ..source import DIVIDE, divider

__all__ = [
    "lrn_across_backward",
    "lrn_across_forward",
    "lrn_within_backward",
    "lrn_within_forward",
    "lrn_last_backward",
    "lrn_last_forward",
]

SEGMENT = 32  # channels per thread: enough to make the window's overlap cheap, few enough to fill a GPU at batch 1
AHEAD = 4  # channels whose loads are under way together

ACROSS = (
    DIVIDE
    + """
#define HALF (SIZE / 2)
const int UNROLL = SIZE <= 64 ? SIZE : 1;  // a wider window does not fit into registers anyway

__device__ inline A load(const T* x, long long c, long long channels, long long inner) {
  return c >= 0 && c < channels ? (A)x[c * inner] : (A)0;
}

// drop the oldest value, append one
template <int N> __device__ inline void push(A (&window)[N], A value) {
  #pragma unroll UNROLL
  for (int j = 0; j < N - 1; j++) window[j] = window[j + 1];
  window[N - 1] = value;
}

template <int N> __device__ inline A total(const A (&window)[N]) {
  A sum = 0;
  #pragma unroll UNROLL
  for (int j = 0; j < N; j++) sum += window[j];
  return sum;
}

// the window of squares around channel `before`
__device__ inline void fill(A (&squares)[SIZE], const T* x, long long before, long long channels, long long inner) {
  #pragma unroll UNROLL
  for (int j = 0; j < SIZE; j++) {
    const A value = load(x, before - HALF + j, channels, inner);
    squares[j] = value * value;
  }
}

// scale ^ -beta; Caffe's beta, 3/4, is two square roots: cheaper than a general power
__device__ inline A power(A scale, A beta) {
#if THREE_QUARTERS
  const A root = rsqrt(scale);
  return root * sqrt(root);
#else
  return pow(scale, -beta);
#endif
}

#define THREAD(i) \\
    const long long line = quotient(i, inner, i_magic, i_shift), o = quotient(line, segments, s_magic, s_shift); \\
    const long long position = (i) - line * inner, first = (line - o * segments) * SEGMENT; \\
    const long long last = first + SEGMENT < channels ? first + SEGMENT : channels; \\
    const long long start = o * channels * inner + position
#define SIZES long long n, long long channels, long long inner, long long i_magic, long long i_shift, \\
    long long segments, long long s_magic, long long s_shift, double share, double beta, double k

extern "C" __global__ void across_forward(const T* __restrict__ x, T* __restrict__ y, SIZES) {
  LOOP(i, n) {
    THREAD(i);
    const T* in = x + start;
    A squares[SIZE];
    fill(squares, in, first - 1, channels, inner);
    for (long long group = first; group < last; group += AHEAD) {
      A ahead[AHEAD], own[AHEAD];  // their loads are under way together
      #pragma unroll
      for (int j = 0; j < AHEAD; j++) {
        ahead[j] = load(in, group + j + HALF, channels, inner);
        own[j] = load(in, group + j, channels, inner);
      }
      #pragma unroll
      for (int j = 0; j < AHEAD; j++) {
        push(squares, ahead[j] * ahead[j]);
        const A scale = (A)k + (A)share * total(squares);
        if (group + j < last) y[start + (group + j) * inner] = (T)(own[j] * power(scale, (A)beta));
      }
    }
  }
}

extern "C" __global__ void across_backward(const T* __restrict__ x, const T* __restrict__ dy, T* __restrict__ dx,
                                           SIZES) {
  const A factor = (A)(2 * share * beta);
  LOOP(i, n) {
    THREAD(i);
    const T *in = x + start, *slope_in = dy + start;
    A squares[SIZE], ratios[SIZE], slopes[HALF + 1];  // x^2; dy y / scale; dy scale^-beta
    fill(squares, in, first - HALF - 1, channels, inner);
    #pragma unroll UNROLL
    for (int j = 0; j < SIZE; j++) ratios[j] = 0;
    #pragma unroll UNROLL
    for (int j = 0; j <= HALF; j++) slopes[j] = 0;
    for (long long group = first - HALF; group < last + HALF; group += AHEAD) {
      A ahead[AHEAD], own[AHEAD], slope[AHEAD], behind[AHEAD];
      #pragma unroll
      for (int j = 0; j < AHEAD; j++) {
        const long long s = group + j;  // runs HALF ahead of the channel that is written
        ahead[j] = load(in, s + HALF, channels, inner);
        own[j] = load(in, s, channels, inner);
        slope[j] = load(slope_in, s, channels, inner);
        behind[j] = load(in, s - HALF, channels, inner);
      }
      #pragma unroll
      for (int j = 0; j < AHEAD; j++) {
        const long long s = group + j, c = s - HALF;
        push(squares, ahead[j] * ahead[j]);
        A ratio = 0, steep = 0;
        if (s >= 0 && s < channels) {
          const A scale = (A)k + (A)share * total(squares);
          steep = slope[j] * power(scale, (A)beta);
          ratio = steep * own[j] / scale;
        }
        push(ratios, ratio);
        push(slopes, steep);
        if (c >= first && c < last) dx[start + c * inner] = (T)(slopes[0] - factor * behind[j] * total(ratios));
      }
    }
  }
}
"""
)

WITHIN = """
#define PIXEL(i) \\
    const long long plane = (i) / (height * width) * (height * width); \\
    const int h = (int)((i) / width % height), w = (int)((i) % width), half = (int)size / 2; \\
    const int top = h > half ? h - half : 0, left = w > half ? w - half : 0; \\
    const int bottom = h + half < (int)height ? h + half + 1 : (int)height; \\
    const int right = w + half < (int)width ? w + half + 1 : (int)width

extern "C" __global__ void within_forward(const T* x, T* y, long long n, long long height, long long width,
                                          long long size, double share, double beta) {
  LOOP(i, n) {
    PIXEL(i);
    A sum = 0;
    for (int a = top; a < bottom; a++)
      for (int b = left; b < right; b++) {
        const A value = x[plane + a * width + b];
        sum += value * value;
      }
    y[i] = (T)((A)x[i] * pow((A)1 + (A)share * sum, (A)-beta));
  }
}

// dx = dy scale^-beta, ratio = dy y / scale
extern "C" __global__ void within_ratio(const T* x, const T* dy, T* dx, T* ratio, long long n, long long height,
                                        long long width, long long size, double share, double beta) {
  LOOP(i, n) {
    PIXEL(i);
    A sum = 0;
    for (int a = top; a < bottom; a++)
      for (int b = left; b < right; b++) {
        const A value = x[plane + a * width + b];
        sum += value * value;
      }
    const A scale = (A)1 + (A)share * sum, slope = (A)dy[i] * pow(scale, (A)-beta);
    dx[i] = (T)slope;
    ratio[i] = (T)(slope * (A)x[i] / scale);
  }
}

extern "C" __global__ void within_backward(const T* x, const T* ratio, T* dx, long long n, long long height,
                                           long long width, long long size, double factor) {
  LOOP(i, n) {
    PIXEL(i);
    A sum = 0;
    for (int a = top; a < bottom; a++)
      for (int b = left; b < right; b++) sum += ratio[plane + a * width + b];
    dx[i] = (T)((A)dx[i] - (A)factor * (A)x[i] * sum);
  }
}
"""


def lrn_across_forward(x: AnyArray, y: AnyArray, grid: Grid, lrn: LocalResponse) -> None:
    """Compute y = x * (k + alpha / size * sum of x^2 over `size` channels) ^ -beta."""
    _run_across("across_forward", (x, y), grid, lrn)


def lrn_across_backward(x: AnyArray, dy: AnyArray, dx: AnyArray, grid: Grid, lrn: LocalResponse) -> None:
    """Compute dx from x and dy; the scale is computed again from x."""
    _run_across("across_backward", (x, dy, dx), grid, lrn)


def lrn_within_forward(x: AnyArray, y: AnyArray, shape: tuple[int, int, int], lrn: LocalResponse) -> None:
    """Compute y = x * (1 + alpha / size^2 * sum of x^2 over a window size x size) ^ -beta."""
    (_, height, width), (size, alpha, beta, _) = shape, lrn
    n, share = math.prod(shape), alpha / size**2
    cuda.launch(WITHIN, "within_forward", x.dtype, n, x, y, n, height, width, size, share, beta)


def lrn_within_backward(
    x: AnyArray,
    dy: AnyArray,
    dx: AnyArray,
    ratio: AnyArray,
    shape: tuple[int, int, int],
    lrn: LocalResponse,
) -> None:
    """Compute dx from x and dy. `ratio` is workspace of x's size."""
    (_, height, width), (size, alpha, beta, _) = shape, lrn
    n, share = math.prod(shape), alpha / size**2
    cuda.launch(WITHIN, "within_ratio", x.dtype, n, x, dy, dx, ratio, n, height, width, size, share, beta)
    cuda.launch(WITHIN, "within_backward", x.dtype, n, x, ratio, dx, n, height, width, size, 2 * share * beta)


def _run_across(name: str, arrays: tuple[AnyArray, ...], grid: Grid, lrn: LocalResponse) -> None:
    (outer, channels, inner), (size, alpha, beta, k) = grid, lrn
    segments = (channels + SEGMENT - 1) // SEGMENT
    n = outer * segments * inner
    sizes = (n, channels, *divider(inner, n), *divider(segments, n))
    source = _compiled(effective_width(size, channels), beta == 0.75)
    cuda.launch(source, name, arrays[0].dtype, n, *arrays, *sizes, alpha / size, beta, k)


@functools.cache
def _compiled(width: int, three_quarters: bool) -> str:
    constants = {"SIZE": width, "SEGMENT": f"{SEGMENT}LL", "AHEAD": AHEAD, "THREE_QUARTERS": int(three_quarters)}
    return "".join(f"#define {name} {value}\n" for name, value in constants.items()) + ACROSS


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


def lrn_last_forward(x: AnyArray, y: AnyArray, grid: Grid, lrn: LocalResponse) -> None:
    """Compute y = x * (k + alpha / size * sum of x^2 over `size` channels) ^ -beta, of arrays whose `inner` is 1."""
    (rows, channels, _), (size, alpha, beta, k) = grid, lrn
    n = packs_of(channels, x, y)
    packs = rows * channels // n
    numbers = (packs, *divider(channels // n, packs), alpha / size, beta, k)
    cuda.launch(_source(n, size, channels, beta), "forward", x.dtype, packs, x, y, *numbers)


def lrn_last_backward(x: AnyArray, dy: AnyArray, dx: AnyArray, grid: Grid, lrn: LocalResponse) -> None:
    """Compute dx from x and dy; the scale is computed again from x."""
    (rows, channels, _), (size, alpha, beta, k) = grid, lrn
    n = packs_of(channels, x, dy, dx)
    packs, reach = rows * channels // n, -(-(effective_width(size, channels) // 2) // n)
    numbers = (packs, *divider(channels // n, packs), alpha / size, beta, k)
    source, blocks = _source(n, size, channels, beta), -(-packs // (BLOCK - 2 * reach))
    cuda.launch(source, "backward", x.dtype, 0, x, dy, dx, *numbers, block=BLOCK, grid=blocks)


def _source(n: int, size: int, channels: int, beta: float) -> str:
    width = effective_width(size, channels)
    assert width <= WIDEST_IN_REGISTERS, "the layer takes channels last only for windows that fit"
    return _compiled_last(n, width, beta == 0.75)


@functools.cache
def _compiled_last(n: int, width: int, three_quarters: bool) -> str:
    """Return the source for a window of `width`; for Caffe's beta, 3/4, two square roots are cheaper than a power."""
    return f"#define N {n}\n#define SIZE {width}\n#define THREE_QUARTERS {int(three_quarters)}\n{PACK}{DIVIDE}{SOURCE}"
