"""Walk an array seen as (n, c, s) channel by channel: CUDA C++, and the sizes that go with it.

A thread owns K channels for its whole walk and keeps their constants in registers. With ROWS (channels are neighbours
in memory) `across` threads stand side by side, each with V neighbouring channels, K = V, and walk down the rows.
Without, a block owns one channel, K = 1, and its threads walk through that channel's planes, V neighbouring values at a
time. Every kernel is written once for both.

Loads come before the arithmetic, DEPTH packs (BYTES bytes) at a time. A pass that follows a sum over the same array
walks backwards: what was read last is still in the cache. Sources need in front of them: ROWS, V, ALIGNED (to V values)
and each kernel's own switches.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from math import prod
from typing import Any

from ...arrays import AnyArray
from ...backend.cuda import launch
from ..records import Grid
from ..sum_parts import norm_parts
from .channels import stage_two
from .elementwise import of_values
from .source import BLOCK_SUM

_VECTOR_BYTES = 16  # bytes of the widest load of one thread
_MOST = 4  # most values in one load; more of bfloat16 would take too many registers
_ACROSS = 8, 32  # threads side by side, where channels are neighbours: from a line of memory to a warp

WALK = """
#if defined(BF16) && ALIGNED && V % 2 == 0
struct Lanes {  // two in a register: as short integers each would take one
  unsigned w[V / 2];
  struct Lane {
    unsigned& w;
    const bool odd;
    __device__ operator float() const { return __uint_as_float(odd ? w & 0xffff0000u : w << 16); }
    __device__ void operator=(float v) {
      const unsigned bits = bf16(v).bits;
      w = odd ? (w & 0xffffu) | bits << 16 : (w & 0xffff0000u) | bits;
    }
  };
  __device__ Lane operator[](int v) { return {w[v / 2], v % 2 == 1}; }
  __device__ float operator[](int v) const { return __uint_as_float(v % 2 ? w[v / 2] & 0xffff0000u : w[v / 2] << 16); }
};
struct __align__(V * sizeof(T)) Pack { Lanes v; };
#elif ALIGNED
struct __align__(V * sizeof(T)) Pack { T v[V]; };
#else
struct Pack { T v[V]; };
#endif
__device__ Pack load(const T* from, long long at) { return *(const Pack*)(from + at); }
__device__ void store(T* to, long long at, const Pack& pack) { *(Pack*)(to + at) = pack; }

// registers for four blocks of float on a multiprocessor: what norm_parts counts with
#define WALKER extern "C" __global__ void __launch_bounds__(256, sizeof(T) == 4 ? 4 : 3)
#define SIZES long long n, long long c, long long s, long long parts, long long share, long long across
#if ROWS
#define K V
struct Walk {
  long long channel, part, left, at, step;  // left: packs still to visit; at: the next one's first element
  __device__ Walk(bool back, SIZES) {
    const long long groups = (c / V + across - 1) / across, lines = 256 / across;
    part = blockIdx.x / groups;
    channel = (blockIdx.x % groups * across + threadIdx.x % across) * V;
    long long line = part * share + threadIdx.x / across;
    const long long end = part * share + share < n ? part * share + share : n;
    left = channel < c && line < end ? (end - line + lines - 1) / lines : 0;
    if (back) line += (left - 1) * lines;
    step = back ? -lines * c : lines * c;
    at = line * c + channel;
  }
  __device__ void next() { at += step; }
};
#else
#define K 1
struct Walk {
  long long channel, part, left, at, step, jump, pos, places, inner;  // pos: packs from the plane's begin
  __device__ Walk(bool back, SIZES) : inner(s / V) {
    channel = blockIdx.x % c;
    part = blockIdx.x / c;
    long long item = part * share + threadIdx.x;
    const long long items = n * inner, end = part * share + share < items ? part * share + share : items;
    left = item < end ? (end - item + 255) / 256 : 0;
    if (back) item += (left - 1) * 256;
    const long long image = item / inner, sign = back ? -1 : 1;
    pos = item - image * inner;
    places = sign * (256 % inner);
    jump = sign * (c - 1) * s;  // from the end of a plane to the next of this channel
    step = sign * (256 / inner * c * s) + places * V;
    at = (image * c + channel) * s + pos * V;
  }
  __device__ void next() {
    at += step;
    pos += places;
    if (pos >= inner) { pos -= inner; at += jump; }
    if (pos < 0) { pos += inner; at += jump; }
  }
};
#endif
// the next `count` places (at most DEPTH), and the walk moved past them
#define DEPTH (BYTES / (V * (int)sizeof(T) < 4 ? 4 : V * (int)sizeof(T)))
#define PLACES(w, count)                                                                                             \\
  long long at[DEPTH];                                                                                               \\
  const int count = w.left < DEPTH ? (int)w.left : DEPTH;                                                            \\
  _Pragma("unroll") for (int u = 0; u < DEPTH; ++u) { at[u] = w.at; w.next(); }                                      \\
  w.left -= count;
