"""Crop a window of `size` values from `start` on, in each axis of an array of shape `full`."""

from __future__ import annotations

import functools
import math

from ....arrays import AnyArray
from ...geometry import Ints
from ..moves import move, moving, unit_of
from ..source import DIVIDE, divider

__all__ = ["crop_forward", "crop_backward"]


def _merged(full: Ints, size: Ints, start: Ints) -> list[tuple[int, int, int]]:
    """Return [(full, size, start)] of as few axes as possible: an axis that is taken whole joins the one before."""
    axes: list[tuple[int, int, int]] = []
    for f, n, s in zip(full, size, start, strict=True):
        if axes and f == n:
            before = axes.pop()
            axes.append((before[0] * f, before[1] * f, before[2] * f))
        else:
            axes.append((f, n, s))
    return axes or [(1, 1, 0)]


@functools.cache
def _source(axes: int, backward: bool) -> str:
    """Return the kernel for arrays of so many axes, each with parameters of its own.

    `n` is the size of the array that is walked: the window forward, all of dx backward.
    """
    walked = "full" if backward else "size"
    params = ", ".join(
        f"long long {walked}{d}, long long m{d}, long long s{d}, "
        f"long long {'size' if backward else 'full'}{d}, long long start{d}"
        for d in range(axes)
    )
    steps = "".join(
        f"""
      over = {f"quotient(rest, {walked}{d}, m{d}, s{d})" if d else "0"};
      c = rest - over * {walked}{d};
      rest = over;"""
        + (
            f"""
      c -= start{d};
      inside = inside && c >= 0 && c < size{d};
      at += c * stride;
      stride *= size{d};"""
            if backward
            else f"""
      at += (c + start{d}) * stride;
      stride *= full{d};"""
        )
        for d in reversed(range(axes))
    )
    body = f"""
      long long rest = i, at = 0, stride = 1, c, over;
      bool inside = true;{steps}
      from = inside ? at : -1;
    """
    return moving("crop", body, params=params, helpers=DIVIDE)


def _move(x: AnyArray, y: AnyArray, full: Ints, size: Ints, start: Ints, backward: bool) -> None:
    axes = _merged(full, size, start)
    unit = unit_of(x, y, *axes[-1])
    axes[-1] = tuple(number // unit for number in axes[-1])
    n = math.prod(axis[0] if backward else axis[1] for axis in axes)
    numbers = []
    for f, s, begin in axes:
        walked, other = (f, s) if backward else (s, f)
        numbers += [*divider(walked, n), other, begin]
    move(_source(len(axes), backward), "crop", x, y, unit, n, *numbers)


def crop_forward(x: AnyArray, y: AnyArray, full: Ints, size: Ints, start: Ints) -> None:
    """Copy the window of x to y."""
    _move(x, y, full, size, start, False)


def crop_backward(dy: AnyArray, dx: AnyArray, full: Ints, size: Ints, start: Ints) -> None:
    """Copy dy to the window of dx, and set dx to 0 around it."""
    _move(dy, dx, full, size, start, True)
