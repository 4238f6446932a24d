"""Read the labels of the best path of sequences of scores, and compare them with what they should be."""

from __future__ import annotations

from ....arrays import AnyArray
from ....backend.cuda import launch
from ...records import LabelRows
from ..source import BLOCK_SUM

__all__ = ["best_classes", "best_path", "exact_share", "label_accuracy", "line_accuracy", "write_labels"]

_SOURCE = (
    BLOCK_SUM
    + """
// a warp for each row: NaN is the highest score, as it is for NumPy
extern "C" __global__ void best_of(const T* x, int* best, T* top, long long has_top, long long rows,
                                   long long classes) {
  const long long warps = gridDim.x * (long long)(blockDim.x / 32);
  const int lane = threadIdx.x % 32;
  for (long long r = (blockIdx.x * (long long)blockDim.x + threadIdx.x) / 32; r < rows; r += warps) {
    const T* row = x + r * classes;
    int where = lane < classes ? lane : 0;
    T most = row[where];
    for (int c = lane + 32; c < classes; c += 32)
      if (!(most != most) && !(row[c] <= most)) { most = row[c]; where = c; }
    for (int half = 16; half > 0; half >>= 1) {
      const T other = __shfl_xor_sync(0xffffffffu, most, half);
      const int place = __shfl_xor_sync(0xffffffffu, where, half);
      const bool mine_is_nan = most != most, its_is_nan = other != other;
      const bool equal = mine_is_nan ? its_is_nan : other == most;
      if (equal ? place < where : its_is_nan || other > most) { most = other; where = place; }
    }
    if (lane == 0) {
      best[r] = where;
      if (has_top) top[r] = most;
    }
  }
}

// one thread for each item
extern "C" __global__ void paths(const int* best, const T* top, const T* marks, int* found, T* score,
                                 long long has_top, long long has_marks, long long items, long long steps,
                                 long long step, long long item, long long blank, long long merge) {
  LOOP(i, items) {
    int* labels = found + i * (1 + steps);
    int n = 0, before = -1;
    double sum = 0;
    for (long long t = 0; t < steps; ++t) {
      const long long at = t * step + i * item;
      if (t > 0 && has_marks && marks[at] == (T)0) break;
      const int now = best[at];
      if (has_top) sum += (double)top[at];
      if (now != blank && !(merge && now == before)) labels[1 + n++] = now;
      before = now;
    }
    labels[0] = n;
    if (has_top) score[i] = (T)-sum;
  }
}

extern "C" __global__ void spread(const int* found, T* y, long long items, long long steps, long long step,
                                  long long item) {
  LOOP(k, items * steps) {
    const long long i = k / steps, t = k % steps;
    const int* labels = found + i * (1 + steps);
    y[t * step + i * item] = t < labels[0] ? (T)labels[1 + t] : (T)-1;
  }
}

extern "C" __global__ void distances(const int* found, const T* labels, int* work, double* distance, long long width,
                                     long long items, long long steps, long long step, long long item) {
  LOOP(i, items) {
    const int* mine = found + i * width;
    int* line = work + i * (1 + steps);
    int n = 0;
    while (n < steps && !(labels[n * step + i * item] < (T)0)) ++n;
    for (int b = 0; b <= n; ++b) line[b] = b;
    for (int a = 0; a < mine[0]; ++a) {
      int corner = line[0];
      line[0] = a + 1;
      for (int b = 0; b < n; ++b) {
        const bool same = mine[1 + a] == (int)(labels[b * step + i * item] + (T)0.5);
        int least = corner + (same ? 0 : 1);
        corner = line[b + 1];
        if (corner + 1 < least) least = corner + 1;
        if (line[b] + 1 < least) least = line[b] + 1;
        line[b + 1] = least;
      }
    }
    const int longer = n > mine[0] ? n : mine[0];
    distance[i] = longer ? (double)line[n] / longer : 0.0;
  }
}

extern "C" __global__ void differences(const int* found, const T* labels, double* distance, long long width,
                                       long long items, long long steps, long long step, long long item,
                                       long long blank) {
  LOOP(i, items) {
    const int* mine = found + i * width;
    int n = 0;
    bool same = true;
    for (long long t = 0; t < steps; ++t) {
      const T label = labels[t * step + i * item];
      if (label == (T)blank) continue;
      same = same && n < mine[0] && (T)mine[1 + n] == label;
      ++n;
    }
    distance[i] = same && n == mine[0] ? 0.0 : 1.0;
  }
}

// labels without blanks, then -1
extern "C" __global__ void strip(const T* labels, T* given, long long items, long long steps, long long step,
                                 long long item, long long blank) {
  LOOP(i, items) {
    T* line = given + i * steps;
    long long n = 0;
    for (long long t = 0; t < steps && !(labels[t * step + i * item] < (T)0); ++t) {
      const long long label = (long long)(labels[t * step + i * item] + (T)0.5);
      if (label != blank) line[n++] = (T)label;
    }
    for (; n < steps; ++n) line[n] = (T)-1;
  }
}

extern "C" __global__ void both_shares(const int* found, const T* given, const double* distance, T* accuracy,
                                       long long width, long long items, long long steps) {
  double sum = 0, right = 0;
  for (long long i = threadIdx.x; i < items; i += 256) {
    sum += distance[i];
    right += distance[i] == 0 && (found[i * width] > 0 || (steps > 0 && given[i * steps] >= (T)0));
  }
  sum = block_sum(sum);
  right = block_sum(right);
  if (threadIdx.x == 0) {
    accuracy[0] = (T)(1 - sum / (double)(items > 1 ? items : 1));
    accuracy[1] = (T)(right / (double)(items > 1 ? items : 1));
  }
}

extern "C" __global__ void share(const double* distance, T* accuracy, long long items) {
  double sum = 0;
  for (long long i = threadIdx.x; i < items; i += 256) sum += distance[i];
  sum = block_sum(sum);
  if (threadIdx.x == 0) accuracy[0] = (T)(1 - sum / (double)(items > 1 ? items : 1));
}
"""
)


