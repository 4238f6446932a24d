"""Enlarge planes: put values where a mask says, or repeat them in blocks."""

from __future__ import annotations

import numpy as np

from ....arrays import HostArray
from ..compiled import kernel
from ..threads import parallel

__all__ = ["repeat_backward", "repeat_forward", "unpool_backward", "unpool_forward"]


def unpool_forward(x: HostArray, mask: HostArray, y: HostArray, planes: int, size: int, out: int) -> None:
    """Compute y[plane, mask[plane, i]] = x[plane, i], 0 elsewhere; of several values for a place the last one stays.

    x and mask: (planes, size), y: (planes, out). A value whose mask is outside 0..out - 1 is dropped.
    """
    parallel(_unpool, planes, x.reshape(planes, size), mask.reshape(planes, size), y.reshape(planes, out))


def unpool_backward(dy: HostArray, mask: HostArray, dx: HostArray, planes: int, size: int, out: int) -> None:
    """Compute dx[plane, i] = dy[plane, mask[plane, i]], 0 where the mask is outside 0..out - 1."""
    parallel(_gather, planes, dy.reshape(planes, out), mask.reshape(planes, size), dx.reshape(planes, size))


def repeat_forward(x: HostArray, y: HostArray, planes: int, size: tuple[int, int], scale: tuple[int, int]) -> None:
    """Compute y = x with every value repeated scale[0] times downwards and scale[1] times to the right.

    `size` is (height, width) of x's planes.
    """
    y.reshape(planes, size[0], scale[0], size[1], scale[1])[...] = x.reshape(planes, size[0], 1, size[1], 1)


def repeat_backward(dy: HostArray, dx: HostArray, planes: int, size: tuple[int, int], scale: tuple[int, int]) -> None:
    """Compute dx = the sum of dy over each value's block."""
    blocks = dy.reshape(planes, size[0], scale[0], size[1], scale[1])
    np.sum(blocks, axis=(2, 4), out=dx.reshape(planes, *size))


@kernel
def _unpool(first: int, last: int, x: HostArray, mask: HostArray, y: HostArray) -> None:
    out = y.shape[1]
    for plane in range(first, last):
        values, places, row = x[plane], mask[plane], y[plane]
        row[:] = 0
        for i in range(len(values)):
            if places[i] > -1 and places[i] < out:  # cut towards 0 to an integer; false for NaN
                row[int(places[i])] = values[i]


@kernel
def _gather(first: int, last: int, dy: HostArray, mask: HostArray, dx: HostArray) -> None:
    out = dy.shape[1]
    for plane in range(first, last):
        row, places, values = dy[plane], mask[plane], dx[plane]
        for i in range(len(values)):
            if places[i] > -1 and places[i] < out:
                values[i] = row[int(places[i])]
            else:
                values[i] = 0
