"""Turn pairs of values by angles that grow with the position."""

from __future__ import annotations

from math import gcd

from ....arrays import AnyArray
from ....backend.cuda import launch
from ...records import Rotation
from ..packs import PACK, aligned

__all__ = ["rotary_forward"]

_THREADS = 256  # of a block, and the most angles of it
_BLOCKS = 1024  # so many share out the work, if it is enough, before a block takes more items

# A block turns `pairs` pairs of each head, at `places` positions of `share` items. It makes their sines and cosines
# once; each thread keeps those of V neighbouring pairs. Angles are computed in double: an angle of thousands of radians
# has no digits left behind the point in float. A thread loads the values of several heads before it stores any: y may
# be x, so the compiler may not move loads before stores.
_TURN = """
#if INTERLEAVED
__device__ __forceinline__ void turn(const Values& a, const Values& b, const C* c, const C* s, Values& low,
                                     Values& high) {
  T old[2 * V], turned[2 * V];
  #pragma unroll
  for (int k = 0; k < V; ++k) {
    old[k] = a.v[k];
    old[V + k] = b.v[k];
  }
  #pragma unroll
  for (int k = 0; k < V; ++k) {
    turned[2 * k] = (T)((C)old[2 * k] * c[k] - (C)old[2 * k + 1] * s[k]);
    turned[2 * k + 1] = (T)((C)old[2 * k + 1] * c[k] + (C)old[2 * k] * s[k]);
  }
  #pragma unroll
  for (int k = 0; k < V; ++k) {
    low.v[k] = turned[k];
    high.v[k] = turned[V + k];
  }
}
#else
__device__ __forceinline__ void turn(const Values& a, const Values& b, const C* c, const C* s, Values& low,
                                     Values& high) {
  #pragma unroll
  for (int k = 0; k < V; ++k) {
    low.v[k] = (T)((C)a.v[k] * c[k] - (C)b.v[k] * s[k]);
    high.v[k] = (T)((C)b.v[k] * c[k] + (C)a.v[k] * s[k]);
  }
}
#endif
"""
_SOURCE = """
#define AHEAD 2  // heads that a thread loads before it stores
__device__ __forceinline__ long long least(long long a, long long b) { return a < b ? a : b; }
extern "C" __global__ void __launch_bounds__(THREADS, 4) rotate(
    const T* x, T* y, AT long long items, long long positions, long long heads, long long dim, long long turned,
    long long pairs, long long places, long long share, double base, double sign) {
  __shared__ double steps[THREADS];
  __shared__ C cosines[THREADS], sines[THREADS];
  const long long half = turned / 2, slices = (half + pairs - 1) / pairs, chunks = (positions + places - 1) / places;
  const long long slice = blockIdx.x % slices, chunk = blockIdx.x / slices % chunks;
  const long long pair = slice * pairs, place = chunk * places, item = blockIdx.x / slices / chunks * share;
  const int wide = least(pairs, half - pair), rows = least(places, positions - place);
  const int t = threadIdx.x, count = least(share, items - item) * heads;  // heads of a position
  if (t < wide) steps[t] = pow(base, -2.0 * (double)(pair + t) / (double)turned);
  __syncthreads();
  if (t < wide * rows) {
    double sine, cosine;
    sincos((double)PLACE(place + t / wide) * steps[t % wide], &sine, &cosine);
    cosines[t] = (C)cosine;
    sines[t] = (C)(sign * sine);
  }
  __syncthreads();
  const long long next = positions * heads * dim, first = (item * positions + place) * heads * dim;
  const int stay = slice || x == y ? 0 : (dim - turned) / V;
  for (long long i = t; i < (long long)count * rows * stay; i += blockDim.x) {
    const long long n = i / stay, row = n / count, head = n % count;
    const long long at = first + head / heads * next + (row * heads + head % heads) * dim + turned + i % stay * V;
    *(Values*)(y + at) = *(const Values*)(x + at);
  }
  const int across = wide / V, groups = blockDim.x / (across * rows);
  const int column = t % across * V, mine = t / across % groups, row = t / across / groups;
  if (row >= rows) return;
  C c[V], s[V];
  #pragma unroll
  for (int k = 0; k < V; ++k) {
    c[k] = cosines[row * wide + column + k];
    s[k] = sines[row * wide + column + k];
  }
  const long long start = first + row * heads * dim + (INTERLEAVED ? 2 : 1) * (pair + column);
  const long long apart = INTERLEAVED ? V : half;
  const int many = heads;
  for (int n = mine; n < count; n += AHEAD * groups) {
    Values a[AHEAD], b[AHEAD];
    long long at[AHEAD];
    #pragma unroll
    for (int i = 0; i < AHEAD; ++i) {
      const int head = n + i * groups;
      at[i] = start + head / many * next + head % many * dim;
      if (head < count) {
        a[i] = *(const Values*)(x + at[i]);
        b[i] = *(const Values*)(x + at[i] + apart);
      }
    }
    #pragma unroll
    for (int i = 0; i < AHEAD; ++i) {
      if (n + i * groups < count) {
        Values low, high;
        turn(a[i], b[i], c, s, low, high);
        *(Values*)(y + at[i]) = low;
        *(Values*)(y + at[i] + apart) = high;
      }
    }
  }
}
"""


def rotary_forward(x: AnyArray, y: AnyArray, at: AnyArray | None, rotation: Rotation, back: bool) -> None:
    """Compute y: pair i at position p is turned by p / base ^ (2 i / turned), by minus that if `back`. y may be x."""
    rows, positions, heads, dim, turned, base, interleaved = rotation
    if not x.size:
        return
    half = turned // 2
    v = gcd(16 // x.dtype.itemsize, dim, half) if aligned(x, y) else 1
    kind, given = "", ()
    if at is not None:  # rows have positions of their own
        kind, given, positions = f"const {_KINDS[str(at.dtype)]}* at,", (at,), rows
    items, pairs = rows // positions, min(half, _THREADS)
    places = _THREADS // pairs
    blocks = -(-half // pairs) * -(-positions // places)
    share = max(1, items * blocks // _BLOCKS)
    blocks *= -(-items // share)
    place = "(long long)at[p]" if given else "(p)"
    source = f"#define V {v}\n#define N V\n#define INTERLEAVED {int(interleaved)}\n#define THREADS {_THREADS}\n"
    source += f"#define AT {kind}\n#define PLACE(p) {place}\n{PACK}{_TURN}{_SOURCE}"
    sizes = items, positions, heads, dim, turned, pairs, places, share
    numbers = float(base), -1.0 if back else 1.0
    launch(source, "rotate", x.dtype, 0, x, y, *given, *sizes, *numbers, block=_THREADS, grid=blocks)


_KINDS = {"float32": "float", "float64": "double"}
