"""Find the largest values along the middle axis of (outer, dim, inner), and their indices."""

from __future__ import annotations

from ....arrays import AnyArray
from ....backend.cuda import launch
from ...records import Grid

__all__ = ["argmax_forward"]

_SOURCE = """
__device__ bool above(T a, long long i, T b, long long j) {  // (a, i) comes before (b, j); i < 0: nothing at all
  if (i < 0 || j < 0) return i >= 0;
  if (isnan(a) || isnan(b)) return isnan(a) && (!isnan(b) || i > j);
  return a > b || (a == b && i > j);
}
// one block for each row of neighbouring values; each round finds the best one below the last round's
extern "C" __global__ void long_rows(const T* x, T* y, long long indices, long long values, long long top_k,
                                     long long dim) {
  __shared__ T bests[256];
  __shared__ long long places[256];
  long long last_at = -1;
  T last = 0;
  x += blockIdx.x * dim;
  y += blockIdx.x * (indices + values) * top_k;
  for (long long round = 0; round < top_k; ++round) {
    long long at = -1;
    T best = 0;
    for (long long i = threadIdx.x; i < dim; i += 256)
      if ((round == 0 || above(last, last_at, x[i], i)) && above(x[i], i, best, at)) { best = x[i]; at = i; }
    bests[threadIdx.x] = best;
    places[threadIdx.x] = at;
    __syncthreads();
    for (int half = 128; half > 0; half >>= 1) {
      int other = threadIdx.x + half;
      if (threadIdx.x < half && above(bests[other], places[other], bests[threadIdx.x], places[threadIdx.x])) {
        bests[threadIdx.x] = bests[other];
        places[threadIdx.x] = places[other];
      }
      __syncthreads();
    }
    last = bests[0];
    last_at = places[0];
    __syncthreads();
    if (threadIdx.x != 0) continue;
    if (indices) y[round] = last_at;
    if (values) y[indices * top_k + round] = last;
  }
}
// one thread for each place: short rows, or values that lie `inner` apart
extern "C" __global__ void places(const T* x, T* y, long long indices, long long values, long long top_k,
                                  long long outer, long long dim, long long inner) {
  LOOP(place, outer * inner) {
    const T* from = x + place / inner * dim * inner + place % inner;
    T* to = y + place / inner * (indices + values) * top_k * inner + place % inner;
    long long last_at = -1;
    T last = 0;
    for (long long round = 0; round < top_k; ++round) {
      long long at = -1;
      T best = 0;
      for (long long i = 0; i < dim; ++i) {
        T v = from[i * inner];
        if ((round == 0 || above(last, last_at, v, i)) && above(v, i, best, at)) { best = v; at = i; }
      }
      last = best;
      last_at = at;
      if (indices) to[round * inner] = last_at;
      if (values) to[(indices * top_k + round) * inner] = last;
    }
  }
}
"""


def argmax_forward(x: AnyArray, y: AnyArray, indices: bool, values: bool, top_k: int, grid: Grid) -> None:
    """Write the top_k largest values, or their indices, to y (outer, indices + values, top_k, inner)."""
    outer, dim, inner = grid
    args = (x, y, int(indices), int(values), top_k)
    if inner == 1 and dim > 32:
        launch(_SOURCE, "long_rows", x.dtype, 0, *args, dim, block=256, grid=outer)
    else:
        launch(_SOURCE, "places", x.dtype, outer * inner, *args, outer, dim, inner)
