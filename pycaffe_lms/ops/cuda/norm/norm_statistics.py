"""Compute a batch's statistics in one pass.

A mean and the sum of squared distances from it are kept per thread, per part and per channel, and joined without
subtracting large numbers. `cuda/channel_walk.py` says how the array is walked.
"""

from __future__ import annotations

from ....arrays import AnyArray
from ....backend.cuda import launch
from ...records import BatchNorm, Grid, Moments, RunningSums
from ..basic import fill
from ..channel_walk import TOTALS, WALK, Walk

# kernel for each part's mean and sum of squared distances from it
MOMENTS = (
    "#define BYTES 64\n"
    + WALK
    + """
struct Moments {
  A mean[K], squares[K], count;
  __device__ void add(const A* other_mean, const A* other_squares, A other_count) {
    const A share = other_count / (count + other_count);
    CHANNELS(k) {
      const A d = other_mean[k] - mean[k];
      mean[k] += d * share;
      squares[k] += other_squares[k] + d * d * count * share;
    }
    count += other_count;
  }
};
template <bool full> __device__ void visit(Walk& w, Moments& all, const T* x) {
  PLACES(w, count)
  Pack pack[DEPTH];
  EACH(u) pack[u] = load(x, at[u]);
  const A size = (full ? DEPTH : count) * (V / K);
  A mean[K], squares[K];
  CHANNELS(k) mean[k] = squares[k] = 0;
  EACH(u) LANES(v) mean[v % K] += (C)pack[u].v[v];
  CHANNELS(k) mean[k] /= size;
  EACH(u) LANES(v) {
    const A d = (C)pack[u].v[v] - mean[v % K];
    squares[v % K] += d * d;
  }
  all.add(mean, squares, size);
}
WALKER part_moments(const T* x, C* work, SIZES) {
  __shared__ A means[256][K], squares[256][K], counts[256];
  Walk w(false, n, c, s, parts, share, across);
  Moments all;
  all.count = 0;
  CHANNELS(k) all.mean[k] = all.squares[k] = 0;
  while (w.left >= DEPTH) visit<true>(w, all, x);
  if (w.left > 0) visit<false>(w, all, x);
  const int me = threadIdx.x;
  for (int half = 128; half >= across; half >>= 1) {  // a fixed tree over the threads of the same channels
    if (me >= half && me < 2 * half) {
      CHANNELS(k) { means[me][k] = all.mean[k]; squares[me][k] = all.squares[k]; }
      counts[me] = all.count;
    }
    __syncthreads();
    if (me < half && counts[me + half] > 0) all.add(means[me + half], squares[me + half], counts[me + half]);
  }
  if (me >= across || w.channel >= c) return;
  CHANNELS(k) {
    work[(w.channel + k) * parts + w.part] = all.mean[k];
    work[(c + w.channel + k) * parts + w.part] = all.squares[k];
  }
}
"""
)

# values: how many of a channel make a part
STATISTICS = (
    TOTALS
    + """
// of channel blockIdx.x, put together from its parts
struct Whole {
  double average, variance;
  __device__ Whole(const T* work, long long items, long long c, long long parts, long long values) {
    const long long channel = blockIdx.x;
    double sum = 0, squares = 0;
    for (long long p = threadIdx.x; p < parts && p * values < items; p += 256) {
      const double size = items - p * values < values ? items - p * values : values;
      sum += size * work[channel * parts + p];
    }
    average = block_total(sum) / items;
    for (long long p = threadIdx.x; p < parts && p * values < items; p += 256) {
      const double size = items - p * values < values ? items - p * values : values;
      const double d = work[channel * parts + p] - average;
      squares += work[(c + channel) * parts + p] + size * d * d;
    }
    variance = block_total(squares) / items;
  }
};
extern "C" __global__ void __launch_bounds__(256) statistics(const T* work, T* inv_std, T* mean, T* running_mean,
    T* running_var, T* factor, double momentum, double eps, long long items, long long c, long long parts,
    long long values) {
  const long long channel = blockIdx.x;
  const Whole whole(work, items, c, parts, values);
  if (threadIdx.x != 0) return;
  const double variance = whole.variance;
  mean[channel] = (T)whole.average;
  inv_std[channel] = (T)(1 / sqrt(variance + eps));
  running_mean[channel] = (T)(momentum * running_mean[channel] + whole.average);
  running_var[channel] = (T)(momentum * running_var[channel] + variance * (items > 1 ? items / (items - 1.0) : 1.0));
  if (channel == 0) factor[0] = (T)(momentum * factor[0] + 1);
}
extern "C" __global__ void __launch_bounds__(256) moments(const T* work, T* mean, T* inv_std, long long scaled,
    double eps, long long items, long long c, long long parts, long long values) {
  const Whole whole(work, items, c, parts, values);
  if (threadIdx.x != 0) return;
  mean[blockIdx.x] = (T)whole.average;
  inv_std[blockIdx.x] = scaled ? (T)(1 / (sqrt(whole.variance) + eps)) : (T)1;
}
extern "C" __global__ void __launch_bounds__(256) rank_moments(const T* work, T* own, long long items, long long c,
    long long parts, long long values) {
  const Whole whole(work, items, c, parts, values);
  if (threadIdx.x != 0) return;
  own[blockIdx.x] = (T)whole.average;
  own[c + blockIdx.x] = (T)whole.variance;
  if (blockIdx.x == 0) own[2 * c] = (T)items;
}
extern "C" __global__ void running_statistics(T* inv_std, T* mean, const T* running_mean, const T* running_var,
                                              const T* factor, double eps, long long outside, long long c) {
  const double weight = factor[0] == 0 ? 0.0 : 1.0 / factor[0];
  LOOP(i, c) {
    mean[i] = (T)(running_mean[i] * weight);
    const double var = running_var[i] * weight;
    inv_std[i] = (T)(1 / (outside ? sqrt(var) + eps : sqrt(var + eps)));
  }
}
"""
)

