"""Count right answers."""

from __future__ import annotations

from ....arrays import AnyArray
from ....backend.cuda import launch
from ...records import LabelGrid
from ..basic import fill

__all__ = ["accuracy_forward"]

_SOURCE = """
// `lanes` threads look at one position: 32 where a row's scores are neighbours, else 1
extern "C" __global__ void count(const T* scores, const T* label, int* counts, long long has_ignore, long long ignore,
                                 long long top_k, long long outer, long long c, long long inner, long long lanes) {
  LOOP(thread, outer * inner * lanes) {
    long long i = thread / lanes, lane = thread % lanes, at = i / inner * c * inner + i % inner;
    T k = trunc(label[i]);
    bool ignored = has_ignore && k == (T)ignore, known = k >= 0 && k < c;
    int rivals = -1;  // the true class is not less than itself
    if (!ignored && known) {
      T mine = scores[at + (long long)k * inner];
      int found = 0;
      for (long long other = lane; other < c; other += lanes) found += scores[at + other * inner] >= mine;
      for (int half = 16; lanes == 32 && half > 0; half >>= 1) found += __shfl_xor_sync(0xffffffffu, found, half);
      rivals += found;
    }
    if (lane != 0 || ignored) continue;
    if (!known) { atomicAdd(counts + 2, 1); continue; }
    atomicAdd(counts + 1, 1);
    atomicAdd(counts + 3 + c + (long long)k, 1);
    if (rivals >= top_k) continue;
    atomicAdd(counts, 1);
    atomicAdd(counts + 3 + (long long)k, 1);
  }
}
extern "C" __global__ void rate(const int* counts, T* accuracy, T* per_class, long long wants_classes, long long c) {
  LOOP(i, c + 1) {
    if (i == c) accuracy[0] = counts[2] ? (T)nan("") : counts[1] ? (T)counts[0] / counts[1] : (T)0;
    else if (wants_classes) per_class[i] = counts[3 + c + i] ? (T)counts[3 + i] / counts[3 + c + i] : (T)0;
  }
}
"""


def accuracy_forward(
    scores: AnyArray,
    label: AnyArray,
    accuracy: AnyArray,
    per_class: AnyArray | None,
    counts: AnyArray,
    top_k: int,
    grid: LabelGrid,
) -> None:
    """Compute accuracy = right / counted (0 if nothing counts), and per class in `per_class` (c values or None)."""
    outer, c, inner, has_ignore, ignore_label = grid
    fill(counts, 0)
    lanes = 32 if inner == 1 and c > 32 else 1
    args = (scores, label, counts, int(has_ignore), ignore_label, top_k, outer, c, inner, lanes)
    launch(_SOURCE, "count", scores.dtype, outer * inner * lanes, *args)
    wants = per_class is not None
    launch(_SOURCE, "rate", scores.dtype, c + 1, counts, accuracy, per_class if wants else accuracy, int(wants), c)
