"""Allocate page-locked host memory for managed buffers: once, before the loop, in a few large segments.

`HostSlab.take` allocates a slot for each value that outlives a run, and the shared segments, in which
`planner/host_slots.py` packs the values that live within a run.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any
from weakref import ref

import numpy as np

from ..arrays import HostArray
from ..backend.device import Device, align
from ..errors import OutOfHostMemory, human_bytes

SEGMENT = 1 << 30  # bytes; a copy must not cross two registrations, so a slot is within one segment


def available_host_bytes() -> int | None:
    """Return the host bytes available: MemAvailable, or less under a control group's limit; None if unknown."""
    found = []
    try:
        for line in Path("/proc/meminfo").read_text().splitlines():
            if line.startswith("MemAvailable:"):
                found.append(int(line.split()[1]) * 1024)
    except OSError:
        return None
    try:
        limit = Path("/sys/fs/cgroup/memory.max").read_text().strip()
        used = Path("/sys/fs/cgroup/memory.current").read_text().strip()
        if limit != "max":
            found.append(int(limit) - int(used))
    except (OSError, ValueError):
        pass  # no control group that limits memory
    return min(found) if found else None


class HostSlab:
    """Allocate slots of page-locked memory, and segments that plans share.

    A segment of slots is freed with the last array over one of its slots.

    Attributes:
        limit: most bytes to allocate in all; None: what the host has available.
        shared: the shared segments, as uint8; no value in them outlives a run.
    """

    def __init__(self, device: Device, limit: int | None = None):
        self.device = device
        self.limit = limit
        self._slots: list[tuple[ref[Any], int]] = []  # per segment of slots: the array that its slots keep alive, bytes
        self.shared: list[HostArray] = []

    @property
    def segment(self) -> int:
        """Return the bytes of a segment; a larger slot gets a segment of its own size."""
        return SEGMENT

    def _segments(self) -> list[int]:
        """Return the bytes of each segment of slots that is in use."""
        self._slots = [(owner, nbytes) for owner, nbytes in self._slots if owner() is not None]
        return [nbytes for _, nbytes in self._slots]

    @property
    def nbytes(self) -> int:
        """Return the bytes of all segments."""
        return sum(self._segments()) + self.shared_bytes

    @property
    def segments(self) -> int:
        """Return the number of all segments."""
        return len(self._segments()) + len(self.shared)

    @property
    def shared_bytes(self) -> int:
        """Return the bytes of the shared segments."""
        return sum(raw.nbytes for raw in self.shared)

    def close(self) -> None:
        """Forget the segments: each is freed with the last array over it."""
        self._slots.clear()
        self.shared.clear()

    def take(self, sizes: Mapping[int, int], shared: Sequence[int] = ()) -> dict[int, HostArray]:
        """Return a slot (uint8) for each key, and grow the shared segments.

        Args:
            sizes: bytes of each slot, by key.
            shared: least bytes of each shared segment.

        Raises:
            OutOfHostMemory: the limit would be exceeded; nothing was allocated.
        """
        here = [raw.nbytes for raw in self.shared] + [0] * len(shared)
        small = [k for k, size in enumerate(shared) if size > here[k]]
        need = sum(map(align, sizes.values()))
        self._check(need + sum(shared[k] - here[k] for k in small))
        if any(here[k] for k in small):
            self.device.synchronize()  # wait for the last run's copies
        for k in small:
            if here[k]:
                self.shared[k] = np.empty(0, np.uint8)  # free it before the larger one is allocated
            self.shared[k : k + 1] = [self.device.host_take(shared[k], pinned=True)]
        slots: dict[int, HostArray] = {}
        group: list[int] = []
        room = 0
        for key, size in sizes.items():
            if group and room + align(size) > SEGMENT:
                self._segment(group, sizes, slots)
                group, room = [], 0
            group.append(key)
            room += align(size)
        if group:
            self._segment(group, sizes, slots)
        return slots

    def _segment(self, keys: list[int], sizes: Mapping[int, int], slots: dict[int, HostArray]) -> None:
        raw = self.device.host_take(sum(align(sizes[k]) for k in keys), pinned=True)
        offset = 0
        for k in keys:
            slots[k] = raw[offset : offset + sizes[k]]
            offset += align(sizes[k])
        self._slots.append((ref(slots[keys[0]].base), raw.nbytes))

    def _check(self, need: int) -> None:
        free = self.limit - self.nbytes if self.limit is not None else available_host_bytes()
        if free is not None and need > free:
            raise OutOfHostMemory(
                f"Large Model Support needs {human_bytes(self.nbytes + need)} of page-locked host memory, "
                f"{human_bytes(max(free, 0) + self.nbytes)} are there",
                needed=need,
                free=free,
                fix="lower batch_size, manage fewer buffers (larger -lms or -lms_frac), or, if the host has more "
                "memory than it reports, say so with -lms_host",
            )
