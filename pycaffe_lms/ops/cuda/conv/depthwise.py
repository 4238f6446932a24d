"""Convolve depthwise on a GPU: direct kernels, without columns or products of matrices.

Arrays are those of `conv.py`, with one channel per group; for bfloat16 images weights and their gradient are float32.
Kernels are compiled for one kernel size, stride, pad and dilation. A thread works on a strip of rows in one column, so
that a row it has read serves several outputs. Every sum has a fixed order: the weights' gradient is added up in parts
whose number follows from the shapes, by a tree within each.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass

import numpy as np
from numpy.typing import DTypeLike

from ....arrays import AnyArray
from ....backend import cuda
from ...geometry import ConvGeometry
from ..source import BLOCK_SUM, DIVIDE, divider

__all__ = ["depthwise_backward_data", "depthwise_backward_filter", "depthwise_forward", "depthwise_plan"]

BLOCK = 256
_UNROLLED = 49  # taps up to which a thread holds all their sums
_BLOCKS = 2048  # blocks that fill any GPU
_EACH = 1 << 10, 1 << 16  # strips of one part: at least (while there are blocks enough), at most

SOURCE = """
#define DIVISOR(d) long long d, long long d##_magic, long long d##_shift
#define TAKE(at, d) /* at = rest % d; rest /= d */ \\
    const long long d##_rest = quotient(rest, d, d##_magic, d##_shift); \\
    const int at = (int)(rest - d##_rest * d); \\
    rest = d##_rest;

// one thread per column of STRIP outputs
extern "C" __global__ void forward(const T* x, const C* w, const C* b, T* y, long long use_bias, long long relu,
                                   long long n, DIVISOR(out_w), DIVISOR(strips), DIVISOR(out_d), DIVISOR(outputs),
                                   long long out_h, long long in_d, long long in_h, long long in_w) {
  LOOP(i, n) {
    long long rest = i;
    TAKE(ow, out_w) TAKE(strip, strips) TAKE(od, out_d)
    const long long plane = rest;
    TAKE(o, outputs)
    const T* in = x + (rest * (outputs / MULTIPLE) + o / MULTIPLE) * (in_d * in_h * in_w);
    const C* weight = w + (long long)o * TAPS;
    const int h0 = strip * STRIP * S_H - P_H, w0 = ow * S_W - P_W, d0 = od * S_D - P_D;
    A sum[STRIP] = {};
    #pragma unroll UNROLL
    for (int a = 0; a < K_D; a++)
      #pragma unroll UNROLL
      for (int e = 0; e < K_W; e++) {
        const int d = d0 + a * L_D, at = w0 + e * L_W;
        const bool inside = d >= 0 && d < (int)in_d && at >= 0 && at < (int)in_w;
        const long long first = ((long long)d * in_h + h0) * in_w + at;
        A value[ROWS];
        #pragma unroll
        for (int j = 0; j < ROWS; j++)
          value[j] = inside && h0 + j >= 0 && h0 + j < (int)in_h ? in[first + j * in_w] : (T)0;
        #pragma unroll
        for (int k = 0; k < K_H; k++) {
          const A tap = weight[(a * K_H + k) * K_W + e];
          #pragma unroll
          for (int r = 0; r < STRIP; r++) sum[r] += tap * value[r * S_H + k * L_H];
        }
      }
    const A bias = use_bias ? b[o] : (C)0;
    T* result = y + ((plane * out_d + od) * out_h + strip * STRIP) * out_w + ow;
    #pragma unroll
    for (int r = 0; r < STRIP; r++)
      if (strip * STRIP + r < (int)out_h) {
        const T value = (T)(sum[r] + bias);
        result[r * out_w] = relu && (C)value < 0 ? (T)0 : value;  // NaN stays
      }
  }
}

// one thread per column of BAND inputs, a multiple of S_H: so which taps meet which row is known to the compiler
extern "C" __global__ void backward_data(const T* dy, const C* w, T* dx, long long n, DIVISOR(in_w), DIVISOR(bands),
                                         DIVISOR(in_d), DIVISOR(channels), long long in_h, long long out_d,
                                         long long out_h, long long out_w) {
  LOOP(i, n) {
    long long rest = i;
    TAKE(iw, in_w) TAKE(band, bands) TAKE(id, in_d)
    const long long plane = rest;
    TAKE(c, channels)
    const int h0 = band * (BAND / S_H) + LOW;
    A sum[BAND] = {};
    for (int m = 0; m < MULTIPLE; m++) {
      const T* out = dy + (plane * MULTIPLE + m) * (out_d * out_h * out_w);
      const C* weight = w + ((long long)c * MULTIPLE + m) * TAPS;
      #pragma unroll UNROLL
      for (int a = 0; a < K_D; a++)
        #pragma unroll UNROLL
        for (int e = 0; e < K_W; e++) {
          const int d = id + P_D - a * L_D, at = iw + P_W - e * L_W;
          const bool inside = d >= 0 && d % S_D == 0 && d / S_D < (int)out_d && at >= 0 && at % S_W == 0 &&
                              at / S_W < (int)out_w;
          const long long first = ((long long)(d / S_D) * out_h + h0) * out_w + at / S_W;
          A value[BAND_ROWS];
          #pragma unroll
          for (int j = 0; j < BAND_ROWS; j++)
            value[j] = inside && h0 + j >= 0 && h0 + j < (int)out_h ? out[first + j * out_w] : (T)0;
          #pragma unroll
          for (int k = 0; k < K_H; k++) {
            const A tap = weight[(a * K_H + k) * K_W + e];
            #pragma unroll
            for (int r = 0; r < BAND; r++) {
              const int from = r + P_H - k * L_H - LOW * S_H;  // never negative
              if (from % S_H == 0) sum[r] += tap * value[from / S_H];
            }
          }
        }
    }
    T* result = dx + ((plane * in_d + id) * in_h + band * BAND) * in_w + iw;
    #pragma unroll
    for (int r = 0; r < BAND; r++)
      if (band * BAND + r < (int)in_h) result[r * in_w] = (T)sum[r];
  }
}

// one block per part, output channel and group of columns of taps; 256 threads
extern "C" __global__ void backward_filter(const T* x, const T* dy, C* parts, long long each, long long total,
                                           DIVISOR(out_w), DIVISOR(strips), DIVISOR(out_d), long long outputs,
                                           long long out_h, long long in_d, long long in_h, long long in_w) {
  __shared__ A warps[COLUMNS * K_H][8];
  const int group = (int)(blockIdx.x % GROUPS), o = (int)(blockIdx.x / GROUPS % outputs);
  const long long part = blockIdx.x / GROUPS / outputs, end = (part + 1) * each < total ? (part + 1) * each : total;
  A sum[COLUMNS][K_H] = {};
  for (long long j = part * each + threadIdx.x; j < end; j += blockDim.x) {
    long long rest = j;
    TAKE(ow, out_w) TAKE(strip, strips) TAKE(od, out_d)
    const T* in = x + (rest * (outputs / MULTIPLE) + o / MULTIPLE) * (in_d * in_h * in_w);
    const T* out = dy + (((rest * outputs + o) * out_d + od) * out_h + strip * STRIP) * out_w + ow;
    A gradient[STRIP];
    #pragma unroll
    for (int r = 0; r < STRIP; r++) gradient[r] = strip * STRIP + r < (int)out_h ? out[r * out_w] : (T)0;
    const int h0 = strip * STRIP * S_H - P_H, w0 = ow * S_W - P_W, d0 = od * S_D - P_D;
    #pragma unroll
    for (int q = 0; q < COLUMNS; q++) {
      const int column = GROUPS == 1 ? q : group;
      const int d = d0 + column / K_W * L_D, at = w0 + column % K_W * L_W;
      const bool inside = d >= 0 && d < (int)in_d && at >= 0 && at < (int)in_w;
      const long long first = ((long long)d * in_h + h0) * in_w + at;
      A value[ROWS];
      #pragma unroll
      for (int k = 0; k < ROWS; k++)
        value[k] = inside && h0 + k >= 0 && h0 + k < (int)in_h ? in[first + k * in_w] : (T)0;
      #pragma unroll
      for (int k = 0; k < K_H; k++)
        #pragma unroll
        for (int r = 0; r < STRIP; r++) sum[q][k] += gradient[r] * value[r * S_H + k * L_H];
    }
  }
  #pragma unroll
  for (int q = 0; q < COLUMNS; q++)
    #pragma unroll
    for (int k = 0; k < K_H; k++) {
      const A whole = warp_sum(sum[q][k]);
      if (threadIdx.x % 32 == 0) warps[q * K_H + k][threadIdx.x / 32] = whole;
    }
  __syncthreads();
  const int t = threadIdx.x;
  if (t < COLUMNS * K_H) {
    A whole = 0;
    for (int i = 0; i < 8; i++) whole += warps[t][i];
    const int column = GROUPS == 1 ? t / K_H : group, k = t % K_H;
    parts[(part * outputs + o) * TAPS + (column / K_W * K_H + k) * K_W + column % K_W] = (C)whole;
  }
}

extern "C" __global__ void add_parts(const T* parts, T* dw, long long count, long long n, long long accumulate) {
  LOOP(i, n) {
    double sum = 0;
    for (long long p = 0; p < count; p++) sum += parts[p * n + i];
    dw[i] = (T)(accumulate ? dw[i] + sum : sum);
  }
}
"""


@dataclass(frozen=True, slots=True)
class CudaDepthwisePlan:
    """Hold the compiled source, and how it cuts the work.

    A thread takes a `strip` of output rows, or a `band` of input rows. The weights' gradient is summed in `parts` of
    `each` strips (the last is shorter).
    """

    geometry: ConvGeometry
    source: str
    strip: int
    band: int
    groups: int
    parts: int
    each: int
    workspace_bytes: int


def depthwise_plan(geometry: ConvGeometry, dtype: DTypeLike, workspace_limit: int) -> CudaDepthwisePlan:
    """Plan how the kernels cut a convolution whose `geometry.depthwise` is true."""
    g = geometry.with_axes(3)
    taps, (_, kernel, _), stride = g.rows, g.kernel, g.stride[1]
    reach = g.dilation[1] * (kernel - 1)
    strip = next((s for s in (4, 2) if s <= g.out_spatial[1] and (s - 1) * stride + reach < 40), 1)
    band = stride * max(1, min(4, g.in_spatial[1]) // stride)
    groups = 1 if taps <= _UNROLLED else g.kernel[0] * g.kernel[2]
    strips = g.batch * g.out_spatial[0] * -(-g.out_spatial[1] // strip) * g.out_spatial[2]
    parts = max(min(strips // _EACH[0], _BLOCKS // (g.out_channels * groups)), -(-strips // _EACH[1]), min(strips, 1))
    each = -(-strips // max(parts, 1))
    size = parts * g.out_channels * taps * np.dtype(dtype).itemsize
    return CudaDepthwisePlan(geometry, _source(g, strip, band, groups), strip, band, groups, parts, each, size)


def depthwise_forward(
    plan: CudaDepthwisePlan,
    x: AnyArray,
    w: AnyArray,
    b: AnyArray | None,
    y: AnyArray,
    work: AnyArray | None,
    relu: bool = False,
) -> None:
    """Compute y = w * x (+ b), and set negative values to 0 if `relu`.

    x (N, C, *in), w (O, 1, *kernel), b (O) or None, y (N, O, *out).
    """
    g = plan.geometry.with_axes(3)
    strips = -(-g.out_spatial[1] // plan.strip)
    n = g.batch * g.out_channels * g.out_spatial[0] * strips * g.out_spatial[2]
    arrays = x, w, w if b is None else b, y  # w stands in for a bias: an argument that the kernel never reads
    sizes = _dividers(n, g.out_spatial[2], strips, g.out_spatial[0], g.out_channels)
    flags = int(b is not None), int(relu)
    cuda.launch(plan.source, "forward", y.dtype, n, *arrays, *flags, n, *sizes, g.out_spatial[1], *g.in_spatial)


def depthwise_backward_data(
    plan: CudaDepthwisePlan, dy: AnyArray, w: AnyArray, dx: AnyArray, work: AnyArray | None
) -> None:
    """Compute dx from dy, the transpose of `depthwise_forward`; every element of dx is written."""
    g = plan.geometry.with_axes(3)
    bands = -(-g.in_spatial[1] // plan.band)
    n = g.batch * g.channels * g.in_spatial[0] * bands * g.in_spatial[2]
    sizes = _dividers(n, g.in_spatial[2], bands, g.in_spatial[0], g.channels)
    cuda.launch(plan.source, "backward_data", dx.dtype, n, dy, w, dx, n, *sizes, g.in_spatial[1], *g.out_spatial)


def depthwise_backward_filter(
    plan: CudaDepthwisePlan, x: AnyArray, dy: AnyArray, dw: AnyArray, work: AnyArray | None, accumulate: bool
) -> None:
    """Write to dw (or add, if `accumulate`) the gradient of the weights, summed over images and positions."""
    g = plan.geometry.with_axes(3)
    strips = -(-g.out_spatial[1] // plan.strip)
    total = g.batch * g.out_spatial[0] * strips * g.out_spatial[2]
    parts = dw if work is None else work.view(dw.dtype)  # without images it is not read
    sizes = (
        *_dividers(total, g.out_spatial[2], strips, g.out_spatial[0]),
        g.out_channels,
        g.out_spatial[1],
        *g.in_spatial,
    )
    args, blocks = (x, dy, parts, plan.each, total, *sizes), plan.parts * g.out_channels * plan.groups
    cuda.launch(plan.source, "backward_filter", x.dtype, 0, *args, grid=blocks, block=BLOCK)
    cuda.launch(plan.source, "add_parts", dw.dtype, dw.size, parts, dw, plan.parts, dw.size, int(accumulate))


def _dividers(n: int, *sizes: int) -> tuple[int, ...]:
    return tuple(number for size in sizes for number in divider(size, n))


@functools.cache
def _source(g: ConvGeometry, strip: int, band: int, groups: int) -> str:
    """Return the kernels for one kernel size, stride, pad and dilation; other sizes are their parameters."""
    numbers = {
        f"{letter}_{axis}": values[i]
        for letter, values in (("K", g.kernel), ("S", g.stride), ("P", g.pad), ("L", g.dilation))
        for i, axis in enumerate("DHW")
    }
    reach, stride, pad = g.dilation[1] * (g.kernel[1] - 1), g.stride[1], g.pad[1]
    low = (pad - reach) // stride
    numbers |= {
        "TAPS": g.rows,
        "MULTIPLE": g.group_outputs,
        "UNROLL": g.rows if g.rows <= _UNROLLED else 1,
        "STRIP": strip,
        "ROWS": (strip - 1) * stride + reach + 1,
        "BAND": band,
        "LOW": low,  # the output row of a band's first value, counted from the band's first row
        "BAND_ROWS": (band - 1 + pad) // stride - low + 1,
        "GROUPS": groups,
        "COLUMNS": g.kernel[0] * g.kernel[2] if groups == 1 else 1,
    }
    return (
        "".join(f"constexpr int {name} = {value};\n" for name, value in numbers.items()) + BLOCK_SUM + DIVIDE + SOURCE
    )
