"""Copies in 16 bits (`-lms_compress`): lossy, and labelled so wherever they are mentioned.

A value goes through a small piece of device memory, one for each direction: a kernel turns some of it into 16 bits,
these are copied, and so on; the reverse on the way in. Kernels and copies are queued on the direction's own stream, so
the stream's order alone keeps the pieces apart, and a plan's events order them with the layers as they do exact copies.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from ...backend.device import ALIGN, Device
from ...memory.host import HostSlab
from ...memory.synced import SyncedMemory
from ...ops import ops_of

PIECE = 16 << 20  # bytes of 16-bit values; a copy of this size is as fast as the link gets
SHARE = 256  # a piece is at most this part of the device's memory

_FLOATS = {2: np.dtype(np.float32), 4: np.dtype(np.float64)}  # by how many times smaller it becomes


def compressed_bytes(nbytes: int, itemsize: int) -> int:
    """Bytes in 16 bits of so many bytes of floating-point numbers."""
    return nbytes // itemsize * 2


class Compression:
    """kind: "fp16" or "bf16". nbytes: device memory that it takes for good."""

    def __init__(self, device: Device, kind: str):
        self.device, self.kind = device, kind
        self._piece = max(ALIGN, min(PIECE, device.capacity() // SHARE // ALIGN * ALIGN))
        self.nbytes = 2 * self._piece + ALIGN
        self._memory = None

    @property
    def held(self) -> int:
        """Bytes of the device that it has now."""
        return 0 if self._memory is None else self.nbytes

    def prepare(self, sizes: Mapping[SyncedMemory, int], slab: HostSlab) -> None:
        """Homes of the given bytes, for those that have none, and the device memory. Nothing is taken later."""
        missing = {memory: nbytes for memory, nbytes in sizes.items() if memory.half_home is None}
        for memory, slot in slab.take(missing).items():
            memory.half_home = slot
        if sizes and self._memory is None:
            self._memory = self.device.take(self.nbytes)
            self.device.zero(self._counter_span)

    def copy_down(self, memory: SyncedMemory, stream):
        """Queue the value on its way home; returns the event of its end."""
        ops, event = ops_of(self.device), None
        for values, home, piece, staged in self._pieces(memory, self._memory.at(0, self._piece)):
            with self.device.on(stream):
                ops.to_half(values, staged, self.kind, self._saturated)
            event = self.device.copy_down(home, piece, stream)
        return event

    def copy_up(self, memory: SyncedMemory, stream):
        """Queue the value on its way to the device; returns the event of its end."""
        ops, event = ops_of(self.device), None
        for values, home, piece, staged in self._pieces(memory, self._memory.at(self._piece, self._piece)):
            self.device.copy_up(piece, home, stream)
            with self.device.on(stream):
                ops.from_half(staged, values, self.kind)
            event = self.device.record(stream)
        return event

    def saturated(self) -> int:
        """How many values were too large for 16 bits so far and were cut to the largest one (fp16). Waits for what is
        queued."""
        if self._memory is None:
            return 0
        self.device.synchronize()
        found = np.zeros(1, np.int64)
        self.device.copy_down(found.view(np.uint8), self._counter_span)
        self.device.synchronize()
        return int(found[0])

    def close(self) -> None:
        """Give the device memory back."""
        if self._memory is not None:
            self.device.give(self._memory)
            self._memory = None

    @property
    def _counter_span(self):
        return self._memory.at(2 * self._piece, ALIGN)

    @property
    def _saturated(self):
        return self.device.array(self._counter_span, (1,), np.int64)

    def _pieces(self, memory: SyncedMemory, staging):
        """(values, their home, the piece of device memory between, that as an array), one after the other."""
        count = memory.half_home.nbytes // 2
        dtype, step = _FLOATS[memory.nbytes // memory.half_home.nbytes], self._piece // 2
        for first in range(0, count, step):
            n = min(step, count - first)
            part = memory.span.at(first * dtype.itemsize, n * dtype.itemsize)
            values, staged = self.device.array(part, (n,), dtype), self.device.array(staging, (n,), np.uint16)
            yield values, memory.half_home[2 * first : 2 * (first + n)], staging, staged
