"""Combine several arrays of one shape: sum, product and maximum.

Kernels are written out for each number of arrays, so that every array is read or written once.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence

from ....arrays import AnyArray
from ...geometry import C_TYPES
from ..elementwise import elementwise, run

__all__ = [
    "eltwise_sum",
    "eltwise_sum_backward",
    "eltwise_prod",
    "eltwise_prod_backward",
    "eltwise_prod_backward_unstable",
    "eltwise_max",
    "eltwise_max_backward",
]

_UNSTABLE = elementwise("unstable", "dx = y / x * dy;", reads="x, y, dy", writes="dx")


def _each(n: int, text: str, start: int = 0, between: str = ", ") -> str:
    return between.join(text.replace("@", str(i)) for i in range(start, n))


@functools.cache
def _sum_source(n: int) -> str:
    body = f"y = {_each(n, '(T)c@ * x@', between=' + ')};"
    return elementwise("eltwise", body, reads=_each(n, "x@"), writes="y", params=_each(n, "double c@"))


@functools.cache
def _sum_backward_source(n: int) -> str:
    body = _each(n, "dx@ = (T)c@ * dy;", between=" ")
    return elementwise("eltwise", body, reads="dy", writes=_each(n, "dx@"), params=_each(n, "double c@"))


@functools.cache
def _prod_source(n: int) -> str:
    return elementwise("eltwise", f"y = {_each(n, 'x@', between=' * ')};", reads=_each(n, "x@"), writes="y")


@functools.cache
def _max_source(n: int, mask: str) -> str:
    """Return the kernel for n arrays; `mask` is the type of the mask, "" where there is none."""
    later = _each(n, "if (x@ > y) { y = x@; " + "mask = @; " * bool(mask) + "}", start=2, between=" ")
    body = f"""
      const bool first_wins = x0 > x1;
      y = first_wins ? x0 : x1;
      {"mask = first_wins ? 0 : 1;" if mask else ""}
      {later}
    """
    writes, helpers = ("y, M mask", f"typedef {mask} M;") if mask else ("y", "")
    return elementwise("eltwise", body, reads=_each(n, "x@"), writes=writes, helpers=helpers)


@functools.cache
def _max_backward_source(n: int, mask: str) -> str:
    body = _each(n, "dx@ = mask == index@ ? dy : (T)0;", between=" ")
    return elementwise(
        "eltwise",
        body,
        reads="dy, M mask",
        writes=_each(n, "dx@"),
        params=_each(n, "long long index@"),
        helpers=f"typedef {mask} M;",
    )


def eltwise_sum(xs: Sequence[AnyArray], coeffs: Sequence[float], y: AnyArray) -> None:
    """Compute y = sum of coeffs[i] * xs[i], added from the first to the last; y is none of them."""
    run(_sum_source(len(xs)), "eltwise", (*xs, y), *map(float, coeffs))


def eltwise_sum_backward(dy: AnyArray, dxs: Sequence[AnyArray], coeffs: Sequence[float]) -> None:
    """Compute dxs[i] = coeffs[i] * dy for every array of the list; where coeffs[i] is 1, dxs[i] may be dy."""
    wanted = [(dx, coeff) for dx, coeff in zip(dxs, coeffs, strict=True) if coeff != 1 or dx.data.ptr != dy.data.ptr]
    if wanted:
        outputs, factors = zip(*wanted, strict=True)
        run(_sum_backward_source(len(wanted)), "eltwise", (dy, *outputs), *map(float, factors))


def eltwise_prod(xs: Sequence[AnyArray], y: AnyArray) -> None:
    """Compute y = product of all xs, from the first to the last; y is none of them."""
    run(_prod_source(len(xs)), "eltwise", (*xs, y))


def eltwise_prod_backward(others: Sequence[AnyArray], dy: AnyArray, dx: AnyArray) -> None:
    """Compute dx = dy * product of the other inputs."""
    run(_prod_source(len(others) + 1), "eltwise", (*others, dy, dx))


def eltwise_prod_backward_unstable(x: AnyArray, y: AnyArray, dy: AnyArray, dx: AnyArray) -> None:
    """Compute dx = y / x * dy, which is NaN or infinite where x is 0."""
    run(_UNSTABLE, "unstable", (x, y, dy, dx))


def eltwise_max(xs: Sequence[AnyArray], y: AnyArray, mask: AnyArray | None) -> None:
    """Compute y = maximum; `mask` (an integer type, or None) receives the number of the input it came from."""
    outputs = (y,) if mask is None else (y, mask)
    source = _max_source(len(xs), "" if mask is None else C_TYPES[mask.dtype])
    run(source, "eltwise", (*xs, *outputs))


def eltwise_max_backward(dy: AnyArray, mask: AnyArray, indices: Sequence[int], dxs: Sequence[AnyArray]) -> None:
    """Compute dxs[i] = dy where the maximum came from input indices[i], else 0, for every array of the list."""
    run(_max_backward_source(len(dxs), C_TYPES[mask.dtype]), "eltwise", (dy, mask, *dxs), *indices)
