"""Activations cut off at 6."""

from __future__ import annotations

from ...backend.cuda import launch

__all__ = ["relu6_forward", "relu6_backward"]

_SOURCE = """
extern "C" __global__ void relu6_forward(const T* x, T* y, double slope, long long n) {
  LOOP(i, n) {
    T v = x[i];
    if (v > 0) v = v < 6 ? v : (T)6;
    else if (v <= 0) v = slope == 0 ? (T)0 : (T)slope * v;  // NaN passes both comparisons
    y[i] = v;
  }
}
extern "C" __global__ void relu6_backward(const T* v, const T* dy, T* dx, double slope, long long n) {
  LOOP(i, n) dx[i] = dy[i] * (v[i] > 0 && v[i] < 6 ? (T)1 : v[i] <= 0 ? (T)slope : (T)0);
}
"""


def relu6_forward(x, y, slope):
    """y = min(x, 6) where x > 0, slope * x where x <= 0 (plainly 0 for a slope of 0), NaN where x is NaN."""
    launch(_SOURCE, "relu6_forward", y.dtype, y.size, x, y, float(slope), y.size)


def relu6_backward(y_or_x, dy, dx, slope):
    """dx = dy * (1 where 0 < v < 6, slope where v <= 0, else 0); v is x, or y where slope >= 0."""
    launch(_SOURCE, "relu6_backward", dx.dtype, dx.size, y_or_x, dy, dx, float(slope), dx.size)
