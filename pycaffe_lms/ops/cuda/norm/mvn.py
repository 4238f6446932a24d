"""Normalise mean and variance of the rows of (rows, dim).

A row that one block can take is one kernel's work. The longest rows are cut into parts by the kernels of batch
normalisation, for which a row is a channel.
"""

from __future__ import annotations

from ....arrays import AnyArray
from ...records import Grid
from ...sum_parts import norm_parts
from ..basic import fill
from ..channel_walk import add_up, run_walk, walking
from .batch_norm import BACKWARD, NORMALISE, SUMS, means_of
from .norm_statistics import batch_moments
from .rows import run_rows

__all__ = ["mvn_forward", "mvn_backward"]

_ROWS = """
extern "C" __global__ void __launch_bounds__(256) forward(const T* x, T* y, T* inv_std, long long variance, double eps,
                                                          long long rows, long long dim) {
  const long long row = ROW;
  if (row >= rows) return;  // whole warps, or whole blocks
  const int packs = (int)(dim / N);
  const Values* from = (const Values*)(x + row * dim);
  Values* to = (Values*)(y + row * dim);
  A sum = 0, squares = 0;
  each(packs, [&](int k) {
    Values v[HELD];
    HELD_PACKS(u) v[u] = from[k + u * LANES];
    HELD_PACKS(u) VALUES(j) sum += v[u].v[j];
  });
  const A mean = all_of(sum) / dim;
  A factor = 1;
  if (variance) {
    each(packs, [&](int k) {
      Values v[HELD];
      HELD_PACKS(u) v[u] = from[k + u * LANES];
      HELD_PACKS(u) VALUES(j) squares += (v[u].v[j] - mean) * (v[u].v[j] - mean);
    });
    factor = (A)(1 / (sqrt((double)all_of(squares) / dim) + eps));
  }
  if (threadIdx.x % LANES == 0) inv_std[row] = (T)factor;
  each(packs, [&](int k) {
    Values v[HELD];
    HELD_PACKS(u) v[u] = from[k + u * LANES];
    HELD_PACKS(u) {
      VALUES(j) v[u].v[j] = (T)((v[u].v[j] - mean) * factor);
      to[k + u * LANES] = v[u];
    }
  });
}
extern "C" __global__ void __launch_bounds__(256) backward(const T* y, const T* dy, T* dx, const T* inv_std,
                                                           long long variance, long long rows, long long dim) {
  const long long row = ROW;
  if (row >= rows) return;
  const int packs = (int)(dim / N);
  const Values *values = (const Values*)(y + row * dim), *slopes = (const Values*)(dy + row * dim);
  Values* to = (Values*)(dx + row * dim);
  A sum = 0, dot = 0;
  each(packs, [&](int k) {
    Values v[HELD], g[HELD];
    HELD_PACKS(u) g[u] = slopes[k + u * LANES];
    if (variance) HELD_PACKS(u) v[u] = values[k + u * LANES];
    HELD_PACKS(u) VALUES(j) {
      sum += g[u].v[j];
      if (variance) dot += g[u].v[j] * v[u].v[j];
    }
  });
  const A mean = all_of(sum) / dim, slope = variance ? all_of(dot) / dim : (A)0;
  const A factor = variance ? (A)inv_std[row] : (A)1;
  each(packs, [&](int k) {
    Values v[HELD], g[HELD];
    HELD_PACKS(u) g[u] = slopes[k + u * LANES];
    if (variance) HELD_PACKS(u) v[u] = values[k + u * LANES];
    HELD_PACKS(u) {
      VALUES(j) g[u].v[j] = (T)((g[u].v[j] - mean - (variance ? slope * v[u].v[j] : (A)0)) * factor);
      to[k + u * LANES] = g[u];
    }
  });
}
"""
_SUM = walking("sums", "sum0 += dy;", reads="dy", sums=1)
_CENTRE = walking("centre", "dx = dy - mean;", reads="dy", writes="dx", channel="mean", back=True)


def mvn_forward(
    x: AnyArray, y: AnyArray, inv_std: AnyArray, work: AnyArray, variance: bool, eps: float, rows: int, dim: int
) -> None:
    """Compute y = (x - mean) * inv_std, inv_std = 1 / (std + eps), or 1 without `variance`; y may be x."""
    grid = Grid(1, rows, dim)
    if dim == 0:
        fill(inv_std, 1)
    elif norm_parts(*grid) == 1:
        run_rows(_ROWS, "forward", (x, y), (rows, dim), inv_std, int(variance), float(eps))
    else:
        mean = batch_moments(x, inv_std, work, variance, eps, grid)
        run_walk(NORMALISE, "normalise", (x, y), (mean, inv_std), grid)


def mvn_backward(
    y: AnyArray | None, dy: AnyArray, dx: AnyArray, inv_std: AnyArray | None, work: AnyArray, rows: int, dim: int
) -> None:
    """Compute dx = (dy - mean(dy) - y * mean(dy * y)) * inv_std, or dy - mean(dy) without inv_std; dx may be dy."""
    variance = inv_std is not None
    if rows * dim == 0:
        return
    grid = Grid(1, rows, dim)
    if norm_parts(*grid) == 1:
        arrays = (y if variance else dy, dy, dx)
        run_rows(_ROWS, "backward", arrays, (rows, dim), inv_std if variance else dy, int(variance))
    elif variance:
        parts = run_walk(SUMS, "sums", (y, dy), (), grid, work)
        channel = inv_std, *means_of(work, grid, parts)
        run_walk(BACKWARD, "backward", (y, dy, dx), channel, grid)
    else:
        parts = run_walk(_SUM, "sums", (dy,), (), grid, work)
        mean = work[rows * parts :]
        add_up(work, 0, mean, False, rows, parts, 1 / dim)
        run_walk(_CENTRE, "centre", (dy, dx), (mean,), grid)
