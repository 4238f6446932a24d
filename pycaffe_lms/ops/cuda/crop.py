"""A window of `size` values from `start` on, in each axis of an array of shape `full`."""

from __future__ import annotations

import functools
import math

from ...backend.cuda import launch

__all__ = ["crop_forward", "crop_backward"]


def _merged(full, size, start):
    """[(full, size, start)] of as few axes as will do: one that is taken whole becomes part of the axis before."""
    axes: list[tuple[int, int, int]] = []
    for f, n, s in zip(full, size, start, strict=True):
        if axes and f == n:
            before = axes.pop()
            axes.append((before[0] * f, before[1] * f, before[2] * f))
        else:
            axes.append((f, n, s))
    return axes or [(1, 1, 0)]


@functools.cache
def _source(axes: int) -> str:
    """The kernels for arrays of so many axes; each axis's numbers are parameters of their own."""
    params = "".join(f", long long full{d}, long long size{d}, long long start{d}" for d in range(axes))
    inner_first = range(axes - 1, -1, -1)
    forward = "".join(
        f"""
    c = rest % size{d};
    rest /= size{d};
    at += (c + start{d}) * stride;
    stride *= full{d};"""
        for d in inner_first
    )
    backward = "".join(
        f"""
    c = rest % full{d} - start{d};
    rest /= full{d};
    inside = inside && c >= 0 && c < size{d};
    at += c * stride;
    stride *= size{d};"""
        for d in inner_first
    )
    return f"""
extern "C" __global__ void forward(const T* x, T* y, long long n{params}) {{
  LOOP(i, n) {{
    long long rest = i, at = 0, stride = 1, c;{forward}
    y[i] = x[at];
  }}
}}
extern "C" __global__ void backward(const T* dy, T* dx, long long n{params}) {{
  LOOP(i, n) {{
    long long rest = i, at = 0, stride = 1, c;
    bool inside = true;{backward}
    dx[i] = inside ? dy[at] : (T)0;
  }}
}}
"""


def _launch(name, source, target, n, full, size, start):
    axes = _merged(full, size, start)
    numbers = (number for axis in axes for number in axis)
    launch(_source(len(axes)), name, target.dtype, n, source, target, n, *numbers)


def crop_forward(x, y, full, size, start):
    """y = the window of x."""
    _launch("forward", x, y, math.prod(size), full, size, start)


def crop_backward(dy, dx, full, size, start):
    """dx = dy in the window, 0 around it."""
    _launch("backward", dy, dx, math.prod(full), full, size, start)
