"""Compute softmax over the middle axis of (outer, c, inner), and its multinomial logistic loss."""

from __future__ import annotations

import functools

from ....arrays import AnyArray
from ....backend.cuda import launch
from ...records import Grid, LabelGrid
from ..elementwise import elementwise, run
from ..source import BLOCK_MAX, BLOCK_SUM, DIVIDE, divider

__all__ = ["softmax_forward", "softmax_backward", "softmax_loss_forward", "softmax_loss_backward", "softmax_losses"]

_SOFTMAX = (
    BLOCK_MAX
    + BLOCK_SUM
    + """
// one block for each row: long rows of neighbouring elements
extern "C" __global__ void row_forward(const T* x, T* y, long long c) {
  x += blockIdx.x * c;
  y += blockIdx.x * c;
  A best = x[0], sum = 0;
  for (long long k = threadIdx.x; k < c; k += 256) if (x[k] > best) best = x[k];
  best = block_max(best);
  for (long long k = threadIdx.x; k < c; k += 256) sum += y[k] = exp(x[k] - best);
  sum = block_sum(sum);
  for (long long k = threadIdx.x; k < c; k += 256) y[k] /= sum;
}
extern "C" __global__ void row_backward(const T* y, const T* dy, T* dx, long long c) {
  y += blockIdx.x * c;
  dy += blockIdx.x * c;
  dx += blockIdx.x * c;
  A dot = 0;
  for (long long k = threadIdx.x; k < c; k += 256) dot += dy[k] * y[k];
  dot = block_sum(dot);
  for (long long k = threadIdx.x; k < c; k += 256) dx[k] = y[k] * (dy[k] - dot);
}
// one thread for each position: short rows of neighbouring elements
extern "C" __global__ void place_forward(const T* x, T* y, long long rows, long long c) {
  LOOP(i, rows) {
    long long start = i * c, end = start + c;
    A best = x[start], sum = 0;
    for (long long k = start; k < end; ++k) if (x[k] > best) best = x[k];
    for (long long k = start; k < end; ++k) sum += y[k] = exp(x[k] - best);
    for (long long k = start; k < end; ++k) y[k] /= sum;
  }
}
extern "C" __global__ void place_backward(const T* y, const T* dy, T* dx, long long rows, long long c) {
  LOOP(i, rows) {
    long long start = i * c, end = start + c;
    A dot = 0;
    for (long long k = start; k < end; ++k) dot += dy[k] * y[k];
    for (long long k = start; k < end; ++k) dx[k] = y[k] * (dy[k] - dot);
  }
}
"""
)

