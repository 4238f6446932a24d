"""Drop elements by a counter-based generator: no mask is stored, backward draws the same bits again.

The generator is Philox4x32-10 (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", SC11). `key` is an array
of three uint64: a seed, the number of draws made with it before, and the block of the first element. With b = key[2] +
i // 4, element i takes lane i % 4 of the block whose counter is the low and high word of b, then of key[1], under the
key key[0]. `drop_path` draws for each item instead: item n takes lane 0 of block key[2] + n. `guided_factors` draws for
each element of the guidance.
"""

from __future__ import annotations

import math

from ....arrays import AnyArray
from ....backend.cuda import launch
from ..elementwise import elementwise, run
from ..source import BLOCK_SUM

__all__ = [
    "drop_path_backward",
    "drop_path_forward",
    "dropout_backward",
    "dropout_forward",
    "guided_factors",
    "threshold_factors",
]

PHILOX = """
__device__ void philox(unsigned* c, unsigned k0, unsigned k1) {
  #pragma unroll
  for (int round = 0; round < 10; ++round) {
    unsigned long long p0 = (unsigned long long)c[0] * 0xD2511F53u, p1 = (unsigned long long)c[2] * 0xCD9E8D57u;
    c[0] = (unsigned)(p1 >> 32) ^ c[1] ^ k0;
    c[2] = (unsigned)(p0 >> 32) ^ c[3] ^ k1;
    c[1] = (unsigned)p1;
    c[3] = (unsigned)p0;
    k0 += 0x9E3779B9u;
    k1 += 0xBB67AE85u;
  }
}
"""

_SOURCE = elementwise(
    "dropout",
    "y = x * ((long long)c[lane] >= drop ? (T)scale : (T)0);",
    reads="x",
    writes="y",
    params="const unsigned long long* key, long long drop, double scale",
    setup="const unsigned long long seed = key[0], offset = key[1], first_block = key[2];",
    each="""
    const long long block = (long long)first_block + first / 4;
    unsigned c[4] = {(unsigned)block, (unsigned)(block >> 32), (unsigned)offset, (unsigned)(offset >> 32)};
    philox(c, (unsigned)seed, (unsigned)(seed >> 32));
    """,
    helpers=PHILOX,
)

_PATH = elementwise(
    "drop_path",
    """
    if (i >= end) {
      item = i / inner;
      end = (item + 1) * inner;
      factor = item_factor(key, item, drop, scale);
    }
    y = x * factor;
    """,
    reads="x",
    writes="y",
    params="const unsigned long long* key, long long drop, double scale, long long inner",
    setup="""
    long long item = base / inner, end = (item + 1) * inner;
    T factor = item_factor(key, item, drop, scale);
    """,
    helpers=PHILOX
    + """
__device__ T item_factor(const unsigned long long* key, long long item, long long drop, double scale) {
  const unsigned long long seed = key[0], offset = key[1], block = key[2] + item;
  unsigned c[4] = {(unsigned)block, (unsigned)(block >> 32), (unsigned)offset, (unsigned)(offset >> 32)};
  philox(c, (unsigned)seed, (unsigned)(seed >> 32));
  return (long long)c[0] >= drop ? (T)scale : (T)0;
}
""",
)
KEPT = (
    PHILOX
    + """
// whether element i of an array keeps its value
__device__ bool kept(const unsigned long long* key, unsigned long long i, long long drop) {
  const unsigned long long seed = key[0], offset = key[1], block = key[2] + i / 4;
  unsigned c[4] = {(unsigned)block, (unsigned)(block >> 32), (unsigned)offset, (unsigned)(offset >> 32)};
  philox(c, (unsigned)seed, (unsigned)(seed >> 32));
  const unsigned even = i & 2 ? c[2] : c[0], odd = i & 2 ? c[3] : c[1];
  return (long long)(i & 1 ? odd : even) >= drop;
}
"""
)

