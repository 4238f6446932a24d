"""Pooling on a GPU. Backward passes gather: each input sums over the windows it was in, in row-major order.

`geometry` is a PoolGeometry; x and dx are (planes, *in_spatial), y and dy (planes, *out_spatial). A mask holds the
index of the maximum inside its input plane, -1 where the window had none.
"""

from __future__ import annotations

from ...backend import cuda
from ..geometry import PoolGeometry

__all__ = [
    "average_pool_backward",
    "average_pool_forward",
    "max_pool_backward",
    "max_pool_forward",
]

SOURCE = """
#define SHAPE long long in_h, long long in_w, long long out_h, long long out_w, long long k_h, long long k_w, \\
    long long s_h, long long s_w, long long p_h, long long p_w

// the window of output i: rows [h0, h1) and columns [w0, w1) before clipping, of the plane x
#define WINDOW(i) \\
    const int w0 = (int)((i) % out_w * s_w - p_w), h0 = (int)((i) / out_w % out_h * s_h - p_h); \\
    const int h1 = h0 + (int)k_h, w1 = w0 + (int)k_w; \\
    const int top = h0 > 0 ? h0 : 0, left = w0 > 0 ? w0 : 0; \\
    const int bottom = h1 < (int)in_h ? h1 : (int)in_h, right = w1 < (int)in_w ? w1 : (int)in_w; \\
    const T* in = x + (i) / (out_w * out_h) * (in_h * in_w)

// the outputs whose windows hold input i: rows [o_h0, o_h1) and columns [o_w0, o_w1)
#define COVER(i) \\
    const int w = (int)((i) % in_w), h = (int)((i) / in_w % in_h); \\
    const int pw = w + (int)p_w, ph = h + (int)p_h; \\
    const int o_w0 = pw < (int)k_w ? 0 : (pw - (int)k_w) / (int)s_w + 1; \\
    const int o_h0 = ph < (int)k_h ? 0 : (ph - (int)k_h) / (int)s_h + 1; \\
    const int o_w1 = pw / (int)s_w + 1 < (int)out_w ? pw / (int)s_w + 1 : (int)out_w; \\
    const int o_h1 = ph / (int)s_h + 1 < (int)out_h ? ph / (int)s_h + 1 : (int)out_h; \\
    const long long first = (i) / (in_w * in_h) * (out_h * out_w)

// what the window's sum along one axis is divided by: clipped to size + pad at the far end only
__device__ inline int divisor(int start, int kernel, int end) {
  const int size = (start + kernel < end ? start + kernel : end) - start;
  return size > 1 ? size : 1;
}

extern "C" __global__ void max_pool_forward(const T* x, T* y, int* mask, T* top_mask, long long use_mask,
                                            long long use_top_mask, long long n, SHAPE) {
  LOOP(i, n) {
    WINDOW(i);
    T best = (T)-3.402823466385288598e+38;
    int where = -1;
    for (int h = top; h < bottom; h++)
      for (int w = left; w < right; w++) {
        const T value = in[h * in_w + w];
        if (value > best) { best = value; where = h * (int)in_w + w; }
      }
    y[i] = best;
    if (use_mask) mask[i] = where;
    if (use_top_mask) top_mask[i] = (T)where;
  }
}

extern "C" __global__ void max_pool_backward(const T* dy, const int* mask, T* dx, long long n, SHAPE) {
  LOOP(i, n) {
    COVER(i);
    const int self = h * (int)in_w + w;
    A sum = 0;
    for (int oh = o_h0; oh < o_h1; oh++)
      for (int ow = o_w0; ow < o_w1; ow++) {
        const long long o = first + oh * out_w + ow;
        if (mask[o] == self) sum += dy[o];
      }
    dx[i] = (T)sum;
  }
}

extern "C" __global__ void average_pool_forward(const T* x, T* y, long long n, SHAPE) {
  LOOP(i, n) {
    WINDOW(i);
    A sum = 0;
    for (int h = top; h < bottom; h++)
      for (int w = left; w < right; w++) sum += in[h * in_w + w];
    y[i] = (T)(sum / (A)(divisor(h0, (int)k_h, (int)(in_h + p_h)) * divisor(w0, (int)k_w, (int)(in_w + p_w))));
  }
}

extern "C" __global__ void average_pool_backward(const T* dy, T* dx, long long n, SHAPE) {
  LOOP(i, n) {
    COVER(i);
    A sum = 0;
    for (int oh = o_h0; oh < o_h1; oh++) {
      const int size_h = divisor(oh * (int)s_h - (int)p_h, (int)k_h, (int)(in_h + p_h));
      for (int ow = o_w0; ow < o_w1; ow++) {
        const int size_w = divisor(ow * (int)s_w - (int)p_w, (int)k_w, (int)(in_w + p_w));
        sum += dy[first + oh * out_w + ow] / (A)(size_h * size_w);
      }
    }
    dx[i] = (T)sum;
  }
}
"""


def max_pool_forward(x, y, mask, top_mask, geometry) -> None:
    """y = the maximum of each window: the first one in row-major order, never a NaN.

    `mask` (int32, for backward) and `top_mask` (of x's type, for the user) may each be None.
    """
    cuda.launch(
        SOURCE,
        "max_pool_forward",
        x.dtype,
        y.size,
        x,
        y,
        y if mask is None else mask,  # never touched, but a kernel's argument must be an array
        y if top_mask is None else top_mask,
        int(mask is not None),
        int(top_mask is not None),
        y.size,
        *_shape(geometry),
    )


def max_pool_backward(dy, mask, dx, geometry) -> None:
    """dx = for each input, the sum of dy over the windows whose maximum it was."""
    cuda.launch(SOURCE, "max_pool_backward", dx.dtype, dx.size, dy, mask, dx, dx.size, *_shape(geometry))


def average_pool_forward(x, y, geometry) -> None:
    """y = the sum of each window's pixels / its size with padding (see PoolGeometry.divisors)."""
    cuda.launch(SOURCE, "average_pool_forward", x.dtype, y.size, x, y, y.size, *_shape(geometry))


def average_pool_backward(dy, dx, geometry) -> None:
    """dx = for each input, the sum of dy / the window's size over the windows it was in."""
    cuda.launch(SOURCE, "average_pool_backward", dx.dtype, dx.size, dy, dx, dx.size, *_shape(geometry))


def _shape(g: PoolGeometry) -> tuple[int, ...]:
    return (*g.in_spatial, *g.out_spatial, *g.kernel, *g.stride, *g.pad)
