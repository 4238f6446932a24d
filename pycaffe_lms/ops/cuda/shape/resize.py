"""Resize maps as OpenCV does: bilinearly between the centres of pixels, or to the pixel at the corner."""

from __future__ import annotations

from ....arrays import AnyArray
from ....backend.cuda import launch
from ...records import Resize

__all__ = ["resize_backward", "resize_forward"]

_SOURCE = """
enum { BLEND = 0, NEAREST = 1, CORNERS = 2 };
// the input before output o, and the weight of the one after it, in exact integers
__device__ inline long long tap(long long o, long long size, long long out, long long how, T* weight) {
  *weight = 0;
  if (how == NEAREST) return o * size / out;
  const long long at = 2 * o * size + (how == CORNERS ? 0 : size - out);
  if (at < 0) return 0;
  const long long before = at / (2 * out);
  if (before >= size - 1) return size - 1;
  *weight = (T)((double)(at % (2 * out)) / (double)(2 * out));
  return before;
}
__device__ inline T share(long long input, long long before, T weight) {
  return input == before ? 1 - weight : input == before + 1 ? weight : (T)0;
}
extern "C" __global__ void forward(const T* x, T* y, long long total, long long height, long long width,
                                   long long out_h, long long out_w, long long how) {
  LOOP(i, total) {
    T down, across;
    const long long top = tap(i / out_w % out_h, height, out_h, how, &down);
    const long long left = tap(i % out_w, width, out_w, how, &across);
    const T* row = x + (i / (out_w * out_h) * height + top) * width;
    if (how == NEAREST) {
      y[i] = row[left];
      continue;
    }
    const T* next = top + 1 < height ? row + width : row;
    const long long right = left + 1 < width ? left + 1 : left;
    const T one = row[left] * (1 - down) + next[left] * down, other = row[right] * (1 - down) + next[right] * down;
    y[i] = one * (1 - across) + other * across;
  }
}
// the first output that may hold an input; `last` likewise
__device__ inline long long first(long long input, long long size, long long out) {
  const long long o = (input - 1) * out / size - 1;
  return o < 0 ? 0 : o;
}
__device__ inline long long last(long long input, long long size, long long out) {
  const long long o = (input + 2) * out / size + 1;
  return o < out ? o : out - 1;
}
extern "C" __global__ void backward(const T* dy, T* dx, long long total, long long height, long long width,
                                    long long out_h, long long out_w, long long how) {
  LOOP(i, total) {
    const long long column = i % width, row = i / width % height;
    const T* plane = dy + i / (width * height) * out_h * out_w;
    A sum = 0;
    for (long long p = first(row, height, out_h); p <= last(row, height, out_h); ++p) {
      T weight;
      const long long top = tap(p, height, out_h, how, &weight);
      const T down = share(row, top, weight);
      if (down == 0) continue;
      A part = 0;
      for (long long q = first(column, width, out_w); q <= last(column, width, out_w); ++q) {
        const long long left = tap(q, width, out_w, how, &weight);
        part += (A)plane[p * out_w + q] * (A)share(column, left, weight);
      }
      sum += part * (A)down;
    }
    dx[i] = (T)sum;
  }
}
"""


def resize_forward(x: AnyArray, y: AnyArray, resize: Resize) -> None:
    """Resize each plane of x to y: output o lies at (o + 0.5) * size / out - 0.5, within the first and last pixel."""
    launch(_SOURCE, "forward", y.dtype, y.size, x, y, y.size, *_numbers(resize))


def resize_backward(dy: AnyArray, dx: AnyArray, resize: Resize) -> None:
    """Compute dx = for each input, the sum of dy * its weight over the outputs that hold it."""
    launch(_SOURCE, "backward", dx.dtype, dx.size, dy, dx, dx.size, *_numbers(resize))


def _numbers(resize: Resize) -> tuple[int, ...]:
    how = 1 if resize.nearest else 2 if resize.corners else 0
    return *resize.size, *resize.out, how
