"""Crop a window of `size` values from `start` on, in each axis of an array of shape `full`."""

from __future__ import annotations

from ....arrays import HostArray
from ...geometry import Ints

__all__ = ["crop_forward", "crop_backward"]


def _window(size: Ints, start: Ints) -> tuple[slice, ...]:
    return tuple(slice(s, s + n) for s, n in zip(start, size, strict=True))


def crop_forward(x: HostArray, y: HostArray, full: Ints, size: Ints, start: Ints) -> None:
    """Copy the window of x to y."""
    y.reshape(size)[...] = x.reshape(full)[_window(size, start)]


def crop_backward(dy: HostArray, dx: HostArray, full: Ints, size: Ints, start: Ints) -> None:
    """Copy dy to the window of dx, and set dx to 0 around it."""
    dx.fill(0)
    dx.reshape(full)[_window(size, start)] = dy.reshape(size)
