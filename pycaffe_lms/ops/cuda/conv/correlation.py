"""Compare each place of one map with places around it in another."""

from __future__ import annotations

from ....arrays import AnyArray
from ....backend.cuda import launch
from ...records import Displacements

__all__ = ["correlation_backward", "correlation_forward"]

_SOURCE = """
#define WAYS long long pad, long long window, long long reach, long long step, long long stride, long long across, \\
             long long differ

__device__ inline A value_at(const T* map, long long h, long long w, long long height, long long width) {
  return h >= 0 && h < height && w >= 0 && w < width ? (A)map[h * width + w] : (A)0;
}

extern "C" __global__ void forward(const T* a, const T* b, T* y, long long total, long long channels,
                                   long long height, long long width, long long displacements, long long out_h,
                                   long long out_w, WAYS) {
  LOOP(i, total) {
    const long long q = i % out_w, p = i / out_w % out_h, d = i / (out_w * out_h) % displacements;
    const long long n = i / (out_w * out_h * displacements), size = height * width;
    const long long down = (d / across - across / 2) * stride, right = (d % across - across / 2) * stride;
    A sum = 0;
    for (long long j = 0; j < window; ++j)
      for (long long k = 0; k < window; ++k) {
        const long long h = p * step + reach + j - pad, w = q * step + reach + k - pad;
        const T* one = a + n * channels * size;
        const T* other = b + n * channels * size;
        for (long long c = 0; c < channels; ++c, one += size, other += size) {
          const A here = value_at(one, h, w, height, width);
          const A there = value_at(other, h + down, w + right, height, width);
          sum += differ ? (A)fabs(here - there) : here * there;
        }
      }
    y[i] = (T)(sum / (A)(window * window * channels));
  }
}

// a thread for each element of dx looks for the outputs whose windows hold it
extern "C" __global__ void backward(const T* a, const T* b, const T* dy, T* dx, long long second, long long total,
                                    long long channels, long long height, long long width, long long displacements,
                                    long long out_h, long long out_w, WAYS) {
  LOOP(i, total) {
    const long long x = i % width, row = i / width % height, plane = i / (width * height), n = plane / channels;
    const T* one = a + plane * height * width;
    const T* other = b + plane * height * width;
    A sum = 0;
    for (long long d = 0; d < displacements; ++d) {
      const long long down = (d / across - across / 2) * stride, right = (d % across - across / 2) * stride;
      const long long h = second ? row - down : row, w = second ? x - right : x;  // of a
      const A here = value_at(one, h, w, height, width);
      const A there = value_at(other, h + down, w + right, height, width);
      A slope = second ? here : there;
      if (differ) {
        slope = here > there ? (A)1 : here < there ? (A)-1 : here == there ? (A)0 : here - there;
        if (second) slope = -slope;
      }
      const T* out = dy + (n * displacements + d) * out_h * out_w;
      for (long long j = 0; j < window; ++j) {
        const long long at_h = h + pad - reach - j;
        if (at_h < 0 || at_h % step != 0 || at_h / step >= out_h) continue;
        for (long long k = 0; k < window; ++k) {
          const long long at_w = w + pad - reach - k;
          if (at_w < 0 || at_w % step != 0 || at_w / step >= out_w) continue;
          sum += slope * (A)out[at_h / step * out_w + at_w / step];
        }
      }
    }
    dx[i] = (T)(sum / (A)(window * window * channels));
  }
}
"""


def correlation_forward(a: AnyArray, b: AnyArray, y: AnyArray, ways: Displacements) -> None:
    """Compute y (N, D, oh, ow) from a and b (N, C, H, W): the mean of a * b, or |a - b|, over channels and a window."""
    args = (a, b, y, y.size, *a.shape[1:], *y.shape[1:], *map(int, ways))
    launch(_SOURCE, "forward", y.dtype, y.size, *args)


def correlation_backward(
    a: AnyArray, b: AnyArray, dy: AnyArray, dx: AnyArray, second: bool, ways: Displacements
) -> None:
    """Compute dx, of b if `second`, else of a: the sum of dy * the other value, or the sign of the difference."""
    args = (a, b, dy, dx, int(second), dx.size, *a.shape[1:], *dy.shape[1:], *map(int, ways))
    launch(_SOURCE, "backward", dx.dtype, dx.size, *args)
