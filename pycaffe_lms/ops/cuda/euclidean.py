"""Half the squared distance of two batches."""

from __future__ import annotations

from ...backend.cuda import launch
from .loss_sum import LOSS_PARTS, scaled_loss

__all__ = ["euclidean_loss_forward", "euclidean_loss_backward"]

_SOURCE = (
    LOSS_PARTS
    + """
extern "C" __global__ void squares(const T* a, const T* b, double* work, long long n) {
  double sum = 0;
  LOOP(i, n) {
    T d = a[i] - b[i];
    sum += (double)d * d;
  }
  write_parts(sum, 0.0, work);
}
extern "C" __global__ void backward(const T* a, const T* b, const T* dloss, T* dx, double scale, long long n) {
  T factor = (T)(dloss[0] * scale);
  LOOP(i, n) dx[i] = (a[i] - b[i]) * factor;
}
"""
)


def euclidean_loss_forward(a, b, loss, work, scale):
    """loss = scale * sum of (a - b)^2, summed in float64. `work` (512 doubles) is for the GPU's partial sums."""
    scaled_loss(_SOURCE, "squares", a.size, (a, b, work, a.size), loss, work, scale)


def euclidean_loss_backward(a, b, dloss, dx, scale):
    """dx = dloss * scale * (a - b)."""
    launch(_SOURCE, "backward", dx.dtype, dx.size, a, b, dloss, dx, float(scale), dx.size)
