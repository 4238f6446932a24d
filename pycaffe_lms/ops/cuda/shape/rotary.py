"""Turn pairs of values by angles that grow with the position."""

from __future__ import annotations

from ....arrays import AnyArray
from ....backend.cuda import launch
from ...records import Rotation

__all__ = ["rotary_forward"]

# A thread turns a pair of each head of a row, or moves two of their values that stay. Angles are computed in double: an
# angle of thousands of radians has no digits left behind the point in float.
_SOURCE = """
extern "C" __global__ void rotate(const T* x, T* y, long long threads, long long positions, long long heads,
                                  long long dim, long long turned, double base, long long interleaved, double sign) {
  const long long half = turned / 2, each = half + (dim - turned + 1) / 2;
  LOOP(i, threads) {
    const long long row = i / each, j = i - row * each, end = (row + 1) * heads * dim;
    if (j >= half) {
      for (long long at = row * heads * dim + turned + 2 * (j - half); at < end; at += dim) {
        y[at] = x[at];
        if (turned + 2 * (j - half) + 1 < dim) y[at + 1] = x[at + 1];
      }
      continue;
    }
    double sine, cosine;
    sincos((double)(row % positions) * pow(base, -2.0 * (double)j / (double)turned), &sine, &cosine);
    const C c = (C)cosine, s = (C)(sign * sine);
    const long long apart = interleaved ? 1 : half;
    #pragma unroll 4
    for (long long at = row * heads * dim + (interleaved ? 2 * j : j); at < end; at += dim) {
      const C a = x[at], b = x[at + apart];
      y[at] = (T)(a * c - b * s);
      y[at + apart] = (T)(b * c + a * s);
    }
  }
}
"""


def rotary_forward(x: AnyArray, y: AnyArray, rotation: Rotation, back: bool) -> None:
    """Compute y: pair i at position p is turned by p / base ^ (2 i / turned), by minus that if `back`. y may be x."""
    rows, positions, heads, dim, turned, base, interleaved = rotation
    threads = rows * (turned // 2 + (dim - turned + 1) // 2)
    numbers = positions, heads, dim, turned, float(base), int(interleaved), -1.0 if back else 1.0
    launch(_SOURCE, "rotate", x.dtype, threads, x, y, threads, *numbers)
