"""Compute the loss of sequences whose labels have no known places (connectionist temporal classification, CTC)."""

from __future__ import annotations

from ....arrays import AnyArray
from ....backend.cuda import launch
from ...records import CtcRule, CtcSums
from ..source import BLOCK_SUM

__all__ = ["ctc_loss_backward", "ctc_loss_forward", "ctc_paths"]

_SOURCE = (
    BLOCK_SUM
    + """
#define NEVER (-INFINITY)
#ifndef INFINITY
#define INFINITY __longlong_as_double(0x7ff0000000000000LL)
#endif

// one thread for each item
extern "C" __global__ void read_paths(const T* marks, const T* labels, int* paths, long long has_marks,
                                      long long steps, long long items, long long classes, long long most,
                                      long long blank, long long delay, long long collapse, long long by_item) {
  LOOP(i, items) {
    int* path = paths + i * (2 * most + 3);
    long long length = steps, found = 0;
    if (has_marks)
      for (long long t = 1; t < steps; ++t)
        if (trunc(marks[t * items + i] + (T)0.5) == (T)0) { length = t; break; }
    bool wrong = false, over = false;
    for (long long u = 0; u <= 2 * most; ++u) path[2 + u] = (int)blank;
    for (long long k = 0; k < most; ++k) {
      T value = by_item ? labels[i * most + k] : labels[k * items + i];
      if (by_item) {
        if (!(value > (T)-1 && value < (T)classes)) { wrong = true; continue; }
        if (trunc(value) == (T)blank) continue;
      } else {
        if (value < (T)0) break;
        if (collapse && k > 0 && value == labels[(k - 1) * items + i]) continue;
        if (!(value + (T)0.5 < (T)classes) || trunc(value + (T)0.5) == (T)blank) {
          over = true;
          wrong = wrong || value != value;
          continue;
        }
        wrong = wrong || over;
        value += (T)0.5;
      }
      path[3 + 2 * found] = (int)value;
      ++found;
    }
    path[0] = (int)(length > delay ? length - delay : 0);
    path[1] = wrong ? -1 : found == 0 && length <= 1 && !by_item ? 0 : (int)(2 * found + 1);
  }
}

// one warp for each time step of each item
extern "C" __global__ void norms(const T* x, double* norm, long long rows, long long classes) {
  const long long warps = gridDim.x * (long long)(blockDim.x / 32);
  const int lane = threadIdx.x % 32;
  for (long long r = (blockIdx.x * (long long)blockDim.x + threadIdx.x) / 32; r < rows; r += warps) {
    const T* row = x + r * classes;
    double most = NEVER, total = 0;
    for (long long c = lane; c < classes; c += 32) most = (double)row[c] > most ? (double)row[c] : most;
    for (int half = 16; half > 0; half >>= 1) {
      const double other = __shfl_xor_sync(0xffffffffu, most, half);
      most = other > most ? other : most;
    }
    for (long long c = lane; c < classes; c += 32) total += exp((double)row[c] - most);
    total = warp_sum(total);
    if (lane == 0) norm[r] = most + log(total);
  }
}

__device__ double add_logs(double a, double b) {  // log(exp(a) + exp(b))
  if (a < b) { const double larger = b; b = a; a = larger; }
  return b == NEVER ? a : a + log1p(exp(b - a));
}

// one block for each item; a thread for each position of its paths
extern "C" __global__ void alphas(const T* x, const int* paths, const double* norm, double* alpha, double* score,
                                  long long steps, long long items, long long classes, long long most,
                                  long long blank, long long delay, long long merge) {
  const long long i = blockIdx.x, width = 2 * most + 1;
  const int* path = paths + i * (width + 2) + 2;
  const int length = path[-2], n = path[-1];
  alpha += i * steps * width;
  for (int t = 0; t < steps; ++t) {
    const long long row = (delay + t) * items + i;
    const double* before = alpha + (t - 1) * width;
    for (int u = threadIdx.x; u < width; u += blockDim.x) {
      if (t >= length || u >= n) {
        alpha[t * width + u] = 0;
        continue;
      }
      double total = t == 0 && u < 2 ? 0 : NEVER;
      if (t > 0) {
        if (merge || path[u] == blank) total = before[u];
        if (u > 0) total = add_logs(total, before[u - 1]);
        if (u > 1 && path[u] != blank && !(merge && path[u] == path[u - 2])) total = add_logs(total, before[u - 2]);
      }
      alpha[t * width + u] = total + ((double)x[row * classes + path[u]] - norm[row]);
    }
    __syncthreads();
  }
  if (threadIdx.x == 0) {
    double total = n == 0 ? 0 : n < 0 ? nan("") : NEVER;
    if (n > 0 && length > 0) {
      const double* end = alpha + (length - 1) * width + n - 1;
      total = n > 1 ? add_logs(end[0], end[-1]) : end[0];
    }
    score[i] = total;
  }
}

extern "C" __global__ void mean_loss(const double* score, T* loss, long long items) {
  double sum = 0;
  for (long long i = threadIdx.x; i < items; i += 256) sum += score[i];
  sum = block_sum(sum);
  if (threadIdx.x == 0) loss[0] = (T)(-sum / (double)(items > 1 ? items : 1));
}

extern "C" __global__ void betas(const T* x, const int* paths, const double* norm, double* beta, long long steps,
                                 long long items, long long classes, long long most, long long blank,
                                 long long delay, long long merge) {
  const long long i = blockIdx.x, width = 2 * most + 1;
  const int* path = paths + i * (width + 2) + 2;
  const int length = path[-2], n = path[-1];
  beta += i * steps * width;
  for (int t = length - 1; t >= 0 && n > 0; --t) {
    const long long row = (delay + t + 1) * items + i;
    const double* after = beta + (t + 1) * width;
    for (int u = threadIdx.x; u < n; u += blockDim.x) {
      double total = t == length - 1 && u >= n - 2 ? 0 : NEVER;
      for (int v = u; t < length - 1 && v < n && v < u + 3; ++v) {
        if (v == u && !(merge || path[u] == blank)) continue;
        if (v == u + 2 && (path[u] == blank || (merge && path[u] == path[v]))) continue;
        total = add_logs(total, after[v] + ((double)x[row * classes + path[v]] - norm[row]));
      }
      beta[t * width + u] = total;
    }
    __syncthreads();
  }
}

// one block for each time step of each item; the first of the positions of a class takes them all
extern "C" __global__ void gradients(const T* x, const int* paths, const T* dloss, const double* norm,
                                     const double* alpha, const double* score, const double* beta, T* dx,
                                     long long steps, long long items, long long classes, long long most,
                                     long long delay) {
  const long long step = blockIdx.x / items, i = blockIdx.x % items, width = 2 * most + 1, t = step - delay;
  const int* path = paths + i * (width + 2) + 2;
  const int length = path[-2], n = path[-1];
  const bool inside = t >= 0 && t < length && n > 0;
  const T* row = x + blockIdx.x * classes;
  T* out = dx + blockIdx.x * classes;
  const double scale = (double)dloss[0], divisor = norm[blockIdx.x];
  for (long long c = threadIdx.x; c < classes; c += blockDim.x)
    out[c] = (T)(inside ? scale * exp((double)row[c] - divisor) : n < 0 ? nan("") : 0.0);
  __syncthreads();
  if (!inside || score[i] == NEVER) return;
  alpha += (i * steps + t) * width;
  beta += (i * steps + t) * width;
  for (int u = threadIdx.x; u < n; u += blockDim.x) {
    bool first = true;
    for (int v = u % 2; v < u && first; v += 2) first = path[v] != path[u];
    if (!first) continue;
    double total = NEVER;
    for (int v = u; v < n; v += 2)
      if (path[v] == path[u]) total = add_logs(total, alpha[v] + beta[v]);
    const int c = path[u];
    out[c] = (T)(scale * (exp((double)row[c] - divisor) - exp(total - score[i])));
  }
}
"""
)
_BLOCK = 128


