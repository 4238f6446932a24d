"""Interpolate bilinearly between corner points: the corners of a window are the corners of the result."""

from __future__ import annotations

from ....arrays import AnyArray
from ....backend.cuda import launch
from ...records import StretchedWindow
from ..elementwise import QUADS
from ..packs import aligned
from ..source import BLOCK_SUM, DIVIDE, divider

__all__ = ["interp_backward", "interp_forward"]

_LANES = 32  # threads for one input that has more outputs in a row than this

_SOURCE = (
    BLOCK_SUM
    + QUADS
    + DIVIDE
    + """
#define DIVIDER(d) long long d, long long d##_magic, long long d##_shift
#define OVER(i, d) quotient(i, d, d##_magic, d##_shift)
#define WINDOW long long full_h, long long full_w, long long start, long long size_h, long long size_w

// a thread for four neighbouring outputs of a row: `quads` of them in a row, n in all
extern "C" __global__ void forward(const T* __restrict__ x, T* __restrict__ y, long long n, long long whole, WINDOW,
                                   DIVIDER(out_h), long long out_w, DIVIDER(quads), DIVIDER(steps_h),
                                   DIVIDER(steps_w)) {
  LOOP(i, n) {
    const long long line = OVER(i, quads), plane = OVER(line, out_h), first = (i - line * quads) * 4;
    const long long at_h = (line - plane * out_h) * (size_h - 1), h = OVER(at_h, steps_h);
    const A down = (A)(at_h - h * steps_h) / (A)steps_h;
    const T* upper = x + (plane * full_h + start + h) * full_w + start;
    const T* lower = upper + (h < size_h - 1 ? full_w : 0);
    Quad<T> out;
    #pragma unroll
    for (int lane = 0; lane < 4; ++lane) {
      const long long at_w = (first + lane < out_w ? first + lane : out_w - 1) * (size_w - 1), w = OVER(at_w, steps_w);
      const A across = (A)(int)(at_w - w * steps_w) / (A)steps_w;
      const int left = (int)w, right = left + (w < size_w - 1);
      out.v[lane] = (T)((1 - down) * ((1 - across) * upper[left] + across * upper[right]) +
                        down * ((1 - across) * lower[left] + across * lower[right]));
    }
    put_quad(y, line * out_w + first, whole, (line + 1) * out_w, out);
  }
}

// the outputs [first, last] along one axis that lie less than one input away from input h
#define RANGE(h, axis) \\
    const long long first_##axis = size_##axis == 1 || h == 0 ? 0 : OVER((h - 1) * steps_##axis, gaps_##axis) + 1; \\
    const long long near_##axis = size_##axis == 1 ? out_##axis - 1 : OVER((h + 1) * steps_##axis - 1, gaps_##axis); \\
    const long long last_##axis = near_##axis < out_##axis - 1 ? near_##axis : out_##axis - 1

// steps * (1 - an output's distance from an input), from that distance in steps
__device__ inline A nearness(int distance, int steps) { return (A)(steps - (distance < 0 ? -distance : distance)); }

extern "C" __global__ void backward(const T* dy, T* dx, long long n, long long lanes, DIVIDER(full_h), DIVIDER(full_w),
                                    long long start, long long size_h, long long size_w, long long out_h,
                                    long long out_w, long long steps_h, long long steps_w, DIVIDER(gaps_h),
                                    DIVIDER(gaps_w)) {
  LOOP(thread, n * lanes) {
    const long long i = lanes == 1 ? thread : thread / 32, lane = lanes == 1 ? 0 : thread % 32;
    const long long line = OVER(i, full_w), plane = OVER(line, full_h);
    const long long h = line - plane * full_h - start, w = i - line * full_w - start;
    A sum = 0;
    if (h >= 0 && h < size_h && w >= 0 && w < size_w) {
      RANGE(h, h);
      RANGE(w, w);
      const int gap_h = (int)size_h - 1, gap_w = (int)size_w - 1, far = (int)last_w, stride = (int)lanes;
      int below = (int)(first_h * gap_h - h * steps_h);  // the distance of output oh
      for (long long oh = first_h; oh <= last_h; ++oh, below += gap_h) {
        const T* row = dy + (plane * out_h + oh) * out_w;
        int beside = (int)((first_w + lane) * gap_w - w * steps_w);
        A part = 0;
        for (int ow = (int)(first_w + lane); ow <= far; ow += stride, beside += gap_w * stride)
          part += nearness(beside, (int)steps_w) * row[ow];
        sum += nearness(below, (int)steps_h) * part;
      }
      sum /= (A)steps_h * (A)steps_w;
    }
    if (lanes > 1) sum = warp_sum(sum);
    if (lane == 0) dx[i] = (T)sum;
  }
}

extern "C" __global__ void copy_out(const T* x, T* y, long long n, WINDOW, DIVIDER(out_h), DIVIDER(out_w)) {
  LOOP(i, n) {
    const long long line = OVER(i, out_w), plane = OVER(line, out_h);
    y[i] = x[(plane * full_h + start + line - plane * out_h) * full_w + start + i - line * out_w];
  }
}
"""
)


def interp_forward(x: AnyArray, y: AnyArray, stretch: StretchedWindow) -> None:
    """StretchedWindow the window of x to y: output o lies at o * (size - 1) / (out - 1), or at 0 where out is 1."""
    planes, full, start, size, out = stretch
    if size == out:
        n = planes * out[0] * out[1]
        sizes = (*full, start, *size, *divider(out[0], n), *divider(out[1], n))
        launch(_SOURCE, "copy_out", y.dtype, n, x, y, n, *sizes)
        return
    quads = (out[1] + 3) // 4
    n = planes * out[0] * quads
    whole = int(out[1] % 4 == 0 and aligned(y))
    steps = [divider(o - 1, max(1, o * s)) for s, o in zip(size, out, strict=True)]
    sizes = (*full, start, *size, *divider(out[0], n), out[1], *divider(quads, n), *steps[0], *steps[1])
    launch(_SOURCE, "forward", y.dtype, n, x, y, n, whole, *sizes)


def interp_backward(dy: AnyArray, dx: AnyArray, stretch: StretchedWindow) -> None:
    """Compute dx = for each input, the sum of dy * its weight over the outputs that hold it; 0 outside the window."""
    planes, full, start, size, out = stretch
    n = planes * full[0] * full[1]
    lanes = _LANES if 2 * out[1] > _LANES * size[1] else 1
    steps = [max(1, o - 1) for o in out]
    gaps = [divider(s - 1, (s + 1) * o + 1) for s, o in zip(size, out, strict=True)]
    sizes = (*divider(full[0], n), *divider(full[1], n), start, *size, *out, *steps, *gaps[0], *gaps[1])
    launch(_SOURCE, "backward", dx.dtype, n * lanes, dy, dx, n, lanes, *sizes)
