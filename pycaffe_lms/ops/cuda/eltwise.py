"""Sum, product and maximum of several arrays of one shape. Kernels are written out for each number of arrays, so that
every array is read or written once."""

from __future__ import annotations

import functools

from ...backend.cuda import launch

__all__ = [
    "eltwise_sum",
    "eltwise_sum_backward",
    "eltwise_prod",
    "eltwise_prod_backward",
    "eltwise_prod_backward_unstable",
    "eltwise_max",
    "eltwise_max_backward",
]

_SOURCE = """
extern "C" __global__ void unstable(const T* x, const T* y, const T* dy, T* dx, long long n) {
  LOOP(i, n) dx[i] = y[i] / x[i] * dy[i];
}
extern "C" __global__ void max_backward(const T* dy, const int* mask, T* dx, long long index, long long n) {
  LOOP(i, n) dx[i] = mask[i] == index ? dy[i] : (T)0;
}
"""


def _kernel(inputs: str, body: str) -> str:
    return f'extern "C" __global__ void eltwise({inputs}, long long n) {{ LOOP(i, n) {{ {body} }} }}'


def _each(n: int, text: str, start: int = 0, between: str = ", ") -> str:
    return between.join(text.replace("@", str(i)) for i in range(start, n))


@functools.cache
def _sum_source(n: int) -> str:
    inputs = _each(n, "const T* x@") + ", " + _each(n, "double c@") + ", T* y"
    return _kernel(inputs, "y[i] = " + _each(n, "(T)c@ * x@[i]", between=" + ") + ";")


@functools.cache
def _sum_backward_source(n: int) -> str:
    inputs = "const T* dy, " + _each(n, "T* dx@") + ", " + _each(n, "double c@")
    return _kernel(inputs, "T g = dy[i]; " + _each(n, "dx@[i] = (T)c@ * g;", between=" "))


@functools.cache
def _prod_source(n: int) -> str:
    return _kernel(_each(n, "const T* x@") + ", T* y", "y[i] = " + _each(n, "x@[i]", between=" * ") + ";")


@functools.cache
def _max_source(n: int, masked: bool) -> str:
    later = _each(n, "if (x@[i] > best) { best = x@[i]; from = @; }", start=2, between=" ")
    inputs = _each(n, "const T* x@") + ", T* y" + (", int* mask" if masked else "")
    body = "bool first = x0[i] > x1[i]; T best = first ? x0[i] : x1[i]; int from = first ? 0 : 1; " + later
    return _kernel(inputs, body + " y[i] = best; " + ("mask[i] = from;" if masked else "(void)from;"))


def eltwise_sum(xs, coeffs, y):
    """y = sum of coeffs[i] * xs[i], added from the first to the last; y is none of them."""
    launch(_sum_source(len(xs)), "eltwise", y.dtype, y.size, *xs, *map(float, coeffs), y, y.size)


def eltwise_sum_backward(dy, dxs, coeffs):
    """dxs[i] = coeffs[i] * dy, for every array of the list."""
    launch(_sum_backward_source(len(dxs)), "eltwise", dy.dtype, dy.size, dy, *dxs, *map(float, coeffs), dy.size)


def eltwise_prod(xs, y):
    """y = product of all xs, from the first to the last; y is none of them."""
    launch(_prod_source(len(xs)), "eltwise", y.dtype, y.size, *xs, y, y.size)


def eltwise_prod_backward(others, dy, dx):
    """dx = dy * product of the other inputs."""
    launch(_prod_source(len(others) + 1), "eltwise", dx.dtype, dx.size, *others, dy, dx, dx.size)


def eltwise_prod_backward_unstable(x, y, dy, dx):
    """dx = y / x * dy: no number where x is 0."""
    launch(_SOURCE, "unstable", dx.dtype, dx.size, x, y, dy, dx, dx.size)


def eltwise_max(xs, y, mask):
    """y = maximum; mask (int32, or None) = the input it came from.

    A tie of inputs 0 and 1 goes to 1; a later input must be strictly greater.
    """
    outputs = (y,) if mask is None else (y, mask)
    launch(_max_source(len(xs), mask is not None), "eltwise", y.dtype, y.size, *xs, *outputs, y.size)


def eltwise_max_backward(dy, mask, index, dx):
    """dx = dy where the maximum came from input `index`, else 0."""
    launch(_SOURCE, "max_backward", dx.dtype, dx.size, dy, mask, dx, index, dx.size)
