"""Sums per channel of arrays seen as (outer, dim, inner), in two stages of fixed order.

Stage 1 cuts every channel into parts (`ops/sum_parts.py`): one block adds up a part of one channel, or, where inner
is 1, of many neighbouring channels (`column_sums.py`), so that a warp always reads neighbouring addresses. Stage 2: one
warp adds up the parts.
`work` holds (sums, dim, parts) elements.
"""

from __future__ import annotations

from ...arrays import AnyArray
from ...backend.cuda import launch
from ..sum_parts import reduction_parts
from .column_sums import WALK_DOWN, launch_columns
from .source import BLOCK_SUM

WALK = """
struct Walk {  // what one thread of 256 visits in a part of a channel: no division per element
  long long at, end, image, pos, dim, inner, channel, images, places;
  __device__ Walk(long long outer, long long dim, long long inner, long long channel, long long part, long long parts)
      : dim(dim), inner(inner), channel(channel), images(256 / inner), places(256 % inner) {
    long long items = outer * inner, share = (items + parts - 1) / parts;
    at = part * share + threadIdx.x;
    end = part * share + share < items ? part * share + share : items;
    image = at / inner;
    pos = at % inner;
  }
  __device__ bool more() const { return at < end; }
  __device__ long long index() const { return (image * dim + channel) * inner + pos; }
  __device__ void next() {
    at += 256;
    image += images;
    pos += places;
    if (pos >= inner) { pos -= inner; ++image; }
  }
};
"""

_SOURCE = (
    BLOCK_SUM
    + WALK
    + """
// kind 1: sum of v; 2: sum of u * v; 3: both, the second behind the first in work
template <int kind> __device__ void rows(const T* u, const T* v, T* work, long long outer, long long dim,
                                         long long inner, long long parts) {
  A one = 0, dot = 0;
  for (Walk w(outer, dim, inner, blockIdx.x / parts, blockIdx.x % parts, parts); w.more(); w.next()) {
    A value = v[w.index()];
    if (kind & 1) one += value;
    if (kind & 2) dot += u[w.index()] * value;
  }
  if (kind & 1) one = block_sum(one);
  if (kind & 2) dot = block_sum(dot);
  if (threadIdx.x == 0) {
    if (kind & 1) work[blockIdx.x] = one;
    if (kind & 2) work[blockIdx.x + (kind & 1 ? dim * parts : 0)] = dot;
  }
}
#define KERNELS(kind)                                                                                               \\
  extern "C" __global__ void rows##kind(const T* u, const T* v, T* work, long long outer, long long dim,            \\
                                        long long inner, long long parts) {                                         \\
    rows<kind>(u, v, work, outer, dim, inner, parts);                                                               \\
  }
KERNELS(1)
KERNELS(2)
KERNELS(3)
extern "C" __global__ void total(const T* work, long long from, T* out, long long to, double scale,
                                 long long accumulate, long long dim, long long parts) {
  LOOP(i, dim * 32) {
    double sum = 0;
    for (long long p = i % 32; p < parts; p += 32) sum += work[from + i / 32 * parts + p];
    sum = warp_sum(sum) * scale;
    if (i % 32 == 0) out[to + i / 32] = accumulate ? (T)(out[to + i / 32] + sum) : (T)sum;
  }
}
"""
)

_COLUMNS = (
    WALK_DOWN
    + """
template <int kind> __device__ void columns(const T* u, const T* v, T* work, const Column& c, long long dim,
                                            long long parts) {
  A sums[kind == 3 ? 2 : 1][N];
  column_sums(c, sums, [&](long long pack, A (&sum)[kind == 3 ? 2 : 1][N]) {
    const Values value = load(v, pack);
    Values other = value;
    if (kind & 2) other = load(u, pack);
    #pragma unroll
    for (int k = 0; k < N; k++) {
      if (kind & 1) sum[0][k] += value.v[k];
      if (kind & 2) sum[kind == 3][k] += other.v[k] * value.v[k];
    }
  });
  if (!c.writes()) return;
  #pragma unroll
  for (int k = 0; k < N; k++)
    for (int s = 0; s < (kind == 3 ? 2 : 1); s++)
      work[(s * dim + c.pack * N + k) * parts + c.part] = sums[s][k];
}
#define KERNELS(kind)                                                                                               \\
  extern "C" __global__ void columns##kind(const T* u, const T* v, T* work, long long outer, long long dim,         \\
                                           long long parts, long long lanes) {                                      \\
    columns<kind>(u, v, work, Column(outer, dim, parts, (int)lanes), dim, parts);                                   \\
  }
KERNELS(1)
KERNELS(2)
KERNELS(3)
"""
)

SUM, DOT, BOTH = 1, 2, 3


def stage_one(kind: int, u: AnyArray, v: AnyArray, work: AnyArray, outer: int, dim: int, inner: int) -> int:
    """Partial sums of v (SUM), of u * v (DOT) or of both into `work`. Returns the number of parts."""
    parts = reduction_parts(outer, dim, inner)
    if inner == 1:
        launch_columns(_COLUMNS, f"columns{kind}", v, outer, dim, parts, u, v, work, read=(u, v))
    else:
        sizes = (outer, dim, inner, parts)
        launch(_SOURCE, f"rows{kind}", v.dtype, 0, u, v, work, *sizes, block=256, grid=dim * parts)
    return parts


def stage_two(
    work: AnyArray, start: int, out: AnyArray, to: int, scale: float, accumulate: bool, dim: int, parts: int
) -> None:
    """out[to + channel] (+)= scale * sum of the channel's parts, which lie in `work` from `start` on."""
    args = (work, start, out, to, float(scale), int(accumulate), dim, parts)
    launch(_SOURCE, "total", out.dtype, dim * 32, *args)


def channel_sum(
    kind: int,
    u: AnyArray,
    v: AnyArray,
    out: AnyArray,
    accumulate: bool,
    work: AnyArray,
    outer: int,
    dim: int,
    inner: int,
) -> None:
    """out[channel] (+)= sum of v (SUM) or of u * v (DOT) over outer and inner."""
    if v.size == 0:
        # no element, no block would write: sums of nothing are zero (and adding zero changes nothing)
        if not accumulate:
            launch(_SOURCE, "total", out.dtype, dim * 32, work, 0, out, 0, 1.0, 0, dim, 0)
        return
    parts = stage_one(kind, u, v, work, outer, dim, inner)
    stage_two(work, 0, out, 0, 1.0, accumulate, dim, parts)