_FACTORS = (
    KEPT
    + BLOCK_SUM
    + """
// one block for each item
extern "C" __global__ void guided_factors(const T* guidance, T* factors, const unsigned long long* key, double scaler,
                                          long long channels) {
  const long long first = blockIdx.x * channels;
  double sum = 0;
  for (long long c = threadIdx.x; c < channels; c += 256) sum += 1 / (1 + exp(-scaler * (double)guidance[first + c]));
  const double total = block_sum(sum);
  const T share = total > 0 ? (T)(channels / total) : (T)0;
  for (long long c = threadIdx.x; c < channels; c += 256) {
    const double chance = 1 / (1 + exp(-scaler * (double)guidance[first + c]));
    const long long drop = chance >= 0 ? (long long)ceil(chance * 4294967296.0) : 0;
    factors[first + c] = kept(key, first + c, drop) ? (T)0 : share;  // a draw below the chance keeps its element here
  }
}
extern "C" __global__ void threshold_factors(const T* guidance, T* factors, double threshold, long long channels) {
  const long long first = blockIdx.x * channels;
  double sum = 0;
  for (long long c = threadIdx.x; c < channels; c += 256) sum += (double)guidance[first + c] > threshold;
  const double total = block_sum(sum);
  const T share = total > 0 ? (T)(channels / total) : (T)0;
  for (long long c = threadIdx.x; c < channels; c += 256)
    factors[first + c] = (double)guidance[first + c] > threshold ? share : (T)0;
}
"""
)


def threshold(ratio: float) -> int:
    """Return the smallest 32-bit draw that keeps its element, so that a share `ratio` (to 2^-32) is dropped."""
    return math.ceil(ratio * 2**32)


def _apply(x: AnyArray, y: AnyArray, ratio: float, key: AnyArray, scale: float) -> None:
    run(_SOURCE, "dropout", (x, y), key, threshold(ratio), scale)


def dropout_forward(x: AnyArray, y: AnyArray, ratio: float, key: AnyArray, scale: float) -> None:
    """Compute y = x * scale where an element is kept, x * 0 where it is dropped, a share `ratio`; y may be x."""
    _apply(x, y, ratio, key, scale)


def dropout_backward(dy: AnyArray, dx: AnyArray, ratio: float, key: AnyArray, scale: float) -> None:
    """Compute dx = dy * scale where forward kept an element, dy * 0 where it dropped it; dx may be dy."""
    _apply(dy, dx, ratio, key, scale)


def drop_path_forward(x: AnyArray, y: AnyArray, ratio: float, key: AnyArray, scale: float) -> None:
    """Compute y = x * scale for items (the first axis) that are kept, x * 0 for a share `ratio`; y may be x."""
    run(_PATH, "drop_path", (x, y), key, threshold(ratio), scale, x.size // max(1, len(x)))


def drop_path_backward(dy: AnyArray, dx: AnyArray, ratio: float, key: AnyArray, scale: float) -> None:
    """Compute dx = dy * scale for items that forward kept, dy * 0 for the others; dx may be dy."""
    drop_path_forward(dy, dx, ratio, key, scale)


def guided_factors(guidance: AnyArray, factors: AnyArray, key: AnyArray, scaler: float) -> None:
    """Compute factors (N, C): C / the sum of an item's p where an element is kept, with probability p, else 0."""
    items, channels = guidance.shape
    args = (guidance, factors, key, float(scaler), channels)
    launch(_FACTORS, "guided_factors", factors.dtype, 0, *args, block=256, grid=items)


def threshold_factors(guidance: AnyArray, factors: AnyArray, threshold: float) -> None:
    """Compute factors (N, C): C / the number of an item's elements that are kept, those with guidance above threshold;
    0 for the others."""
    items, channels = guidance.shape
    args = (guidance, factors, float(threshold), channels)
    launch(_FACTORS, "threshold_factors", factors.dtype, 0, *args, block=256, grid=items)
