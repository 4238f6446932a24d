"""Bilinear interpolation between the corner points: planes of `full` (height, width), of which the window of `size`
from `start` on (in both axes) is stretched to `out`. The corners of the window are the corners of the result."""

from __future__ import annotations

from ...backend.cuda import launch
from .source import BLOCK_SUM, DIVIDE, divider

__all__ = ["interp_backward", "interp_forward"]

_LANES = 32  # threads for one input whose outputs in a row are more than that

_SOURCE = (
    BLOCK_SUM
    + DIVIDE
    + """
#define DIVIDER(d) long long d, long long d##_magic, long long d##_shift
#define OVER(i, d) quotient(i, d, d##_magic, d##_shift)
#define WINDOW long long full_h, long long full_w, long long start, long long size_h, long long size_w

extern "C" __global__ void forward(const T* x, T* y, long long n, WINDOW, DIVIDER(out_h), DIVIDER(out_w),
                                   DIVIDER(steps_h), DIVIDER(steps_w)) {
  LOOP(i, n) {
    const long long line = OVER(i, out_w), plane = OVER(line, out_h);
    const long long at_h = (line - plane * out_h) * (size_h - 1), at_w = (i - line * out_w) * (size_w - 1);
    const long long h = OVER(at_h, steps_h), w = OVER(at_w, steps_w);
    const A down = (A)(at_h - h * steps_h) / (A)steps_h, across = (A)(at_w - w * steps_w) / (A)steps_w;
    const T* here = x + (plane * full_h + start + h) * full_w + start + w;
    const long long right = w < size_w - 1 ? 1 : 0, below = h < size_h - 1 ? full_w : 0;
    y[i] = (T)((1 - down) * ((1 - across) * here[0] + across * here[right]) +
               down * ((1 - across) * here[below] + across * here[below + right]));
  }
}

// the outputs [first, last] along one axis that lie less than one input away from input h
#define RANGE(h, axis) \\
    const long long first_##axis = size_##axis == 1 || h == 0 ? 0 : OVER((h - 1) * steps_##axis, gaps_##axis) + 1; \\
    const long long near_##axis = size_##axis == 1 ? out_##axis - 1 : OVER((h + 1) * steps_##axis - 1, gaps_##axis); \\
    const long long last_##axis = near_##axis < out_##axis - 1 ? near_##axis : out_##axis - 1

__device__ inline A weight(long long o, long long h, long long size, long long steps) {  // 1 - their distance
  const long long distance = o * (size - 1) - h * steps;
  return (A)(steps - (distance < 0 ? -distance : distance)) / (A)steps;
}

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
      for (long long oh = first_h; oh <= last_h; ++oh) {
        const T* row = dy + (plane * out_h + oh) * out_w;
        A part = 0;
        for (long long ow = first_w + lane; ow <= last_w; ow += lanes) part += weight(ow, w, size_w, steps_w) * row[ow];
        sum += weight(oh, h, size_h, steps_h) * part;
      }
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


def interp_forward(x, y, planes, full, start, size, out):
    """y = the window of x, stretched: output o lies at o * (size - 1) / (out - 1), or at 0 where out is 1."""
    n = planes * out[0] * out[1]
    args = (x, y, n, *full, start, *size, *divider(out[0], n), *divider(out[1], n))
    if size == out:
        launch(_SOURCE, "copy_out", y.dtype, n, *args)
        return
    steps = [divider(o - 1, max(1, o * s)) for s, o in zip(size, out, strict=True)]
    launch(_SOURCE, "forward", y.dtype, n, *args, *steps[0], *steps[1])


def interp_backward(dy, dx, planes, full, start, size, out):
    """dx = for each input, the sum of dy * its weight over the outputs that it is part of; 0 outside the window."""
    n = planes * full[0] * full[1]
    lanes = _LANES if 2 * out[1] > _LANES * size[1] else 1
    steps = [max(1, o - 1) for o in out]
    gaps = [divider(s - 1, (s + 1) * o + 1) for s, o in zip(size, out, strict=True)]
    sizes = (*divider(full[0], n), *divider(full[1], n), start, *size, *out, *steps, *gaps[0], *gaps[1])
    launch(_SOURCE, "backward", dx.dtype, n * lanes, dy, dx, n, lanes, *sizes)
