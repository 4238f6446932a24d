"""Compute losses with a margin over (n, c): the hinge of every class, and the distance of pairs."""

from __future__ import annotations

from ....arrays import AnyArray
from ....backend.cuda import launch
from ...records import Contrast
from ..source import DIVIDE, divider
from .loss_sum import LOSS_PARTS, scaled_loss

__all__ = ["hinge_loss_forward", "hinge_loss_backward", "contrastive_loss_forward", "contrastive_loss_backward"]

_HINGE = (
    LOSS_PARTS
    + DIVIDE
    + """
__device__ T margin(T x, T sign) {
  T m = 1 - sign * x;
  return m < 0 ? (T)0 : m;  // NaN passes
}
extern "C" __global__ void hinges(const T* x, const T* label, double* work, long long squared, long long n,
                                  long long c, long long magic, long long shift) {
  double sum = 0;
  LOOP(i, n) {
    long long item = quotient(i, c, magic, shift);
    T k = trunc(label[item]);
    if (k >= 0 && k < c) {
      T m = margin(x[i], i - item * c == (long long)k ? (T)1 : (T)-1);
      sum += squared ? (double)m * m : (double)m;
    } else {
      sum += nan("");
    }
  }
  write_parts(sum, 0.0, work);
}
extern "C" __global__ void backward(const T* x, const T* label, const T* dloss, T* dx, long long squared, double scale,
                                    long long n, long long c, long long magic, long long shift) {
  T factor = (T)(-dloss[0] * scale);
  LOOP(i, n) {
    long long item = quotient(i, c, magic, shift);
    T k = trunc(label[item]);
    if (k >= 0 && k < c) {
      T sign = i - item * c == (long long)k ? (T)1 : (T)-1, m = margin(x[i], sign);
      dx[i] = (squared ? 2 * m : m > 0 ? (T)1 : m) * sign * factor;
    } else {
      dx[i] = (T)nan("");
    }
  }
}
"""
)

_CONTRASTIVE = (
    LOSS_PARTS
    + DIVIDE
    + """
// one warp for each pair
extern "C" __global__ void distances(const T* a, const T* b, double* distance, long long n, long long c) {
  long long warps = gridDim.x * (long long)(blockDim.x / 32);
  int lane = threadIdx.x % 32;
  for (long long w = (blockIdx.x * (long long)blockDim.x + threadIdx.x) / 32; w < n; w += warps) {
    double sum = 0;
    for (long long k = w * c + lane; k < (w + 1) * c; k += 32) {
      T d = a[k] - b[k];
      sum += (double)d * d;
    }
    sum = warp_sum(sum);
    if (lane == 0) distance[w] = sum;
  }
}
extern "C" __global__ void pairs(const double* distance, const T* y, double* work, double margin, long long legacy,
                                 long long n) {
  double sum = 0;
  LOOP(i, n) {
    double part = distance[i];
    if (trunc(y[i]) == 0) {
      double gap = margin - (legacy ? part : sqrt(part));
      if (gap < 0) gap = 0;
      part = legacy ? gap : gap * gap;
    }
    sum += part;
  }
  write_parts(sum, 0.0, work);
}
extern "C" __global__ void backward(const T* a, const T* b, const T* y, const T* dloss, const double* distance, T* dx,
                                    double margin, long long legacy, double scale, long long n, long long c,
                                    long long magic, long long shift) {
  scale *= dloss[0];
  LOOP(i, n) {
    long long pair = quotient(i, c, magic, shift);
    double factor = 1, squared = distance[pair];
    if (trunc(y[pair]) == 0) {
      if (legacy) {
        factor = squared < margin ? -1 : 0;
      } else {
        double d = sqrt(squared), gap = margin - d;
        factor = -(gap < 0 ? 0 : gap) / (d + 1e-4);
      }
    }
    dx[i] = (a[i] - b[i]) * (T)(factor * scale);
  }
}
"""
)


def hinge_loss_forward(
    x: AnyArray, label: AnyArray, loss: AnyArray, work: AnyArray, squared: bool, scale: float, n: int, c: int
) -> None:
    """Compute loss = scale * sum of m (m^2 if `squared`), m = max(0, 1 - s x), s = 1 at the label and -1 elsewhere."""
    args = (x, label, work, int(squared), n * c, *divider(c, n * c))
    scaled_loss(_HINGE, "hinges", n * c, args, loss, work, scale)


def hinge_loss_backward(
    x: AnyArray, label: AnyArray, dloss: AnyArray, dx: AnyArray, squared: bool, scale: float, n: int, c: int
) -> None:
    """Compute dx = -s * dloss * scale * sign(m) (2 m if `squared`); NaN where an item's label is outside 0..c-1."""
    args = (x, label, dloss, dx, int(squared), float(scale), n * c, *divider(c, n * c))
    launch(_HINGE, "backward", dx.dtype, n * c, *args)


def contrastive_loss_forward(
    a: AnyArray,
    b: AnyArray,
    y: AnyArray,
    loss: AnyArray,
    distance: AnyArray,
    work: AnyArray,
    scale: float,
    contrast: Contrast,
) -> None:
    """Compute loss = scale * sum of d^2 where int(y) is not 0, else of max(margin - d, 0)^2, with d = |a - b|."""
    n, c, margin, legacy = contrast
    launch(_CONTRASTIVE, "distances", a.dtype, n * 32, a, b, distance, n, c, block=256)
    args = (distance, y, work, float(margin), int(legacy), n)
    scaled_loss(_CONTRASTIVE, "pairs", n, args, loss, work, scale)


def contrastive_loss_backward(
    a: AnyArray,
    b: AnyArray,
    y: AnyArray,
    dloss: AnyArray,
    distance: AnyArray,
    dx: AnyArray,
    scale: float,
    contrast: Contrast,
) -> None:
    """Compute dx = dloss * scale * (a - b) * factor."""
    n, c, margin, legacy = contrast
    args = (a, b, y, dloss, distance, dx, float(margin), int(legacy), float(scale), n * c, *divider(c, n * c))
    launch(_CONTRASTIVE, "backward", dx.dtype, n * c, *args)
