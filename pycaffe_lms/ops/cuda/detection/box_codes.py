"""Decode boxes of SSD on the GPU: one thread for each box, with the bits of the CPU."""

from __future__ import annotations

from ....arrays import AnyArray
from ....backend.cuda import launch
from ...exponential import LARGEST, LEAST, LN2_HIGH, LN2_LOW, PER_LN2, TERMS
from ..rounded import ROUNDED

__all__ = ["decode_boxes"]

_HORNER = "\n".join(f"  total = plus(times(total, r), {term!r});" for term in TERMS[1:])
_SOURCE = f"""{ROUNDED}
__device__ double exponential(double x) {{
  if (x > {LARGEST!r}) return __longlong_as_double(0x7ff0000000000000LL);
  if (x < {LEAST!r}) return 0;
  if (x != x) return x;
  const double k = floor(plus(times(x, {PER_LN2!r}), 0.5));
  const double r = plus(plus(x, -times(k, {LN2_HIGH!r})), -times(k, {LN2_LOW!r}));
  double total = {TERMS[0]!r};
{_HORNER}
  return ldexp(total, (int)k);
}}
extern "C" __global__ void decode_boxes(const T* predicted, const T* priors, T* boxes, long long code,
                                        long long scaled, long long each, long long count, long long n) {{
  LOOP(i, n) {{
    const long long p = i / each % count;
    const T *prior = priors + 4 * p, *variance = prior + 4 * count, half = (T)0.5;
    T step[4], *box = boxes + 4 * i;
    for (int k = 0; k < 4; ++k) step[k] = scaled ? times(variance[k], predicted[4 * i + k]) : predicted[4 * i + k];
    for (int axis = 0; axis < 2; ++axis) {{
      const T low = prior[axis], high = prior[axis + 2], size = plus(high, -low);
      if (code == 1) {{
        box[axis] = plus(low, step[axis]);
        box[axis + 2] = plus(high, step[axis + 2]);
      }} else if (code == 3) {{
        box[axis] = plus(low, times(step[axis], size));
        box[axis + 2] = plus(high, times(step[axis + 2], size));
      }} else {{
        const T centre = plus(times(step[axis], size), times(plus(low, high), half));
        const T reach = times(times((T)exponential(step[axis + 2]), size), half);
        box[axis] = plus(centre, -reach);
        box[axis + 2] = plus(centre, reach);
      }}
    }}
  }}
}}
"""


def decode_boxes(predicted: AnyArray, priors: AnyArray, boxes: AnyArray, code: int, scaled: bool) -> None:
    """Write the boxes that predictions mean."""
    images, p, each, _ = boxes.shape
    n = images * p * each
    launch(_SOURCE, "decode_boxes", boxes.dtype, n, predicted, priors, boxes, code, int(scaled), each, p, n)
