"""Allocate page-locked host memory for managed buffers: once, before the loop, in a few large segments.

`HostSlab.take` allocates a slot for each value that outlives a run, and the shared segments, in which
`planner/host_slots.py` packs the values that live within a run.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import accumulate
from pathlib import Path
from typing import TYPE_CHECKING, Any
from weakref import ref

import numpy as np

from ..arrays import HostArray
from ..backend.device import Device, align
from ..errors import OutOfHostMemory, human_bytes

if TYPE_CHECKING:
    from .synced import SyncedMemory

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

    def take(self, sizes: Mapping[int, int]) -> dict[int, HostArray]:
        """Return a slot (uint8) for each key. sizes: its bytes.

        Raises:
            OutOfHostMemory: the limit would be exceeded; nothing was allocated.
        """
        self._check(sum(map(align, sizes.values())))
        return {key: slot for group in _groups(sizes) for key, slot in self._segment(group).items()}

    def rehouse(self, memories: Sequence[SyncedMemory], shared: Sequence[int] = ()) -> None:
        """Move the host copies of memories to slots, and grow the shared segments.

        A segment is allocated when those before it are filled. The pageable memory that their values had is free by
        then: the host needs room for all values and one segment, not for all values twice.

        Args:
            memories: managed; those with a host copy keep its value.
            shared: least bytes of each shared segment.

        Raises:
            OutOfHostMemory: the limit, or what the host has, would be exceeded. Nothing was allocated, unless somebody
                else has taken the host's memory since; then the values that have moved stay where they are now.
        """
        memories = sorted(memories, key=lambda memory: memory.host is None)  # those that free memory come first
        sizes = {k: memory.nbytes for k, memory in enumerate(memories)}
        small = self._too_small(shared)
        missing = sum(shared[k] - here for k, here in small.items())
        freed = sum(memory.nbytes for memory in memories if memory.host is not None)
        self._check(sum(map(align, sizes.values())) + missing, freed)
        for group in _groups(sizes):
            self._check(sum(map(align, group.values())))
            for k, slot in self._segment(group).items():
                memories[k].move_home(slot)
        self._check(missing)
        if any(small.values()):
            self.device.synchronize()  # wait for the last run's copies
        for k, here in small.items():
            if here:
                self.shared[k] = np.empty(0, np.uint8)  # free it before the larger one is allocated
            self.shared[k : k + 1] = [self.device.host_take(shared[k], pinned=True)]

    def _too_small(self, shared: Sequence[int]) -> dict[int, int]:
        """Return the bytes that shared segments have now, by index, of those that need more."""
        here = [raw.nbytes for raw in self.shared] + [0] * len(shared)
        return {k: here[k] for k, size in enumerate(shared) if size > here[k]}

    def _segment(self, sizes: Mapping[int, int]) -> dict[int, HostArray]:
        """Allocate one segment; return its slots by key."""
        raw = self.device.host_take(sum(map(align, sizes.values())), pinned=True)
        starts = accumulate(map(align, sizes.values()), initial=0)
        slots = {key: raw[start : start + size] for (key, size), start in zip(sizes.items(), starts, strict=False)}
        self._slots.append((ref(next(iter(slots.values())).base), raw.nbytes))
        return slots

    def _check(self, need: int, freed: int = 0) -> None:
        """Refuse what exceeds the limit. freed: bytes that the host gets back, which are not page-locked."""
        if self.limit is not None:
            free = self.limit - self.nbytes
        elif (available := available_host_bytes()) is not None:
            free = available + freed
        else:
            return
        if need > free:
            raise OutOfHostMemory(
                f"Large Model Support needs {human_bytes(self.nbytes + need)} of page-locked host memory, "
                f"{human_bytes(max(free, 0) + self.nbytes)} are there",
                needed=need,
                free=free,
                fix="lower batch_size, manage fewer buffers (larger -lms or -lms_frac), or, if the host has more "
                "memory than it reports, say so with -lms_host",
            )


def _groups(sizes: Mapping[int, int]) -> Iterator[dict[int, int]]:
    """Divide slots, given by key and bytes, among segments, in order."""
    group: dict[int, int] = {}
    room = 0
    for key, size in sizes.items():
        if group and room + align(size) > SEGMENT:
            yield group
            group, room = {}, 0
        group[key] = size
        room += align(size)
    if group:
        yield group
