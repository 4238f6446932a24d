"""Add up channels of arrays seen as (outer, dim, inner): the walk of a first stage, and the second stage.

A first stage cuts every channel into parts (`ops/sum_parts.py`) and writes each part's sum to `work`, an array (sums,
dim, parts); its kernels are in the files of their operations. In the second stage one warp adds up a channel's parts.
"""

from __future__ import annotations

from ...arrays import AnyArray
from ...backend.cuda import launch
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
    + """
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


def stage_two(
    work: AnyArray, start: int, out: AnyArray, to: int, scale: float, accumulate: bool, dim: int, parts: int
) -> None:
    """Write to out[to + channel], or add if `accumulate`, scale * the sum of the channel's parts.

    The parts lie in `work` from `start` on.
    """
    args = (work, start, out, to, float(scale), int(accumulate), dim, parts)
    launch(_SOURCE, "total", out.dtype, dim * 32, *args)
