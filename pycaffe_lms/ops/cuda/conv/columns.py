"""Copy windows of images to columns, on any number of spatial axes.

The geometry's x is (planes, *in_spatial), planes = batch * channels, and the columns are (planes, *kernel,
*out_spatial); its outputs and groups do not count.
"""

from __future__ import annotations

import functools
import math

from ....arrays import AnyArray
from ....backend.cuda import launch
from ...geometry import ConvGeometry

__all__ = ["im2col_forward", "im2col_backward"]

_NAMES = ("in", "kernel", "stride", "pad", "dilation", "out")


@functools.cache
def _source(axes: int) -> str:
    """Return the kernels for so many spatial axes; the numbers of each axis are parameters of their own."""
    params = "".join(f", long long {name}{d}" for name in _NAMES for d in range(axes))
    inner_first = range(axes - 1, -1, -1)
    forward_out = "".join(f"    long long o{d} = rest % out{d};\n    rest /= out{d};\n" for d in inner_first)
    forward_tap = "".join(
        f"""    at{d} = o{d} * stride{d} + rest % kernel{d} * dilation{d} - pad{d};
    rest /= kernel{d};
    inside = inside && at{d} >= 0 && at{d} < in{d};
"""
        for d in inner_first
    )
    forward_at = "".join(f"    from = from * in{d} + at{d};\n" for d in range(axes))
    backward_in = "".join(f"    long long i{d} = rest % in{d};\n    rest /= in{d};\n" for d in inner_first)
    backward_tap = "".join(
        f"""      o{d} = i{d} + pad{d} - t % kernel{d} * dilation{d};
      t /= kernel{d};
      inside = inside && o{d} >= 0 && o{d} % stride{d} == 0 && o{d} / stride{d} < out{d};
"""
        for d in inner_first
    )
    backward_at = "".join(f"      from = from * out{d} + o{d} / stride{d};\n" for d in range(axes))
    ats, os = (", ".join(f"{name}{d}" for d in range(axes)) for name in ("at", "o"))
    return f"""
extern "C" __global__ void im2col(const T* x, T* y, long long n{params}) {{
  LOOP(i, n) {{
    long long rest = i, {ats};
    bool inside = true;
{forward_out}{forward_tap}    long long from = rest;
{forward_at}    y[i] = inside ? x[from] : (T)0;
  }}
}}
extern "C" __global__ void col2im(const T* dy, T* dx, long long n, long long taps{params}) {{
  LOOP(i, n) {{
    long long rest = i, {os};
{backward_in}    A sum = 0;
    for (long long tap = 0; tap < taps; ++tap) {{
      long long t = tap, from = rest * taps + tap;
      bool inside = true;
{backward_tap}{backward_at}      if (inside) sum += dy[from];
    }}
    dx[i] = sum;
  }}
}}
"""


def im2col_forward(x: AnyArray, y: AnyArray, geometry: ConvGeometry) -> None:
    """Compute y[plane, tap, o] = x[plane, o * stride + tap * dilation - pad], 0 outside of x."""
    n = geometry.batch * geometry.channels * math.prod(geometry.kernel) * geometry.out_size
    launch(_source(geometry.axes), "im2col", y.dtype, n, x, y, n, *_numbers(geometry))


def im2col_backward(dy: AnyArray, dx: AnyArray, geometry: ConvGeometry) -> None:
    """Compute dx = for each element the sum of dy over all places that `im2col_forward` copied it to."""
    n, taps = geometry.batch * geometry.channels * geometry.in_size, math.prod(geometry.kernel)
    launch(_source(geometry.axes), "col2im", dx.dtype, n, dy, dx, n, taps, *_numbers(geometry))


def _numbers(g: ConvGeometry) -> tuple[int, ...]:
    return (*g.in_spatial, *g.kernel, *g.stride, *g.pad, *g.dilation, *g.out_spatial)