# Elements that lie `inner` apart. A block works on 256 / GROUPS neighbouring positions, whose channels are shared by
# GROUPS threads; HELD of each thread's values stay in registers, those of further channels are read again.
_ACROSS = (
    DIVIDE
    + """
const int POSITIONS = 256 / GROUPS;
#define START \\
    const int group = threadIdx.x / POSITIONS; \\
    const long long i = (long long)blockIdx.x * POSITIONS + threadIdx.x % POSITIONS; \\
    const bool there = i < positions; \\
    const long long o = quotient(there ? i : 0, inner, magic, shift); \\
    const long long start = (o * c + group) * inner + (there ? i : 0) - o * inner, step = inner * GROUPS; \\
    const int mine = group < c ? (int)((c - group + GROUPS - 1) / GROUPS) : 0
#define EACH_HELD _Pragma("unroll") for (int k = 0; k < HELD; ++k) if (k < mine)
#define EACH_OTHER for (int k = HELD; k < mine; ++k)

template <typename F> __device__ A over_groups(A value, F join) {  // `join` of the values of a position's threads
  __shared__ A part[256];
  part[threadIdx.x] = value;
  __syncthreads();
  for (int half = GROUPS / 2; half > 0; half >>= 1) {
    if (threadIdx.x < half * POSITIONS)
      part[threadIdx.x] = join(part[threadIdx.x], part[threadIdx.x + half * POSITIONS]);
    __syncthreads();
  }
  const A all = part[threadIdx.x % POSITIONS];
  __syncthreads();
  return all;
}
__device__ inline A larger(A a, A b) { return b > a || a != a ? b : a; }  // NaN loses

extern "C" __global__ void __launch_bounds__(256) across_forward(const T* x, T* y, long long positions, long long c,
                                                                 long long inner, long long magic, long long shift) {
  START;
  A held[HELD], best = (A)nan(""), sum = 0;
  EACH_HELD held[k] = x[start + k * step];
  EACH_HELD best = larger(best, held[k]);
  EACH_OTHER best = larger(best, x[start + k * step]);
  best = over_groups(best, [](A a, A b) { return larger(a, b); });
  EACH_HELD sum += held[k] = exp(held[k] - best);
  EACH_OTHER sum += exp(x[start + k * step] - best);
  sum = over_groups(sum, [](A a, A b) { return a + b; });
  if (!there) return;
  const A share = 1 / sum;  // one division for a position: more would be felt beside the memory's time
  EACH_HELD y[start + k * step] = (T)(held[k] * share);
  EACH_OTHER y[start + k * step] = (T)(exp(x[start + k * step] - best) * share);
}
extern "C" __global__ void __launch_bounds__(256) across_backward(const T* y, const T* dy, T* dx, long long positions,
                                                                  long long c, long long inner, long long magic,
                                                                  long long shift) {
  START;
  A values[HELD], slopes[HELD], dot = 0;
  EACH_HELD {
    values[k] = y[start + k * step];
    slopes[k] = dy[start + k * step];
  }
  EACH_HELD dot += slopes[k] * values[k];
  EACH_OTHER dot += dy[start + k * step] * y[start + k * step];
  dot = over_groups(dot, [](A a, A b) { return a + b; });
  if (!there) return;
  EACH_HELD dx[start + k * step] = (T)(values[k] * (slopes[k] - dot));
  EACH_OTHER dx[start + k * step] = (T)(y[start + k * step] * (dy[start + k * step] - dot));
}
"""
)
_GROUPS, _HELD = 8, 16


_LOSS = (
    BLOCK_SUM
    + DIVIDE
    + """
extern "C" __global__ void loss_parts(const T* prob, const T* label, double* work, long long has_ignore,
                                      long long ignore, long long n, long long c, long long inner,
                                      long long magic, long long shift) {
  double sum = 0, count = 0;
  LOOP(i, n) {
    T k = trunc(label[i]);
    if (has_ignore && k == (T)ignore) continue;
    count += 1;
    if (k >= 0 && k < c) {
      const long long o = quotient(i, inner, magic, shift);
      const T p = prob[(o * c + (long long)k) * inner + i - o * inner], least = (T)1.17549435082228751e-38;  // FLT_MIN
      sum -= log(p < least ? least : p);
    } else {
      sum += nan("");
    }
  }
  sum = block_sum(sum);
  count = block_sum(count);
  if (threadIdx.x == 0) {
    work[blockIdx.x] = sum;
    work[256 + blockIdx.x] = count;
  }
}
extern "C" __global__ void loss_total(const double* work, T* loss, double* norm, double normalizer, long long parts) {
  double sum = block_sum(threadIdx.x < parts ? work[threadIdx.x] : 0.0);
  double count = block_sum(threadIdx.x < parts ? work[256 + threadIdx.x] : 0.0);
  if (threadIdx.x == 0) {
    if (normalizer >= 0) count = normalizer;
    norm[0] = count < 1 ? 1 : count;
    loss[0] = (T)(sum / norm[0]);
  }
}
"""
)
_LOSS_BACKWARD = elementwise(
    "loss_backward",
    """
      const long long row = quotient(i, inner, i_magic, i_shift), o = quotient(row, c, c_magic, c_shift);
      const T k = trunc(label[o * inner + i - row * inner]);
      if (has_ignore && k == (T)ignore) dx = 0;
      else if (k >= 0 && k < c) dx = (prob - (row - o * c == (long long)k ? (T)1 : (T)0)) * scale;
      else dx = (T)nan("");
    """,
    reads="prob",
    writes="dx",
    params="const T* label, const T* dloss, const double* norm, long long has_ignore, long long ignore, "
    "long long inner, long long i_magic, long long i_shift, long long c, long long c_magic, long long c_shift",
    setup="const T scale = (T)(dloss[0] / norm[0]);",
    helpers=DIVIDE,
)
_LOSSES = elementwise(
    "losses",
    """
      const T k = trunc(label), least = (T)1.17549435082228751e-38;  // FLT_MIN
      if (has_ignore && k == (T)ignore) loss = 0;
      else if (k >= 0 && k < c) {
        const long long o = quotient(i, inner, magic, shift);
        const T p = prob[(o * c + (long long)k) * inner + i - o * inner];
        loss = -log(p < least ? least : p);
      } else loss = (T)nan("");
    """,
    reads="label",
    writes="loss",
    params="const T* prob, long long has_ignore, long long ignore, long long c, long long inner, long long magic, "
    "long long shift",
    helpers=DIVIDE,
)


