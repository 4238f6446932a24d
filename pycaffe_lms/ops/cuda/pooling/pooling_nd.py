"""Pool over any number of axes on a GPU. Backward passes gather, in row-major order.

`geometry` is a PoolGeometry; x and dx are (planes, *in_spatial), y and dy (planes, *out_spatial). A mask holds each
maximum's row-major place in its window (see `ops/geometry.py`).
"""

from __future__ import annotations

from ....arrays import AnyArray
from ...geometry import PoolGeometry
from .windows import launch

__all__ = ["average_pool_nd_backward", "average_pool_nd_forward", "max_pool_nd_backward", "max_pool_nd_forward"]

SOURCE = """
extern "C" __global__ void max_pool(const T* x, T* y, M* mask, T* top_mask, long long use_mask,
                                    long long use_top_mask, long long n, SHAPE) {
  NUMBERS;
  LOOP(i, n) {
    int first[AXES], last[AXES], self[AXES], where = -1;
    const T* plane = x + window(i, in, out, kernel, stride, pad, first, last) * volume(in);
    T best = (T)-3.402823466385288598e+38;
    each(first, last, [&](const int* at) {
      const int index = flat(at, in);
      const T value = plane[index];
      if (value > best) { best = value; where = index; }
    });
    y[i] = best;
    if (use_mask) {
      locate(i, out, self);
      mask[i] = (M)(where < 0 ? -1 : place_of(where, self, in, kernel, stride, pad));
    }
    if (use_top_mask) top_mask[i] = (T)where;
  }
}

extern "C" __global__ void max_pool_gradient(const T* dy, const M* mask, T* dx, long long n, SHAPE) {
  NUMBERS;
  LOOP(i, n) {
    int first[AXES], last[AXES], self[AXES];
    const long long start = cover(i, in, out, kernel, stride, pad, first, last) * volume(out);
    locate(i, in, self);
    A sum = 0;
    each(first, last, [&](const int* at) {
      const long long o = start + flat(at, out);
      int place = 0;
      #pragma unroll
      for (int a = 0; a < AXES; a++) place = place * kernel[a] + self[a] + pad[a] - at[a] * stride[a];
      if (mask[o] == place) sum += dy[o];
    });
    dx[i] = (T)sum;
  }
}

// what the sum of output `at` is divided by: its window clipped to size + pad at the far ends only, or to the inside
__device__ inline A divisor(const int* at, const int* in, const int* kernel, const int* stride, const int* pad) {
  A size = 1;
  #pragma unroll
  for (int a = 0; a < AXES; a++) {
    const int start = at[a] * stride[a] - pad[a], first = INSIDE && start < 0 ? 0 : start;
    const int border = INSIDE ? in[a] : in[a] + pad[a], end = start + kernel[a] < border ? start + kernel[a] : border;
    size *= end - first < 1 ? 1 : end - first;
  }
  return size;
}

extern "C" __global__ void average_pool(const T* x, T* y, long long n, SHAPE) {
  NUMBERS;
  LOOP(i, n) {
    int first[AXES], last[AXES], self[AXES];
    const T* plane = x + window(i, in, out, kernel, stride, pad, first, last) * volume(in);
    A sum = 0;
    each(first, last, [&](const int* at) { sum += plane[flat(at, in)]; });
    locate(i, out, self);
    y[i] = (T)(sum / divisor(self, in, kernel, stride, pad));
  }
}

extern "C" __global__ void average_pool_gradient(const T* dy, T* dx, long long n, SHAPE) {
  NUMBERS;
  LOOP(i, n) {
    int first[AXES], last[AXES];
    const long long start = cover(i, in, out, kernel, stride, pad, first, last) * volume(out);
    A sum = 0;
    each(first, last, [&](const int* at) {
      sum += dy[start + flat(at, out)] / divisor(at, in, kernel, stride, pad);
    });
    dx[i] = (T)sum;
  }
}
"""


def max_pool_nd_forward(
    x: AnyArray, y: AnyArray, mask: AnyArray | None, top_mask: AnyArray | None, geometry: PoolGeometry
) -> None:
    """Compute y = the maximum of each window: the first one in row-major order, never a NaN."""
    spare = y if mask is None else mask  # y stands in for masks that are not wanted
    top = y if top_mask is None else top_mask
    use = int(mask is not None), int(top_mask is not None)
    launch(geometry, SOURCE, "max_pool", y, x, y, spare, top, *use, mask=mask)


def max_pool_nd_backward(dy: AnyArray, mask: AnyArray, dx: AnyArray, geometry: PoolGeometry) -> None:
    """Compute dx = for each input, the sum of dy over the windows whose maximum it was."""
    launch(geometry, SOURCE, "max_pool_gradient", dx, dy, mask, dx, mask=mask)


def average_pool_nd_forward(x: AnyArray, y: AnyArray, geometry: PoolGeometry) -> None:
    """Compute y = the sum of each window's pixels / its size with padding (see PoolGeometry.divisors)."""
    launch(geometry, SOURCE, "average_pool", y, x, y)


def average_pool_nd_backward(dy: AnyArray, dx: AnyArray, geometry: PoolGeometry) -> None:
    """Compute dx = for each input, the sum of dy / the window's size over the windows that hold it."""
    launch(geometry, SOURCE, "average_pool_gradient", dx, dy, dx)
