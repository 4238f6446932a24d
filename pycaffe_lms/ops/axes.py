"""Reorder axes of arrays: transpositions with the fewest axes, axes in channels-last memory, windows over channels."""

from __future__ import annotations

from math import prod

from .records import Grid

Shape = tuple[int, ...]
WIDEST_IN_REGISTERS = 63  # the widest window of the kernels for channels that lie last


def merge_axes(shape: tuple[int, ...], order: tuple[int, ...]) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Return (shape, order) of an equal transposition with the fewest axes.

    Axes of size 1 are dropped, and axes that stay neighbours in order are joined. Where nothing moves the result is
    ((n,), (0,)).

    merge_axes((2, 3, 4, 5), (0, 2, 3, 1)) == ((2, 3, 20), (0, 2, 1))
    """
    runs: list[list[int]] = []  # input axes that follow each other in input and output
    for axis in order:
        if shape[axis] == 1:
            continue
        if runs and all(shape[a] == 1 for a in range(runs[-1][-1] + 1, axis)) and axis > runs[-1][-1]:
            runs[-1].append(axis)
        else:
            runs.append([axis])
    if not runs:
        return (1,), (0,)
    ranks = sorted(range(len(runs)), key=lambda i: runs[i])
    sizes = tuple(prod(shape[a] for a in runs[i]) for i in ranks)
    return sizes, tuple(ranks.index(i) for i in range(len(runs)))


def inverse(order: tuple[int, ...]) -> tuple[int, ...]:
    """Return the order that undoes a transposition."""
    return tuple(order.index(axis) for axis in range(len(order)))


def memory_shape(shape: Shape, channels_last: bool) -> Shape:
    """Return the shape in the order of memory: with the second axis last for channels-last arrays of 4 axes or more."""
    shape = tuple(shape)
    return (shape[0], *shape[2:], shape[1]) if channels_last and len(shape) >= 4 else shape


def memory_axis(axis: int, axes: int, channels_last: bool) -> int:
    """Return the place in memory of axis `axis` of an array of `axes` axes."""
    if not channels_last or axes < 4 or axis == 0:
        return axis
    return axes - 1 if axis == 1 else axis - 1


def around_axis(shape: Shape, axis: int, channels_last: bool = False) -> Grid:
    """Return the numbers of elements in memory before, along and behind an axis."""
    at, shape = memory_axis(axis, len(shape), channels_last), memory_shape(shape, channels_last)
    return Grid(prod(shape[:at]), shape[at], prod(shape[at + 1 :]))


def effective_width(size: int, channels: int) -> int:
    """Return the narrowest odd window over `channels` channels that covers the same channels as one of `size`."""
    return min(size, 2 * channels - 1) if channels else 1
