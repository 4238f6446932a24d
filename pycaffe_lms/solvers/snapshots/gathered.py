"""Values of many buffers side by side in device memory of their own, from where they leave beside other work."""

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
    """runs: (host memory, its values on the device) for each stretch of host memory."""

    def __init__(self, device: Device, span: Span, runs: Sequence[Pair]):
        self.runs = runs
        self._device, self._span = device, span
        self._lock = threading.Lock()

    def give(self) -> None:
        """Give the device memory back, once; after the copies of all runs, on any thread."""
        with self._lock:
            span, self._span = self._span, None
        if span is not None:
            self._device.give(span)


def table_bytes(sizes: Iterable[int]) -> int:
    """Return how much host memory `gather` takes for values of so many bytes."""
    return 8 * table_words(list(sizes))


def gather(device: Device, pairs: Sequence[Pair], take: Callable[[int], np.ndarray]) -> Gathered | None:
    """Queue the copy of all buffers to device memory of their own; return None where the device has no room for that.

    pairs: (host memory that a value goes to, where it is on the device). take: gives `table_bytes` of host memory,
    page-locked so that the host does not wait, which stay as they are until the copy is done."""
    stretches = _stretches(sorted(pairs, key=lambda pair: _address(pair[0])))
    sizes = [_address(some[-1][0]) + some[-1][0].nbytes - _address(some[0][0]) for some in stretches]
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
        begin = _address(some[0][0])
        for raw, value in some:
            sources.append(device.array(value, (raw.nbytes,), np.uint8))
            target = span.at(offset + _address(raw) - begin, raw.nbytes)
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
    """Cut pairs, in the order of their host memory, where more than padding lies between two, or another allocation
    begins."""
    found: list[list[Pair]] = []
    for pair in pairs:
        last = found[-1][-1][0] if found else None
        behind = last is not None and _address(pair[0]) == _address(last) + align(last.nbytes)
        if behind and _base(pair[0]) is _base(last):  # allocations may touch
            found[-1].append(pair)
        else:
            found.append([pair])
    return found


def _address(raw: np.ndarray) -> int:
    return raw.__array_interface__["data"][0]


def _base(raw: np.ndarray) -> np.ndarray:
    """Return the array of the whole allocation."""
    while isinstance(raw.base, np.ndarray):
        raw = raw.base
    return raw


def _from(first: np.ndarray, nbytes: int) -> np.ndarray:
    """Return so many bytes of host memory from the beginning of `first` on."""
    base = _base(first)
    start = _address(first) - _address(base)
    return base.reshape(-1).view(np.uint8)[start : start + nbytes]