#define EACH(u) _Pragma("unroll") for (int u = 0; u < DEPTH; ++u) if (full || u < count)
#define LANES(v) _Pragma("unroll") for (int v = 0; v < V; ++v)
#define CHANNELS(k) _Pragma("unroll") for (int k = 0; k < K; ++k)
"""

# one block adds up the parts of one channel
TOTALS = (
    BLOCK_SUM
    + """
__device__ double block_total(double value) {  // of 256 threads; every thread gets the same
  __shared__ double warps[8];
  value = warp_sum(value);
  __syncthreads();
  if (threadIdx.x % 32 == 0) warps[threadIdx.x / 32] = value;
  __syncthreads();
  double total = 0;
  for (int i = 0; i < 8; ++i) total += warps[i];
  return total;
}
"""
)


@functools.cache
def _source(kernel: str, **switches: int) -> str:
    return "".join(f"#define {name} {value}\n" for name, value in switches.items()) + kernel


class Walk:
    """Cut (n, c, s) into blocks' shares by sizes alone, so that sums are the same wherever the arrays lie."""

    def __init__(self, grid: Grid, itemsize: int) -> None:
        n, c, s = grid
        if c == 1:
            n, s = 1, n * s
        self.rows = s == 1 and c > 1
        self.c, self.parts, self.items = c, norm_parts(n, c, s), n * s
        wide = min(_MOST, _VECTOR_BYTES // itemsize)
        self.vector = vector = 1 if (c if self.rows else s) % wide else wide
        across = threads_across(c // vector) if self.rows else 1
        share = -(-(n if self.rows else n * (s // vector)) // self.parts)
        self.values = share if self.rows else share * vector  # values of a channel in a part
        self.grid = (-(-c // (vector * across)) if self.rows else c) * self.parts
        self.sizes = n, c, s, self.parts, share, across

    def run(self, kernel: str, name: str, arrays: Sequence[AnyArray], *args: Any, **switches: int) -> None:
        """Queue a kernel that walks; `arrays` are those it may load and store as vectors."""
        aligned = all(a.data.ptr % _VECTOR_BYTES == 0 for a in arrays)
        source = _source(kernel, ROWS=int(self.rows), V=self.vector, ALIGNED=int(aligned), **switches)
        launch(source, name, arrays[0].dtype, 0, *arrays, *args, *self.sizes, block=256, grid=self.grid)


def threads_across(packs: int) -> int:
    """Return how many threads stand side by side on a row of so many packs: a power of two.

    It is the most of which no more than one in nine have no pack, but at least a line of memory where there is one.
    """
    least, most = (min(n, 1 << (packs - 1).bit_length()) for n in _ACROSS)
    while most > least and 8 * (-packs % most) > packs:
        most //= 2
    return most


_SUMS = """
  __shared__ A shared[SUMS][256][K];
  const int me = threadIdx.x;
  for (int half = 128; half >= across; half >>= 1) {  // a fixed tree over the threads of the same channels
    if (me >= half && me < 2 * half) CHANNELS(k) for (int j = 0; j < SUMS; ++j) shared[j][me][k] = sum[j][k];
    __syncthreads();
    if (me < half) CHANNELS(k) for (int j = 0; j < SUMS; ++j) sum[j][k] += shared[j][me + half][k];
  }
  if (me >= across || w.channel >= c) return;
  CHANNELS(k) for (int j = 0; j < SUMS; ++j) work[(j * c + w.channel + k) * parts + w.part] = sum[j][k];
"""


def walking(
    name: str, body: str, *, reads: str, writes: str = "", channel: str = "", sums: int = 0, back: bool = False
) -> str:
    """Return the source of kernel `name`, which does `body` to every element; see `run_walk`.

    `back`: walk from the last element to the first, for a pass that follows another over the same arrays.
    """
    read, written, each = (_names(text) for text in (reads, writes, channel))
    body = of_values(body)
    constants = "".join(f", const C (&{a}_c)[K]" for a in each)
    pointers = "".join(f", const T* {a}_p" for a in read) + "".join(f", T* {a}_p" for a in written)
    passed = "".join(f", {a}_c" for a in each) + "".join(f", {a}_p" for a in (*read, *written))
    values = [f"const C {a} = {a}_q[u].v[v];" for a in read] + [f"const C {a} = {a}_c[v % K];" for a in each]
    values += [f"C {a};" for a in written] + [f"A& sum{j} = sum[{j}][v % K];" for j in range(sums)]
    results = " ".join(f"{a}_q[u].v[v] = {a};" for a in written)
    load_each = "".join(
        f"C {a}_c[K];\n  CHANNELS(k) {a}_c[k] = w.channel < c ? {a}_all[w.channel + k] : (C)0;\n  " for a in each
    )
    return f"""
#define BYTES 32
#define SUMS {sums}
{WALK}
template <bool full> __device__ void visit(Walk& w, A (&sum)[SUMS ? SUMS : 1][K]{constants}{pointers}) {{
  PLACES(w, count)
  {" ".join(f"Pack {a}_q[DEPTH];" for a in (*read, *written))}
  {" ".join(f"EACH(u) {a}_q[u] = load({a}_p, at[u]);" for a in read)}
  EACH(u) {{
    LANES(v) {{
      {" ".join(values)}
      {body}
      {results}
    }}
    {" ".join(f"store({a}_p, at[u], {a}_q[u]);" for a in written)}
  }}
}}
WALKER {name}({pointers[2:]}{"".join(f", const C* {a}_all" for a in each)}{", C* work" if sums else ""}, SIZES) {{
  Walk w({"true" if back else "false"}, n, c, s, parts, share, across);
  {load_each}A sum[SUMS ? SUMS : 1][K];
  CHANNELS(k) for (int j = 0; j < SUMS; ++j) sum[j][k] = 0;
  while (w.left >= DEPTH) visit<true>(w, sum{passed});
  if (w.left > 0) visit<false>(w, sum{passed});
{_SUMS if sums else ""}}}
"""


def run_walk(
    source: str,
    name: str,
    arrays: Sequence[AnyArray],
    channel: Sequence[AnyArray],
    grid: Grid,
    work: AnyArray | None = None,
) -> int:
    """Queue a kernel of `walking`, and return the number of parts of a channel.

    Args:
        arrays: the kernel's arrays, of `grid`'s shape.
        channel: its arrays of one value per channel.
        work: where it writes its sums, if it has any.
    """
    if prod(grid) == 0:
        return 0
    walk = Walk(grid, arrays[0].dtype.itemsize)
    walk.run(source, name, arrays, *channel, *(() if work is None else (work,)))
    return walk.parts


def add_up(
    work: AnyArray, which: int, out: AnyArray, accumulate: bool, c: int, parts: int, scale: float = 1.0, at: int = 0
) -> None:
    """Write to out[at + channel], or add if `accumulate`, scale * sum number `which` that `run_walk` left in `work`.

    The sum of no parts is 0.
    """
    stage_two(work, which * c * parts, out, at, scale, accumulate, c, parts)


def _names(text: str) -> list[str]:
    return [name.strip() for name in text.split(",") if name.strip()]
