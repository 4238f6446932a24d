"""Turn pairs of values by angles that grow with the position."""

from __future__ import annotations

from ....arrays import AnyArray
from ....backend.cuda import launch
from ...records import Rotation
from ..packs import PACK, aligned, pack_size

__all__ = ["rotary_forward"]

# A thread turns V neighbouring pairs of each head of a row, or moves two of their values that stay. Angles are computed
# in double: an angle of thousands of radians has no digits left behind the point in float.
_BY_ROW = """
#define AT
#define PLACE (row % positions)
"""
_GIVEN = """
#define PLACE (long long)at[row]
"""
_SOURCE = """
extern "C" __global__ void rotate(const T* x, T* y, AT long long threads, long long positions, long long heads,
                                  long long dim, long long turned, double base, long long interleaved, double sign) {
  const long long half = turned / 2, turning = half / V, each = turning + (dim - turned + 1) / 2;
  LOOP(i, threads) {
    const long long row = i / each, j = (i - row * each) * V, end = (row + 1) * heads * dim;
    if (j >= half) {
      const long long first = turned + 2 * (j - half) / V;
      for (long long at = row * heads * dim + first; at < end; at += dim) {
        y[at] = x[at];
        if (first + 1 < dim) y[at + 1] = x[at + 1];
      }
      continue;
    }
    C c[V], s[V];
    #pragma unroll
    for (int k = 0; k < V; ++k) {
      double sine, cosine;
      sincos((double)PLACE * pow(base, -2.0 * (double)(j + k) / (double)turned), &sine, &cosine);
      c[k] = (C)cosine;
      s[k] = (C)(sign * sine);
    }
    const long long apart = interleaved ? 1 : half;
    #pragma unroll 4
    for (long long at = row * heads * dim + (interleaved ? 2 * j : j); at < end; at += dim) {
      const Values a = *(const Values*)(x + at), b = *(const Values*)(x + at + apart);
      Values low, high;
      #pragma unroll
      for (int k = 0; k < V; ++k) {
        low.v[k] = (T)((C)a.v[k] * c[k] - (C)b.v[k] * s[k]);
        high.v[k] = (T)((C)b.v[k] * c[k] + (C)a.v[k] * s[k]);
      }
      *(Values*)(y + at) = low;
      *(Values*)(y + at + apart) = high;
    }
  }
}
"""


def rotary_forward(x: AnyArray, y: AnyArray, at: AnyArray | None, rotation: Rotation, back: bool) -> None:
    """Compute y: pair i at position p is turned by p / base ^ (2 i / turned), by minus that if `back`. y may be x."""
    rows, positions, heads, dim, turned, base, interleaved = rotation
    v = (
        1
        if interleaved or not aligned(x, y)
        else max(1, min(pack_size(x.dtype, dim, turned // 2), 4 // x.dtype.itemsize))
    )
    threads = rows * (turned // 2 // v + (dim - turned + 1) // 2)
    numbers = positions, heads, dim, turned, float(base), int(interleaved), -1.0 if back else 1.0
    source, given = f"#define V {v}\n#define N V\n{PACK}{_BY_ROW}{_SOURCE}", ()
    if at is not None:
        kind = {"float32": "float", "float64": "double"}[str(at.dtype)]
        source, given = f"#define V {v}\n#define N V\n#define AT const {kind}* at,\n{PACK}{_GIVEN}{_SOURCE}", (at,)
    launch(source, "rotate", x.dtype, threads, x, y, *given, threads, *numbers)