def ctc_paths(marks: AnyArray | None, labels: AnyArray, paths: AnyArray, rule: CtcRule) -> None:
    """Write what paths go through: paths (items, 2 + 2 * most + 1), int32, has time steps, positions, classes."""
    given = labels if marks is None else marks
    sizes = rule.steps, rule.items, rule.classes, rule.most, rule.blank, rule.delay
    args = (given, labels, paths, int(marks is not None), *sizes, int(rule.collapse), int(rule.by_item))
    launch(_SOURCE, "read_paths", labels.dtype, rule.items, *args)


def ctc_loss_forward(
    x: AnyArray,
    paths: AnyArray,
    loss: AnyArray,
    sums: CtcSums,
    rule: CtcRule,
) -> None:
    """Compute loss = the mean over items of -log(probability of its labels), x (steps, items, classes) being scores."""
    rows = rule.steps * rule.items
    launch(_SOURCE, "norms", x.dtype, 32 * rows, x, sums.norm, rows, rule.classes, block=256)
    sizes = rule.steps, rule.items, rule.classes, rule.most, rule.blank, rule.delay, int(rule.merge)
    args = (x, paths, sums.norm, sums.alpha, sums.score, *sizes)
    launch(_SOURCE, "alphas", x.dtype, 0, *args, block=_BLOCK, grid=rule.items)
    launch(_SOURCE, "mean_loss", x.dtype, 0, sums.score, loss, rule.items, block=256, grid=1)


def ctc_loss_backward(
    x: AnyArray,
    paths: AnyArray,
    dloss: AnyArray,
    sums: CtcSums,
    dx: AnyArray,
    rule: CtcRule,
) -> None:
    """Compute dx = dloss * (softmax - share of the paths that name the class at that step); 0 outside sequences."""
    sizes = rule.steps, rule.items, rule.classes, rule.most
    args = (x, paths, sums.norm, sums.beta, *sizes, rule.blank, rule.delay, int(rule.merge))
    launch(_SOURCE, "betas", x.dtype, 0, *args, block=_BLOCK, grid=rule.items)
    args = (x, paths, dloss, *sums, dx, *sizes, rule.delay)
    launch(_SOURCE, "gradients", x.dtype, 0, *args, block=_BLOCK, grid=rule.steps * rule.items)
