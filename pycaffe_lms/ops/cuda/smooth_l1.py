"""Huber's loss of weighted differences: quadratic near zero, linear beyond."""

from __future__ import annotations

from ...backend.cuda import launch
from .loss_sum import LOSS_PARTS, scaled_loss

__all__ = ["smooth_l1_loss_forward", "smooth_l1_loss_backward"]

_SOURCE = (
    LOSS_PARTS
    + """
// without weights `inside` and `outside` are any pointers, and are not read
extern "C" __global__ void smooth_l1(const T* a, const T* b, const T* inside, const T* outside, double* work,
                                     double sigma2, long long weights, long long n) {
  double sum = 0;
  LOOP(i, n) {
    T difference = (a[i] - b[i]) * (weights & 1 ? inside[i] : (T)1);
    double d = fabs((double)difference), f = d < 1 / sigma2 ? 0.5 * sigma2 * d * d : d - 0.5 / sigma2;
    sum += weights & 2 ? f * outside[i] : f;
  }
  write_parts(sum, 0.0, work);
}
extern "C" __global__ void backward(const T* a, const T* b, const T* inside, const T* outside, const T* dloss, T* dx,
                                    double sigma2, double scale, long long weights, long long n) {
  T factor = (T)(dloss[0] * scale);
  LOOP(i, n) {
    T weight = weights & 1 ? inside[i] : (T)1, d = (a[i] - b[i]) * weight * (T)sigma2;
    d = d > 1 ? (T)1 : d < -1 ? (T)-1 : d;  // NaN passes both comparisons
    dx[i] = d * weight * (weights & 2 ? outside[i] : (T)1) * factor;
  }
}
"""
)


def _weights(a, inside, outside):
    """(inside, outside, which of them are there), with `a` in place of what is not."""
    flags = int(inside is not None) + 2 * int(outside is not None)
    return a if inside is None else inside, a if outside is None else outside, flags


def smooth_l1_loss_forward(a, b, inside, outside, loss, work, sigma2, scale):
    """loss = scale * sum of outside * f(inside * (a - b)), summed in float64; weights may be None (all 1).

    f(d) = sigma2 * d^2 / 2 where |d| < 1 / sigma2, else |d| - 1 / (2 sigma2).
    `work` (512 doubles) is for the GPU's partial sums.
    """
    inside, outside, flags = _weights(a, inside, outside)
    args = (a, b, inside, outside, work, float(sigma2), flags, a.size)
    scaled_loss(_SOURCE, "smooth_l1", a.size, args, loss, work, scale)


def smooth_l1_loss_backward(a, b, inside, outside, dloss, dx, sigma2, scale):
    """dx = dloss * scale * outside * inside * f'(inside * (a - b)); dx is none of the others."""
    inside, outside, flags = _weights(a, inside, outside)
    args = (a, b, inside, outside, dloss, dx, float(sigma2), float(scale), flags, dx.size)
    launch(_SOURCE, "backward", dx.dtype, dx.size, *args)
