"""Turn pairs of values by angles that grow with the position."""

from __future__ import annotations

from ....arrays import AnyArray
from ....backend.cuda import launch
from ...records import Rotation

__all__ = ["rotary_forward"]

# A thread turns a pair, or moves two of a head's values that stay. Angles are computed in double: an angle of thousands
# of radians has no digits left behind the point in float.
_SOURCE = """
extern "C" __global__ void rotate(const T* x, T* y, long long pairs, long long positions, long long heads,
                                  long long dim, long long turned, double base, long long interleaved, double sign) {
  const long long half = turned / 2, each = half + (dim - turned + 1) / 2;
  LOOP(i, pairs) {
    const long long head = i / each, j = i - head * each, start = head * dim;
    if (j >= half) {
      const long long at = turned + 2 * (j - half);
      y[start + at] = x[start + at];
      if (at + 1 < dim) y[start + at + 1] = x[start + at + 1];
      continue;
    }
    const long long first = start + (interleaved ? 2 * j : j), second = interleaved ? first + 1 : first + half;
    double sine, cosine;
    sincos((double)(head / heads % positions) * pow(base, -2.0 * (double)j / (double)turned), &sine, &cosine);
    const C c = (C)cosine, s = (C)(sign * sine), a = x[first], b = x[second];
    y[first] = (T)(a * c - b * s);
    y[second] = (T)(b * c + a * s);
  }
}
"""


def rotary_forward(x: AnyArray, y: AnyArray, rotation: Rotation, back: bool) -> None:
    """Compute y: pair i at position p is turned by p / base ^ (2 i / turned), by minus that if `back`. y may be x."""
    rows, positions, heads, dim, turned, base, interleaved = rotation
    pairs = rows * heads * (turned // 2 + (dim - turned + 1) // 2)
    numbers = positions, heads, dim, turned, float(base), int(interleaved), -1.0 if back else 1.0
    launch(_SOURCE, "rotate", x.dtype, pairs, x, y, pairs, *numbers)
