"""Copy windows of images to columns and back, on any number of spatial axes, for im2col and col2im.

The last axis is a loop of the kernels; the others are a table. Where rows of outputs are as long as rows of
inputs, and as far apart, several of them are copied as one.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from math import prod

import numpy as np

from ....arrays import HostArray
from ...geometry import Ints
from ..compiled import kernel
from ..threads import ELEMENTS, parallel


class Windows:
    """Copy windows of images to columns and back, for one geometry.

    inputs, outputs, kernel, stride, pad and dilation are tuples, one value for each spatial axis.
    """

    def __init__(self, inputs: Ints, outputs: Ints, kernel: Ints, stride: Ints, pad: Ints, dilation: Ints) -> None:
        if not inputs:
            inputs = outputs = kernel = stride = dilation = (1,)
            pad = (0,)
        self.in_size, self.out_size, self.taps = prod(inputs), prod(outputs), prod(kernel)
        rows = _rows(inputs[:-1], outputs[:-1], kernel[:-1], stride[:-1], pad[:-1], dilation[:-1])
        self.runs = _runs(rows, stride[-1] == 1 and inputs[-1] == outputs[-1])
        self.last = (inputs[-1], outputs[-1], kernel[-1], stride[-1], pad[-1], dilation[-1])

    def gather(self, x: HostArray, columns: HostArray, item: int, channel: int, items: int, channels: int) -> None:
        """Write the windows of x (all items, all channels, in_size) to columns (channels, taps, items, out_size).

        They are the windows of `items` items from `item` on and `channels` channels from `channel` on; 0 outside of x.
        """
        columns = columns.reshape(channels, self.taps, items, self.out_size)
        self._run(_gather, x, columns, item, channel, items, channels)

    def add(self, columns: HostArray, x: HostArray, item: int, channel: int, items: int, channels: int) -> None:
        """Write to x for each of its elements the sum of columns over all its copies; shapes as in `gather`."""
        columns = columns.reshape(channels, self.taps, items, self.out_size)
        self._run(_add, x, columns, item, channel, items, channels)

    def _run(
        self,
        function: Callable[..., None],
        x: HostArray,
        columns: HostArray,
        item: int,
        channel: int,
        items: int,
        channels: int,
    ) -> None:
        grain = ELEMENTS // max(1, self.taps * self.out_size) + 1
        parallel(function, items * channels, x, columns, item, channel, items, self.runs, self.last, grain=grain)


@lru_cache(maxsize=1024)
def windows(inputs: Ints, outputs: Ints, kernel: Ints, stride: Ints, pad: Ints, dilation: Ints) -> Windows:
    """Return the Windows of a geometry, which are built once."""
    return Windows(inputs, outputs, kernel, stride, pad, dilation)


def _rows(inputs: Ints, outputs: Ints, kernel: Ints, stride: Ints, pad: Ints, dilation: Ints) -> HostArray:
    """Return (taps, outputs) of all axes but the last: which row of the input is seen, -1 outside of it."""
    rows = np.zeros((1, 1), np.int64)
    for size, out, k, s, p, d in zip(inputs, outputs, kernel, stride, pad, dilation, strict=True):
        at = np.arange(out) * s - p + np.arange(k)[:, None] * d  # (k, out)
        inside = (at >= 0) & (at < size)
        both = (rows[:, None, :, None] * size + at[None, :, None, :]).astype(np.int64)
        both[~((rows[:, None, :, None] >= 0) & inside[None, :, None, :])] = -1
        rows = both.reshape(rows.shape[0] * k, rows.shape[1] * out)
    return np.ascontiguousarray(rows)


def _runs(rows: HostArray, whole: bool) -> HostArray:
    """Return (tap, first row of outputs, rows, row of the input that the first one sees or -1) of rows to copy as one.

    `whole`: rows of outputs follow each other in memory as those of the input do.
    """
    runs = []
    for tap, seen in enumerate(rows.tolist()):
        for r, row in enumerate(seen):
            if r and whole and row == (-1 if runs[-1][3] < 0 else runs[-1][3] + runs[-1][2]):
                runs[-1][2] += 1
            else:
                runs.append([tap, r, 1, row])
    return np.array(runs, np.int64).reshape(-1, 4)


@kernel
def _gather(
    first: int,
    last: int,
    x: HostArray,
    columns: HostArray,
    item: int,
    channel: int,
    items: int,
    runs: HostArray,
    axis: Ints,
) -> None:
    width, out, taps, stride, pad, dilation = axis
    for plane in range(first, last):
        c, i = plane // items, plane % items
        source = x[item + i, channel + c]
        for t in range(taps):
            offset = t * dilation - pad
            begin = min(out, max(0, -(offset // stride)))
            end = max(begin, min(out, (width - 1 - offset) // stride + 1))
            for k in range(len(runs)):
                high, r, n, row = runs[k, 0], runs[k, 1], runs[k, 2], runs[k, 3]
                target, place = columns[c, high * taps + t, i], r * out
                if row < 0 or begin == end:
                    for j in range(place, place + n * out):
                        target[j] = 0
                    continue
                start = row * width + offset
                if stride == 1:
                    size = (n - 1) * out + end - begin
                    inside, pixels = target[place + begin :][:size], source[start + begin :][:size]
                    for j in range(inside.size):
                        inside[j] = pixels[j]
                else:  # n is 1
                    for j in range(begin, end):
                        target[place + j] = source[start + j * stride]
                for edge in range(place, place + n * out, out):
                    for j in range(edge, edge + begin):
                        target[j] = 0
                    for j in range(edge + end, edge + out):
                        target[j] = 0


@kernel
def _add(
    first: int,
    last: int,
    x: HostArray,
    columns: HostArray,
    item: int,
    channel: int,
    items: int,
    runs: HostArray,
    axis: Ints,
) -> None:
    """Add columns to x; entries of `columns` that lie outside of x and between two rows are overwritten with 0."""
    width, out, taps, stride, pad, dilation = axis
    for plane in range(first, last):
        c, i = plane // items, plane % items
        target = x[item + i, channel + c]
        target[:] = 0
        for t in range(taps):
            offset = t * dilation - pad
            begin = min(out, max(0, -(offset // stride)))
            end = max(begin, min(out, (width - 1 - offset) // stride + 1))
            for k in range(len(runs)):
                high, r, n, row = runs[k, 0], runs[k, 1], runs[k, 2], runs[k, 3]
                if row < 0 or begin == end:
                    continue
                source, place = columns[c, high * taps + t, i], r * out
                for edge in range(place + out, place + n * out, out):
                    for j in range(edge - out + end, edge + begin):
                        source[j] = 0
                start = row * width + offset
                if stride == 1:
                    size = (n - 1) * out + end - begin
                    inside, pixels = source[place + begin :][:size], target[start + begin :][:size]
                    for j in range(inside.size):
                        pixels[j] += inside[j]
                else:  # n is 1
                    for j in range(begin, end):
                        target[start + j * stride] += source[place + j]
