"""Copy, add and measure whole arrays."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence

from ...arrays import AnyArray
from ...backend.bfloat16 import BFLOAT16
from ...backend.cuda import compile_kernels, launch
from ...backend.cuda.rehearsal import rehearsing
from .elementwise import elementwise, run, totals
from .packs import aligned
from .source import BLOCK_SUM

__all__ = ["fill", "copy", "kernels_plan", "scale_all", "scale_by", "sum_arrays", "sum_squares"]

_PARTS = 1024
_TOGETHER, _BLOCKS_EACH = 16, 16  # arrays that one kernel scales, and its blocks for each
_SMALL = 1 << 20  # bytes of an array from which on it has a kernel of its own

_FILL = elementwise("fill", "y = (T)value;", writes="y", params="double value")
_SCALE = elementwise("scale_by", "y = (T)factor * y;", updates="y", params="double factor")
_COPY = elementwise("copy", "y = x;", reads="x", writes="y")
_ROUND = elementwise("copy", "y = x;", reads="C x", writes="y")
_WIDEN = elementwise("copy", "y = x;", reads="x", writes="C y")

_SQUARES = totals(
    "squares",
    "sum += (double)x * x;",
    "sum = block_sum(sum); if (threadIdx.x == 0) work[blockIdx.x] = sum;",
    reads="x",
    params="double* work",
    helpers=BLOCK_SUM,
)
_TOTAL = (
    BLOCK_SUM
    + """
extern "C" __global__ void total(const double* work, double* out, long long index, long long parts) {
  double sum = 0;
  for (long long i = threadIdx.x; i < parts; i += 256) sum += work[i];
  sum = block_sum(sum);
  if (threadIdx.x == 0) out[index] = sum;
}
"""
)

_SCALE_ALL = f"""
extern "C" __global__ void scale_all({", ".join(f"T* y{i}" for i in range(_TOGETHER))},
                                     {", ".join(f"long long n{i}" for i in range(_TOGETHER))}, double factor) {{
  T* const arrays[] = {{{", ".join(f"y{i}" for i in range(_TOGETHER))}}};
  const long long sizes[] = {{{", ".join(f"n{i}" for i in range(_TOGETHER))}}};
  T* y = arrays[blockIdx.x / {_BLOCKS_EACH}];
  const long long size = sizes[blockIdx.x / {_BLOCKS_EACH}];
  for (long long i = blockIdx.x % {_BLOCKS_EACH} * blockDim.x + threadIdx.x; i < size; i += {_BLOCKS_EACH} * blockDim.x)
    y[i] = (T)factor * y[i];
}}
"""


def kernels_plan(rehearse: Callable[[], None]) -> None:
    """Compile all kernels that operations within `rehearse()` launch; nothing runs."""
    with rehearsing() as noted:
        rehearse()
    compile_kernels(noted)


def fill(y: AnyArray, value: float) -> None:
    """Set every element of y to `value`."""
    run(_FILL, "fill", (y,), float(value))


def copy(x: AnyArray, y: AnyArray) -> None:
    """Copy x to y element by element in memory order (shapes may differ); do nothing where they are the same memory.

    One may be of bfloat16 and the other of float32.
    """
    if x.dtype != y.dtype:
        run(_ROUND if y.dtype == BFLOAT16 else _WIDEN, "copy", (x, y), dtype=BFLOAT16)
    elif x.data.ptr != y.data.ptr:
        run(_COPY, "copy", (x, y))


def scale_by(y: AnyArray, factor: float) -> None:
    """Compute y = factor * y, with the factor rounded to y's type."""
    run(_SCALE, "scale_by", (y,), float(factor))


def scale_all(ys: Sequence[AnyArray], factor: float) -> None:
    """Compute y = factor * y for arrays of one type, as `scale_by` does."""
    small = [y for y in ys if 0 < y.nbytes < _SMALL]  # they share launches
    for y in ys:
        if y.nbytes >= _SMALL:
            scale_by(y, factor)
    for start in range(0, len(small), _TOGETHER):
        some = small[start : start + _TOGETHER]
        spare = _TOGETHER - len(some)
        arrays, sizes = [*some, *[some[0]] * spare], [*(y.size for y in some), *[0] * spare]
        launch(_SCALE_ALL, "scale_all", some[0].dtype, 0, *arrays, *sizes, float(factor), grid=len(some) * _BLOCKS_EACH)


@functools.cache
def _sum_source(n: int) -> str:
    names = [f"x{i}" for i in range(n)]
    return elementwise("sum_arrays", f"y = {' + '.join(names)};", reads=", ".join(names), writes="y")


def sum_arrays(xs: Sequence[AnyArray], y: AnyArray) -> None:
    """Compute y = ((xs[0] + xs[1]) + xs[2]) + ...; y may be any of them."""
    if len(xs) == 1 and xs[0].data.ptr == y.data.ptr:
        return
    run(_sum_source(len(xs)), "sum_arrays", (*xs, y))


def sum_squares(x: AnyArray, out: AnyArray, index: int, work: AnyArray) -> None:
    """Compute out[index] = sum of x^2 in float64. `work` holds the GPU's partial sums: 1024 doubles."""
    parts = min(_PARTS, max(1, (x.size + 4095) // 4096))
    launch(_SQUARES, "squares", x.dtype, 0, x, work, aligned(x), x.size, block=256, grid=parts)
    launch(_TOTAL, "total", x.dtype, 256, work, out, index, parts, block=256, grid=1)
