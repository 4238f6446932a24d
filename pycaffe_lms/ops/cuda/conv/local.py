"""Convolve with weights of their own for each place."""

from __future__ import annotations

from ....arrays import AnyArray
from ....backend.cuda import launch
from ...records import LocalWindows

__all__ = ["local_backward_input", "local_backward_weight", "local_forward"]

_SOURCE = """
#define SIZES long long channels, long long height, long long width, long long outputs, long long out_h, \\
              long long out_w, long long size, long long stride, long long pad

// neighbouring threads have neighbouring places, and so neighbouring weights
extern "C" __global__ void forward(const T* x, const T* w, const T* b, T* y, long long total, long long biased, SIZES) {
  const long long places = out_h * out_w;
  LOOP(i, total) {
    const long long place = i % places, m = i / places % outputs, n = i / (places * outputs);
    const long long top = place / out_w * stride - pad, left = place % out_w * stride - pad;
    const T* weight = w + m * channels * size * size * places + place;
    A sum = biased ? (A)b[m * places + place] : (A)0;
    for (long long c = 0; c < channels; ++c) {
      const T* plane = x + (n * channels + c) * height * width;
      for (long long h = top; h < top + size; ++h)
        for (long long v = left; v < left + size; ++v, weight += places)
          if (h >= 0 && h < height && v >= 0 && v < width) sum += (A)plane[h * width + v] * (A)*weight;
    }
    y[i] = (T)sum;
  }
}
extern "C" __global__ void backward_input(const T* dy, const T* w, T* dx, long long total, SIZES) {
  const long long places = out_h * out_w;
  LOOP(i, total) {
    const long long v = i % width, h = i / width % height, c = i / (width * height) % channels;
    const long long n = i / (width * height * channels);
    A sum = 0;
    for (long long j = 0; j < size; ++j) {
      const long long at_h = h + pad - j;
      if (at_h < 0 || at_h % stride != 0 || at_h / stride >= out_h) continue;
      for (long long k = 0; k < size; ++k) {
        const long long at_v = v + pad - k;
        if (at_v < 0 || at_v % stride != 0 || at_v / stride >= out_w) continue;
        const long long place = at_h / stride * out_w + at_v / stride;
        for (long long m = 0; m < outputs; ++m)
          sum += (A)dy[(n * outputs + m) * places + place] *
                 (A)w[(((m * channels + c) * size + j) * size + k) * places + place];
      }
    }
    dx[i] = (T)sum;
  }
}
extern "C" __global__ void backward_weight(const T* x, const T* dy, T* dw, long long total, long long items,
                                           long long accumulate, SIZES) {
  const long long places = out_h * out_w;
  LOOP(i, total) {
    const long long place = i % places, k = i / places % size, j = i / (places * size) % size;
    const long long c = i / (places * size * size) % channels, m = i / (places * size * size * channels);
    const long long h = place / out_w * stride + j - pad, v = place % out_w * stride + k - pad;
    A sum = 0;
    if (h >= 0 && h < height && v >= 0 && v < width)
      for (long long n = 0; n < items; ++n)
        sum += (A)dy[(n * outputs + m) * places + place] * (A)x[((n * channels + c) * height + h) * width + v];
    dw[i] = accumulate ? (T)(dw[i] + sum) : (T)sum;
  }
}
"""


def _sizes(x: AnyArray, y: AnyArray, windows: LocalWindows) -> tuple[int, ...]:
    return (*x.shape[1:], *y.shape[1:], *windows)


def local_forward(x: AnyArray, w: AnyArray, b: AnyArray | None, y: AnyArray, windows: LocalWindows) -> None:
    """Compute y (N, M, oh, ow) from x (N, C, H, W): y[n, m, p] = sum of x's window k at p * w[m, k, p] + b[m, p]."""
    args = (x, w, w if b is None else b, y, y.size, int(b is not None), *_sizes(x, y, windows))
    launch(_SOURCE, "forward", y.dtype, y.size, *args)


def local_backward_input(dy: AnyArray, w: AnyArray, dx: AnyArray, windows: LocalWindows) -> None:
    """Compute dx (N, C, H, W) = for each element, the sum of dy * weight over the windows that hold it."""
    launch(_SOURCE, "backward_input", dx.dtype, dx.size, dy, w, dx, dx.size, *_sizes(dx, dy, windows))


def local_backward_weight(x: AnyArray, dy: AnyArray, dw: AnyArray, windows: LocalWindows, accumulate: bool) -> None:
    """Write to dw, or add if `accumulate`, the sum over items of dy * the window's element, shaped as `w`."""
    args = (x, dy, dw, dw.size, len(x), int(accumulate), *_sizes(x, dy, windows))
    launch(_SOURCE, "backward_weight", dw.dtype, dw.size, *args)
