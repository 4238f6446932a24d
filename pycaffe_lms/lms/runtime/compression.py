"""Compress copies between device and host to 16 bits (`-lms_compress`): lossy, and reported as lossy everywhere.

A value is copied piece by piece through a small staging buffer on the device, one for each direction: out, a kernel
converts a piece to 16 bits and the result is copied; in, the reverse. Kernels and copies of a direction are queued on
its own stream, so stream order protects the staging buffer, and a plan's events order them as they do exact copies.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from ...arrays import AnyArray, HostArray
from ...backend.device import ALIGN, Device, Span
from ...memory.host import HostSlab
from ...memory.synced import SyncedMemory
from ...ops import ops_of

PIECE = 16 << 20  # bytes of a staging buffer; a copy of this size reaches the full rate of the link
SHARE = 256  # a staging buffer takes at most 1/256 of the device's memory

_FLOATS: dict[int, np.dtype[Any]] = {2: np.dtype(np.float32), 4: np.dtype(np.float64)}  # by compression ratio


def compressed_bytes(nbytes: int, itemsize: int) -> int:
    """Return the compressed size of `nbytes` bytes of numbers of `itemsize` bytes each."""
    return nbytes // itemsize * 2


class Compression:
    """Copy values in 16 bits through staging buffers. kind: "fp16" or "bf16". nbytes: device bytes it keeps."""

    def __init__(self, device: Device, kind: str):
        self.device, self.kind = device, kind
        self._piece = max(ALIGN, min(PIECE, device.capacity() // SHARE // ALIGN * ALIGN))
        self.nbytes = 2 * self._piece + ALIGN
        self._memory: Span | None = None

    @property
    def held(self) -> int:
        """Return the device bytes that are allocated now."""
        return 0 if self._memory is None else self.nbytes

    def prepare(self, sizes: Mapping[SyncedMemory, int], slab: HostSlab) -> None:
        """Allocate host slots of the given bytes where memories lack one, and the staging buffers."""
        lacking = [memory for memory in sizes if memory.compressed_slot is None]
        slots = slab.take({i: sizes[memory] for i, memory in enumerate(lacking)})
        for i, memory in enumerate(lacking):
            memory.compressed_slot = slots[i]
        if sizes and self._memory is None:
            self._memory = self.device.take(self.nbytes)
            self.device.zero(self._counter_span)

    def copy_down(self, memory: SyncedMemory, stream: Any) -> Any:
        """Queue a compressed copy of the value to the host; return the event of its end."""
        ops, event = ops_of(self.device), None
        for values, slot, piece, staged in self._pieces(memory, self._staging_span.at(0, self._piece)):
            with self.device.on(stream):
                ops.to_half(values, staged, self.kind, self._saturated)
            event = self.device.copy_down(slot, piece, stream)
        return event

    def copy_up(self, memory: SyncedMemory, stream: Any) -> Any:
        """Queue a compressed copy of the value to the device; return the event of its end."""
        ops, event = ops_of(self.device), None
        for values, slot, piece, staged in self._pieces(memory, self._staging_span.at(self._piece, self._piece)):
            self.device.copy_up(piece, slot, stream)
            with self.device.on(stream):
                ops.from_half(staged, values, self.kind)
            event = self.device.record(stream)
        return event

    def saturated(self) -> int:
        """Return how many values so far exceeded fp16 and were clamped to its largest. Wait for queued work."""
        if self._memory is None:
            return 0
        self.device.synchronize()
        found = np.zeros(1, np.int64)
        self.device.copy_down(found.view(np.uint8), self._counter_span)
        self.device.synchronize()
        return int(found[0])

    def close(self) -> None:
        """Free the device memory."""
        if self._memory is not None:
            self.device.give(self._memory)
            self._memory = None

    @property
    def _staging_span(self) -> Span:
        assert self._memory is not None, "`prepare` comes first"
        return self._memory

    @property
    def _counter_span(self) -> Span:
        return self._staging_span.at(2 * self._piece, ALIGN)

    @property
    def _saturated(self) -> AnyArray:
        return self.device.array(self._counter_span, (1,), np.int64)

    def _pieces(self, memory: SyncedMemory, staging: Span) -> Iterator[tuple[AnyArray, HostArray, Span, AnyArray]]:
        """Yield, piece by piece: (values on the device, their host slot, staging span, staging as uint16 array)."""
        slot, device_memory = memory.compressed_slot, memory.span
        assert slot is not None and device_memory is not None  # a copy has both ends
        count = slot.nbytes // 2
        dtype, step = _FLOATS[memory.nbytes // slot.nbytes], self._piece // 2
        for first in range(0, count, step):
            n = min(step, count - first)
            part = device_memory.at(first * dtype.itemsize, n * dtype.itemsize)
            values, staged = self.device.array(part, (n,), dtype), self.device.array(staging, (n,), np.uint16)
            yield values, slot[2 * first : 2 * (first + n)], staging, staged
