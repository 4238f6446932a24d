"""Element-wise activations."""

from __future__ import annotations

from ...backend.cuda import launch

__all__ = ["relu_forward", "relu_backward"]

_SOURCE = """
extern "C" __global__ void relu_forward(const T* x, T* y, double slope, long long n) {
  LOOP(i, n) {
    T v = x[i];
    y[i] = (v < 0 ? (T)0 : v) + (T)slope * (v > 0 ? (T)0 : v);  // NaN passes both comparisons
  }
}
extern "C" __global__ void relu_backward(const T* v, const T* dy, T* dx, double slope, long long n) {
  LOOP(i, n) dx[i] = dy[i] * (v[i] > 0 ? (T)1 : v[i] <= 0 ? (T)slope : (T)0);
}
"""


def relu_forward(x, y, slope):
    """y = max(x, 0) + slope * min(x, 0); NaN stays NaN, and -inf with slope 0 gives NaN, as in Caffe."""
    launch(_SOURCE, "relu_forward", y.dtype, y.size, x, y, float(slope), y.size)


def relu_backward(y_or_x, dy, dx, slope):
    """dx = dy * (1 where v > 0, slope where v <= 0, 0 where v is NaN)."""
    launch(_SOURCE, "relu_backward", dx.dtype, dx.size, y_or_x, dy, dx, float(slope), dx.size)
