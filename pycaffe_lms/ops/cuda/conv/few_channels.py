"""Compute the weights' gradient of a convolution of few channels and taps, such as a net's first.

Tensor cores have little to multiply there: on an H200 cuDNN's engines took 3.7 ms for 256 images of 3 x 224 x 224, 32
outputs, 3x3, where this takes 0.8. (Spread over blocks for 7x7 taps it was no faster than cuDNN's.) Arrays are
channels-last. A block walks over rows of outputs: it holds the rows of x that they read in shared memory, its warps
share out the positions of a row, and each thread holds the sums of 8 outputs with some of the taps. Sums have a fixed
order: blocks write parts, whose number follows from the shapes, and `ADD_PARTS` adds them up.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass

import numpy as np
from numpy.typing import DTypeLike

from ....arrays import AnyArray
from ....backend import cuda
from ...geometry import ConvGeometry
from .depthwise_source import ADD_PARTS

_BLOCK = 256
_EACH = 8  # outputs of a thread
_TAPS = 8  # most taps of a thread
_CHANNELS = 4  # most channels of x
_LEAST = 1 << 14  # positions of all images from which the kernel pays
_PARTS = 1056  # blocks that fill any GPU
_SHARED = 8192  # most values of x in shared memory

SOURCE = """
// PER_LANE taps and 8 outputs per thread; a warp covers all OUTPUTS and TAPS
extern "C" __global__ void __launch_bounds__(256, 2) few_channels(const T* __restrict__ x, const T* __restrict__ dy,
                                                                  C* __restrict__ parts, long long each,
                                                                  long long total) {
  enum { WARPS = 8, AHEAD = 4, GROUPS = OUTPUTS / 8, LANES = 32 / GROUPS, WIDTH = (CHUNK - 1) * S_W * CHANNELS + SPAN };
  enum { OF_LOAD = 16 / sizeof(T), LOADS = 8 / OF_LOAD };
  struct alignas(16) Load { T v[OF_LOAD]; };
  __shared__ C rows[K_D * K_H][WIDTH];
  __shared__ C sums[OUTPUTS * TAPS];
  const int warp = threadIdx.x / 32, group = threadIdx.x % 32 % GROUPS, lane = threadIdx.x % 32 / GROUPS;
  int place[PER_LANE];
  #pragma unroll
  for (int k = 0; k < PER_LANE; k++) {
    const int t = lane * PER_LANE + k < TAPS ? lane * PER_LANE + k : 0;
    const int along = t % (K_W * CHANNELS);
    place[k] = t / (K_W * CHANNELS) * WIDTH + along / CHANNELS * L_W * CHANNELS + along % CHANNELS;
  }
  C sum[PER_LANE][8] = {};
  const long long end = (blockIdx.x + 1) * each < total ? (blockIdx.x + 1) * each : total;
  for (long long row = blockIdx.x * each; row < end; row++) {
    long long rest = row;
    const int chunk = rest % CHUNKS; rest /= CHUNKS;
    const int h = rest % OUT_H; rest /= OUT_H;
    const int d = rest % OUT_D; rest /= OUT_D;
    const int first = chunk * CHUNK, count = OUT_W - first < CHUNK ? OUT_W - first : CHUNK;
    const int begin = (first * S_W - P_W) * CHANNELS;
    __syncthreads();
    for (int i = threadIdx.x; i < K_D * K_H * WIDTH; i += 256) {
      const int line = i / WIDTH, at = begin + i % WIDTH;
      const int in_d = d * S_D - P_D + line / K_H * L_D, in_h = h * S_H - P_H + line % K_H * L_H;
      const bool inside = (unsigned)in_d < IN_D && (unsigned)in_h < IN_H && (unsigned)at < IN_W * CHANNELS;
      rows[line][i % WIDTH] = inside ? (C)x[((rest * IN_D + in_d) * IN_H + in_h) * (IN_W * CHANNELS) + at] : (C)0;
    }
    __syncthreads();
    const T* out = dy + (((rest * OUT_D + d) * OUT_H + h) * OUT_W + first) * OUTPUTS + group * 8;
    for (int q = warp * AHEAD; q < count; q += WARPS * AHEAD) {
      Load gradient[AHEAD][LOADS];
      #pragma unroll
      for (int a = 0; a < AHEAD; a++)
        #pragma unroll
        for (int l = 0; l < LOADS; l++)
          if (q + a < count) gradient[a][l] = *(const Load*)(out + (q + a) * OUTPUTS + l * OF_LOAD);
      #pragma unroll
      for (int a = 0; a < AHEAD; a++) {
        if (q + a >= count) break;
        #pragma unroll
        for (int k = 0; k < PER_LANE; k++) {
          const C value = rows[0][place[k] + (q + a) * S_W * CHANNELS];
          #pragma unroll
          for (int o = 0; o < 8; o++) sum[k][o] += value * (C)gradient[a][o / OF_LOAD].v[o % OF_LOAD];
        }
      }
    }
  }
  for (int turn = 0; turn < WARPS; turn++) {
    if (warp == turn)
      #pragma unroll
      for (int k = 0; k < PER_LANE; k++)
        if (lane * PER_LANE + k < TAPS)
          #pragma unroll
          for (int o = 0; o < 8; o++) {
            C* to = &sums[(group * 8 + o) * TAPS + lane * PER_LANE + k];
            *to = turn ? *to + sum[k][o] : sum[k][o];
          }
    __syncthreads();
  }
  for (int i = threadIdx.x; i < OUTPUTS * TAPS; i += 256) parts[(long long)blockIdx.x * (OUTPUTS * TAPS) + i] = sums[i];
}
"""


@dataclass(frozen=True, slots=True)
class FewChannelsPlan:
    """Hold how the kernel cuts the work: `parts` blocks, each of `each` rows of at most `chunk` outputs."""

    geometry: ConvGeometry
    chunk: int
    parts: int
    each: int
    workspace_bytes: int


def plan(geometry: ConvGeometry, dtype: DTypeLike, workspace_limit: int) -> FewChannelsPlan | None:
    """Return how the kernel cuts a convolution; None where it cannot do it, or would not pay."""
    g = geometry.with_axes(3)
    taps, groups = g.rows, g.out_channels // _EACH
    if np.dtype(dtype) != np.float32 or not (
        g.channels_last and g.axes == 3 and g.group == 1 and g.channels <= _CHANNELS
    ):
        return None
    if g.out_channels % _EACH or groups not in (1, 2, 4, 8, 16) or -(-taps * groups // 32) > _TAPS:
        return None
    if g.batch * g.out_size < _LEAST:
        return None
    width = _SHARED // (g.kernel[0] * g.kernel[1]) - _span(g)
    chunk = min(g.out_spatial[2], width // (g.stride[2] * g.channels) + 1)
    if width < 0 or g.out_channels * taps > _SHARED // 2:
        return None
    rows = g.batch * g.out_spatial[0] * g.out_spatial[1] * -(-g.out_spatial[2] // chunk)
    part = 4 * g.out_channels * taps
    parts = min(rows, _PARTS, workspace_limit // part)
    if parts < 1:
        return None
    each = -(-rows // parts)
    parts = -(-rows // each)
    return FewChannelsPlan(geometry, chunk, parts, each, parts * part)


def backward_filter(
    plan: FewChannelsPlan, x: AnyArray, dy: AnyArray, dw: AnyArray, work: AnyArray, accumulate: bool
) -> None:
    """Write to dw (or add, if `accumulate`) the gradient of the weights, summed over images and positions.

    x (N, *in, C), dy (N, *out, O), dw (O, *kernel, C): float32, at multiples of 16 bytes. work: at least
    `workspace_bytes`.
    """
    g = plan.geometry.with_axes(3)
    rows = g.batch * g.out_spatial[0] * g.out_spatial[1] * -(-g.out_spatial[2] // plan.chunk)
    parts = work[: plan.workspace_bytes].view(dw.dtype)
    cuda.launch(_source(plan), "few_channels", x.dtype, 0, x, dy, parts, plan.each, rows, grid=plan.parts, block=_BLOCK)
    cuda.launch(
        ADD_PARTS, "add_parts", dw.dtype, 0, parts, dw, plan.parts, dw.size, int(accumulate), grid=-(-dw.size // 8)
    )


def _span(g: ConvGeometry) -> int:
    """Return how many neighbouring values of a row one output reads."""
    return (g.dilation[2] * (g.kernel[2] - 1) + 1) * g.channels


@functools.cache
def _source(plan: FewChannelsPlan) -> str:
    """Return the kernel for all sizes of a convolution but the batch's."""
    g = plan.geometry.with_axes(3)
    sizes = {
        f"{name}_{axis}": value
        for name, values in (("K", g.kernel), ("S", g.stride), ("P", g.pad), ("L", g.dilation))
        for axis, value in zip("DHW", values, strict=True)
    }
    for name, spatial in (("IN", g.in_spatial), ("OUT", g.out_spatial)):
        sizes |= {f"{name}_{axis}": n for axis, n in zip("DHW", spatial, strict=True)}
    sizes |= {
        "CHANNELS": g.channels,
        "OUTPUTS": g.out_channels,
        "TAPS": g.rows,
        "PER_LANE": -(-g.rows * (g.out_channels // _EACH) // 32),
        "SPAN": _span(g),
        "CHUNK": plan.chunk,
        "CHUNKS": -(-g.out_spatial[2] // plan.chunk),
    }
    return "".join(f"constexpr int {name} = {value};\n" for name, value in sizes.items()) + SOURCE