def best_classes(x: AnyArray, best: AnyArray, top: AnyArray | None) -> None:
    """Write the first class of the highest score of each row of x (rows, classes) to best (int32), the score to top."""
    rows = best.size
    args = (x, best, x if top is None else top, int(top is not None), rows, x.size // max(1, rows))
    launch(_SOURCE, "best_of", x.dtype, 32 * rows, *args, block=256)


def best_path(
    best: AnyArray,
    top: AnyArray | None,
    marks: AnyArray | None,
    found: AnyArray,
    score: AnyArray | None,
    rows: LabelRows,
    blank: int,
    merge: bool,
) -> None:
    """Write the labels on a path to found (items, 1 + steps), int32: their number first; the rest is free."""
    real = next((a for a in (top, marks) if a is not None), None)
    dtype = "float32" if real is None else real.dtype  # of no array: the kernel then reads best and found alone
    arrays = (best, best if top is None else top, best if marks is None else marks, found)
    flags = int(top is not None and score is not None), int(marks is not None)
    args = (*arrays, best if score is None else score, *flags, *rows, blank, int(merge))
    launch(_SOURCE, "paths", dtype, rows.items, *args)


def write_labels(found: AnyArray, y: AnyArray, rows: LabelRows) -> None:
    """Write the labels of `found`, of best_path, to y, which lies as `rows` says, and -1 behind them."""
    launch(_SOURCE, "spread", y.dtype, rows.items * rows.steps, found, y, *rows)


def label_accuracy(
    found: AnyArray, labels: AnyArray, work: AnyArray, distance: AnyArray, accuracy: AnyArray, rows: LabelRows
) -> None:
    """Compute accuracy = 1 - mean of edit distance / length of the longer sequence, 0 where both are empty."""
    launch(_SOURCE, "distances", labels.dtype, rows.items, found, labels, work, distance, found.shape[1], *rows)
    launch(_SOURCE, "share", accuracy.dtype, 0, distance, accuracy, rows.items, block=256, grid=1)


def line_accuracy(
    found: AnyArray,
    labels: AnyArray,
    given: AnyArray,
    work: AnyArray,
    distance: AnyArray,
    accuracy: AnyArray,
    rows: LabelRows,
    blank: int,
) -> None:
    """Compute accuracy[0] as `label_accuracy` does, of labels without `blank`, and accuracy[1], the share of items
    whose labels are those found; an item with none of either kind counts as wrong."""
    items, steps, width = rows.items, rows.steps, found.shape[1]
    launch(_SOURCE, "strip", labels.dtype, items, labels, given, *rows, blank)
    launch(_SOURCE, "distances", labels.dtype, items, found, given, work, distance, width, items, steps, 1, steps)
    args = (found, given, distance, accuracy, width, items, steps)
    launch(_SOURCE, "both_shares", accuracy.dtype, 0, *args, block=256, grid=1)


def exact_share(
    found: AnyArray, labels: AnyArray, distance: AnyArray, accuracy: AnyArray, rows: LabelRows, blank: int
) -> None:
    """Compute accuracy = the share of items whose labels, without `blank`, are those that were found."""
    args = (found, labels, distance, found.shape[1], *rows, blank)
    launch(_SOURCE, "differences", labels.dtype, rows.items, *args)
    launch(_SOURCE, "share", accuracy.dtype, 0, distance, accuracy, rows.items, block=256, grid=1)