@functools.cache
def _across(groups: int, held: int) -> str:
    return f"#define GROUPS {groups}\n#define HELD {held}\n" + _ACROSS


def _softmax(name: str, arrays: tuple[AnyArray, ...], grid: Grid) -> None:
    dtype, (outer, c, inner) = arrays[0].dtype, grid
    if inner == 1 and c > 32:
        launch(_SOFTMAX, "row_" + name, dtype, 0, *arrays, c, block=256, grid=outer)
    elif inner == 1 and c > 0:
        launch(_SOFTMAX, "place_" + name, dtype, outer, *arrays, outer, c)
    elif c > 0 and outer * inner > 0:
        groups = min(_GROUPS, 1 << ((c - 1) // _HELD).bit_length())
        positions, side = outer * inner, 256 // groups
        args = (*arrays, positions, c, *divider(inner, positions))
        blocks = (positions + side - 1) // side
        launch(_across(groups, min(c, _HELD)), "across_" + name, dtype, 0, *args, block=256, grid=blocks)


def softmax_forward(x: AnyArray, y: AnyArray, grid: Grid) -> None:
    """Compute y = exp(x - max(x)) / sum(exp(x - max(x))) along c; y may be x."""
    _softmax("forward", (x, y), grid)


def softmax_backward(y: AnyArray, dy: AnyArray, dx: AnyArray, grid: Grid) -> None:
    """Compute dx = y * (dy - sum(dy * y)), sums along c; dx may be dy."""
    _softmax("backward", (y, dy, dx), grid)


def softmax_loss_forward(
    prob: AnyArray, label: AnyArray, loss: AnyArray, norm: AnyArray, work: AnyArray, normalizer: float, grid: LabelGrid
) -> None:
    """Compute loss = sum of -log(max(p[label], FLT_MIN)) over the labels not ignored, divided by norm[0]."""
    outer, c, inner, has_ignore, ignore_label = grid
    n = outer * inner
    parts = min(256, max(1, (n + 1023) // 1024))
    args = (prob, label, work, int(has_ignore), ignore_label, n, c, *divider(inner, n))
    launch(_LOSS, "loss_parts", prob.dtype, 0, *args, block=256, grid=parts)
    launch(_LOSS, "loss_total", prob.dtype, 0, work, loss, norm, float(normalizer), parts, block=256, grid=1)


def softmax_losses(prob: AnyArray, label: AnyArray, losses: AnyArray, grid: LabelGrid) -> None:
    """Compute losses = -log(max(p[label], FLT_MIN)), 0 at ignored labels, NaN at a label outside 0..c-1."""
    outer, c, inner, has_ignore, ignore_label = grid
    args = (prob, int(has_ignore), ignore_label, c, *divider(inner, outer * inner))
    run(_LOSSES, "losses", (label, losses), *args)


def softmax_loss_backward(
    prob: AnyArray, label: AnyArray, dloss: AnyArray, norm: AnyArray, dx: AnyArray, grid: LabelGrid
) -> None:
    """Compute dx = (p - onehot(label)) * dloss / norm[0]; 0 at ignored labels, NaN at a label outside 0..c-1."""
    outer, c, inner, has_ignore, ignore_label = grid
    n = outer * c * inner
    args = (label, dloss, norm, int(has_ignore), ignore_label, *divider(inner, n), *divider(c, n))
    run(_LOSS_BACKWARD, "loss_backward", (prob, dx), *args)