# the statistics of the batches of all ranks; each gives means, variances and the number of values
SYNC = """
extern "C" __global__ void sync_statistics(const T* gathered, T* inv_std, T* mean, T* total, T* running_mean,
    T* running_var, T* factor, double momentum, double eps, long long ranks, long long c) {
  const long long slot = 2 * c + 1;
  LOOP(i, c) {
    double items = 0, sum = 0, squares = 0;
    for (long long r = 0; r < ranks; ++r) {
      items += gathered[r * slot + 2 * c];
      sum += (double)gathered[r * slot + 2 * c] * gathered[r * slot + i];
    }
    const double average = items > 0 ? sum / items : 0.0;
    for (long long r = 0; r < ranks; ++r) {
      const double d = gathered[r * slot + i] - average;
      squares += gathered[r * slot + 2 * c] * (gathered[r * slot + c + i] + d * d);
    }
    const double variance = items > 0 ? squares / items : 0.0;
    mean[i] = (T)average;
    inv_std[i] = items > 0 ? (T)(1 / sqrt(variance + eps)) : (T)0;
    if (i == 0) total[0] = (T)items;
    if (items > 0) {
      running_mean[i] = (T)(momentum * running_mean[i] + average);
      running_var[i] = (T)(momentum * running_var[i] + variance * (items > 1 ? items / (items - 1.0) : 1.0));
      if (i == 0) factor[0] = (T)(momentum * factor[0] + 1);
    }
  }
}
extern "C" __global__ void divide(T* sums, const T* total, long long n) { LOOP(i, n) sums[i] /= total[0]; }
"""


def batch_norm_statistics(x: AnyArray, moments: Moments, running: RunningSums, work: AnyArray, norm: BatchNorm) -> None:
    """Write mean and inv_std = 1 / sqrt(var + eps) of a batch, and update the running sums."""
    (mean, inv_std), (running_mean, running_var, factor) = moments, running
    n, c, s = norm.grid
    if n * s == 0:
        fill(inv_std, 0)
        fill(mean, 0)
        return
    walk = Walk(norm.grid, x.dtype.itemsize)
    walk.run(MOMENTS, "part_moments", (x,), work)
    moved = inv_std, mean, running_mean, running_var, factor, float(norm.momentum), float(norm.eps)
    sizes = n * s, c, walk.parts, walk.values
    launch(STATISTICS, "statistics", work.dtype, 0, work, *moved, *sizes, block=256, grid=c)


def batch_moments(x: AnyArray, inv_std: AnyArray, work: AnyArray, scaled: bool, eps: float, grid: Grid) -> AnyArray:
    """Write inv_std = 1 / (std + eps), or 1 if not `scaled`; return the mean, a view of `work` behind the parts."""
    n, c, s = grid
    walk = Walk(grid, x.dtype.itemsize)
    walk.run(MOMENTS, "part_moments", (x,), work)
    mean = work[2 * c * walk.parts :]
    sizes = n * s, c, walk.parts, walk.values
    launch(
        STATISTICS, "moments", work.dtype, 0, work, mean, inv_std, int(scaled), float(eps), *sizes, block=256, grid=c
    )
    return mean


def batch_norm_running(moments: Moments, running: RunningSums, norm: BatchNorm) -> None:
    """Write mean and inv_std = 1 / sqrt(var + eps) of the running sums over their factor (both 0 if that is 0).

    norm.outside: inv_std = 1 / (sqrt(var) + eps).
    """
    (mean, inv_std), (running_mean, running_var, factor) = moments, running
    c = norm.grid.channels
    args = (inv_std, mean, running_mean, running_var, factor, float(norm.eps), int(norm.outside), c)
    launch(STATISTICS, "running_statistics", inv_std.dtype, c, *args)


def rank_moments(x: AnyArray, own: AnyArray, work: AnyArray, grid: Grid) -> None:
    """Write the means, the variances and the number of values of a batch that is not empty."""
    n, c, s = grid
    walk = Walk(grid, x.dtype.itemsize)
    walk.run(MOMENTS, "part_moments", (x,), work)
    sizes = n * s, c, walk.parts, walk.values
    launch(STATISTICS, "rank_moments", work.dtype, 0, work, own, *sizes, block=256, grid=c)


def sync_norm_statistics(
    gathered: AnyArray, moments: Moments, items: AnyArray, running: RunningSums, norm: BatchNorm
) -> None:
    """Write mean and inv_std = 1 / sqrt(var + eps) of the batches of all ranks together, and to `items` (1) the number
    of values per channel in them; update the running sums as `batch_norm_train_forward` does.
    """
    (mean, inv_std), c = moments, norm.grid.channels
    moved = inv_std, mean, items, *running, float(norm.momentum), float(norm.eps)
    launch(SYNC, "sync_statistics", gathered.dtype, c, gathered, *moved, gathered.size // (2 * c + 1), c)


def divide_by(sums: AnyArray, items: AnyArray) -> None:
    """Divide each of the sums by the one element of `items`."""
    launch(SYNC, "divide", sums.dtype, sums.size, sums, items, sums.size)
