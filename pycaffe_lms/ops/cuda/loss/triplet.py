"""Compute the loss of triplets: an anchor shall be nearer to one row than to another."""

from __future__ import annotations

from ....arrays import AnyArray
from ....backend.cuda import launch
from ...records import Triplets
from ..source import DIVIDE, divider
from .loss_sum import LOSS_PARTS, scaled_loss

__all__ = ["triplet_loss_backward", "triplet_loss_forward"]

_SOURCE = (
    LOSS_PARTS
    + DIVIDE
    + """
// one warp for each triplet
extern "C" __global__ void gaps(const T* a, const T* p, const T* b, double* gap, double margin, long long n,
                                long long c) {
  const long long warps = gridDim.x * (long long)(blockDim.x / 32);
  const int lane = threadIdx.x % 32;
  for (long long w = (blockIdx.x * (long long)blockDim.x + threadIdx.x) / 32; w < n; w += warps) {
    double near = 0, far = 0;
    for (long long k = w * c + lane; k < (w + 1) * c; k += 32) {
      const T to_near = a[k] - p[k], to_far = a[k] - b[k];
      near += (double)to_near * to_near;
      far += (double)to_far * to_far;
    }
    near = warp_sum(near);
    far = warp_sum(far);
    if (lane == 0) gap[w] = margin + near - far;
  }
}
extern "C" __global__ void losses(const double* gap, const T* weight, double* work, long long weighted, long long n) {
  double sum = 0;
  LOOP(i, n) sum += (weighted ? (double)weight[i] : 1.0) * (gap[i] < 0 ? 0.0 : gap[i]);  // NaN passes
  write_parts(sum, 0.0, work);
}
extern "C" __global__ void backward(const T* minuend, const T* subtrahend, const T* weight, const T* dloss,
                                    const double* gap, T* dx, long long weighted, double scale, long long n,
                                    long long c, long long magic, long long shift) {
  scale *= (double)dloss[0];
  LOOP(i, n) {
    const long long row = quotient(i, c, magic, shift);
    const double factor = weighted ? scale * (double)weight[row] : scale;
    dx[i] = gap[row] > 0 ? (minuend[i] - subtrahend[i]) * (T)factor : (T)0;
  }
}
"""
)


def triplet_loss_forward(
    bottoms: Triplets,
    loss: AnyArray,
    gap: AnyArray,
    work: AnyArray,
    margin: float,
    scale: float,
    n: int,
    c: int,
) -> None:
    """Compute loss = scale * sum of weight * max(gap, 0), gap = margin + |a - p|^2 - |a - n|^2 of three bottoms."""
    launch(_SOURCE, "gaps", loss.dtype, 32 * n, *bottoms[:3], gap, float(margin), n, c, block=256)
    weighted = bottoms.weight is not None
    args = (gap, bottoms.weight if weighted else loss, work, int(weighted), n)
    scaled_loss(_SOURCE, "losses", n, args, loss, work, scale)


def triplet_loss_backward(
    bottoms: Triplets, dloss: AnyArray, gap: AnyArray, dx: AnyArray, which: int, scale: float, n: int, c: int
) -> None:
    """Compute dx, of bottom `which`: its one of negative - positive, positive - anchor and anchor - negative."""
    a, p, b, weight = bottoms
    arrays = (*((b, p), (p, a), (a, b))[which], dloss if weight is None else weight, dloss, gap, dx)
    args = (*arrays, int(weight is not None), float(scale), n * c, *divider(c, n * c))
    launch(_SOURCE, "backward", dx.dtype, n * c, *args)
