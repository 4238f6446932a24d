"""Gathers values of many buffers in device memory of their own, from which they are copied out beside other work."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Sequence

import numpy as np

from ...backend.device import Device, Span, align
from ...errors import OutOfDeviceMemory
from ...ops import ops_of
from ...ops.copy_table import table_words

Pair = tuple[np.ndarray, Span]


class Gathered:
    """Hold gathered values. runs: (host memory, its values on the device) for each contiguous part of host memory."""

    def __init__(self, device: Device, span: Span, runs: Sequence[Pair]):
        self.runs = runs
        self._device = device
        self._span: Span | None = span
        self._lock = threading.Lock()

    def give(self) -> None:
        """Free the device memory, if it is not free yet. Call it after the copies of all runs; any thread may."""
        with self._lock:
            span, self._span = self._span, None
        if span is not None:
            self._device.give(span)


def table_bytes(sizes: Iterable[int]) -> int:
    """Return the bytes of host memory that `gather` takes for values of so many bytes."""
    return 8 * table_words(list(sizes))


def gather(device: Device, pairs: Sequence[Pair], take: Callable[[int], np.ndarray]) -> Gathered | None:
    """Queue the copy of all buffers to device memory of their own; return None where the device has no room for that.

    Args:
        pairs: (host memory for a value, where the value is on the device).
        take: returns so many bytes of host memory, page-locked so that the host does not wait, which nothing else
            writes until the copy is done. It is called once, for `table_bytes`.
    """
    stretches = _stretches(sorted(pairs, key=lambda pair: pair[0].ctypes.data))
    sizes = [some[-1][0].ctypes.data + some[-1][0].nbytes - some[0][0].ctypes.data for some in stretches]
    table_size = table_bytes(raw.nbytes for raw, _ in pairs)
    total = sum(map(align, sizes)) + table_size
    if total > device.capacity() - device.in_use():
        return None
    try:
        span = device.take(total)
    except OutOfDeviceMemory:
        return None
    sources, targets, runs, offset = [], [], [], 0
    for some, nbytes in zip(stretches, sizes, strict=True):
        begin = some[0][0].ctypes.data
        for raw, value in some:
            sources.append(device.array(value, (raw.nbytes,), np.uint8))
            target = span.at(offset + raw.ctypes.data - begin, raw.nbytes)
            targets.append(device.array(target, (raw.nbytes,), np.uint8))
        runs.append((_from(some[0][0], nbytes), span.at(offset, nbytes)))
        offset += align(nbytes)
    ops = ops_of(device)
    plan = ops.copy_all_plan(sources, targets)
    place = span.at(offset, table_size)
    table = take(table_size)
    table[:] = plan.table.view(np.uint8)
    device.copy_up(place, table)
    ops.copy_all(plan, device.array(place, (table_size // 8,), np.int64))
    return Gathered(device, span, runs)


def _stretches(pairs: Sequence[Pair]) -> list[list[Pair]]:
    """Split pairs, in the order of their host memory, where there is more than padding between two, or another
    allocation begins."""
    found: list[list[Pair]] = []
    for pair in pairs:
        last = found[-1][-1][0] if found else None
        if (
            last is None
            or pair[0].ctypes.data != last.ctypes.data + align(last.nbytes)
            or _base(pair[0]) is not _base(last)
        ):
            found.append([])  # the bases tell allocations apart that touch
        found[-1].append(pair)
    return found


def _base(raw: np.ndarray) -> np.ndarray:
    """Return the array of the whole allocation."""
    base = raw.base
    return _base(base) if isinstance(base, np.ndarray) else raw


def _from(first: np.ndarray, nbytes: int) -> np.ndarray:
    """Return `nbytes` of host memory from the beginning of `first` on."""
    base = _base(first)
    start = first.ctypes.data - base.ctypes.data
    return base.reshape(-1).view(np.uint8)[start : start + nbytes]
