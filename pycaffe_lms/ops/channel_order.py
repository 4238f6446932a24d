"""Where an axis of (N, C, ...) lies in memory if channels come last: (N, ..., C). Below four axes nothing moves."""

from __future__ import annotations

from math import prod

Shape = tuple[int, ...]


def memory_shape(shape: Shape, channels_last: bool) -> Shape:
    """The shape as it lies in memory."""
    shape = tuple(shape)
    return (shape[0], *shape[2:], shape[1]) if channels_last and len(shape) >= 4 else shape


def memory_axis(axis: int, axes: int, channels_last: bool) -> int:
    """Where axis `axis` of `axes` lies in memory."""
    if not channels_last or axes < 4 or axis == 0:
        return axis
    return axes - 1 if axis == 1 else axis - 1


def around_axis(shape: Shape, axis: int, channels_last: bool) -> tuple[int, int, int]:
    """(outer, dim, inner): the numbers of elements in memory before, along and behind an axis."""
    at, shape = memory_axis(axis, len(shape), channels_last), memory_shape(shape, channels_last)
    return prod(shape[:at]), shape[at], prod(shape[at + 1 :])
