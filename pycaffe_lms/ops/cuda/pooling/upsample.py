"""Enlarge planes: put values where a mask says, or repeat them in blocks."""

from __future__ import annotations

from ....arrays import AnyArray
from ....backend.cuda import launch
from ..elementwise import elementwise, run
from ..source import DIVIDE, divider

__all__ = ["repeat_backward", "repeat_forward", "unpool_backward", "unpool_forward"]

_DIVIDERS = (
    DIVIDE
    + """
#define DIVIDER(d) long long d, long long d##_magic, long long d##_shift
#define OVER(i, d) quotient(i, d, d##_magic, d##_shift)
"""
)
_SOURCE = (
    _DIVIDERS
    + """
// a place of y holds the number of the value that goes there, until that value itself is written
#define HOLDER(o) ((int*)y + (o) * (long long)(sizeof(T) / sizeof(int)))

extern "C" __global__ void clear(T* y, long long n) {
  LOOP(o, n) *HOLDER(o) = -1;
}
extern "C" __global__ void claim(const T* mask, T* y, long long n, DIVIDER(size), long long out) {
  LOOP(i, n) {
    const long long plane = OVER(i, size);
    const T place = mask[i];  // the greatest number wins in any order
    if (place > (T)-1 && place < (T)out) atomicMax(HOLDER(plane * out + (long long)place), (int)(i - plane * size));
  }
}
extern "C" __global__ void settle(const T* x, T* y, long long n, long long size, DIVIDER(out)) {
  LOOP(o, n) {
    const int winner = *HOLDER(o);
    y[o] = winner < 0 ? (T)0 : x[OVER(o, out) * size + winner];
  }
}
extern "C" __global__ void unpool_backward(const T* dy, const T* mask, T* dx, long long n, DIVIDER(size),
                                           long long out) {
  LOOP(i, n) {
    const T place = mask[i];
    dx[i] = place > (T)-1 && place < (T)out ? dy[OVER(i, size) * out + (long long)place] : (T)0;
  }
}

extern "C" __global__ void repeat_backward(const T* dy, T* dx, long long n, DIVIDER(width), long long scale_h,
                                           long long scale_w) {  // width: of dx
  LOOP(i, n) {
    const long long row = OVER(i, width);
    const T* block = dy + row * scale_h * width * scale_w + (i - row * width) * scale_w;
    A sum = 0;
    for (long long h = 0; h < scale_h; ++h)
      for (long long w = 0; w < scale_w; ++w) sum += block[h * width * scale_w + w];
    dx[i] = (T)sum;
  }
}
"""
)


# rows of all planes lie one below the other, and are repeated alike; width: of y
_REPEAT = elementwise(
    "repeat_forward",
    """
      const long long row = OVER(i, width);
      y = x[OVER(row, scale_h) * in_width + OVER(i - row * width, scale_w)];
    """,
    writes="y",
    params="const T* x, DIVIDER(width), DIVIDER(scale_h), DIVIDER(scale_w), long long in_width",
    helpers=_DIVIDERS,
)


def unpool_forward(x: AnyArray, mask: AnyArray, y: AnyArray, planes: int, size: int, out: int) -> None:
    """Compute y[plane, mask[plane, i]] = x[plane, i], 0 elsewhere; of several values for a place the last one stays."""
    n, total = planes * size, planes * out
    launch(_SOURCE, "clear", y.dtype, total, y, total)
    launch(_SOURCE, "claim", y.dtype, n, mask, y, n, *divider(size, n), out)
    launch(_SOURCE, "settle", y.dtype, total, x, y, total, size, *divider(out, total))


def unpool_backward(dy: AnyArray, mask: AnyArray, dx: AnyArray, planes: int, size: int, out: int) -> None:
    """Compute dx[plane, i] = dy[plane, mask[plane, i]], 0 where the mask is outside 0..out - 1."""
    n = planes * size
    launch(_SOURCE, "unpool_backward", dx.dtype, n, dy, mask, dx, n, *divider(size, n), out)


def repeat_forward(x: AnyArray, y: AnyArray, planes: int, size: tuple[int, int], scale: tuple[int, int]) -> None:
    """Compute y = x with every value repeated scale[0] times downwards and scale[1] times to the right."""
    height, width = size[0] * scale[0], size[1] * scale[1]
    n = planes * height * width
    args = (*divider(width, n), *divider(scale[0], n), *divider(scale[1], n), size[1])
    run(_REPEAT, "repeat_forward", (y,), x, *args)


def repeat_backward(dy: AnyArray, dx: AnyArray, planes: int, size: tuple[int, int], scale: tuple[int, int]) -> None:
    """Compute dx = the sum of dy over each value's block."""
    n = planes * size[0] * size[1]
    launch(_SOURCE, "repeat_backward", dx.dtype, n, dy, dx, n, *divider(size[1], n), *scale)
