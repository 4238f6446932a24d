"""The host side of managed buffers: page-locked memory taken once, before the loop, in a few large segments."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from weakref import ref

import numpy as np

from ..backend.device import align
from ..errors import OutOfHostMemory, human_bytes

SEGMENT = 1 << 30  # a copy must not cross two registrations, so a slot lies in one segment


def available_host_bytes() -> int | None:
    """What the host can still give: MemAvailable, or less where a control group says so. None if unknown."""
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
        pass  # no control group, or none that limits memory: MemAvailable stands
    return min(found) if found else None


class HostSlab:
    """Slots of page-locked memory, and segments that plans share. `limit`: most bytes it may take in all; None: what
    the host has available. shared: the segments; nothing in them outlives a run. A segment of slots goes back when the
    last array over one of them is gone, so buffers of shapes that a net had once hold nothing."""

    def __init__(self, device, limit: int | None = None):
        self.device = device
        self.limit = limit
        self._slots: list[tuple[ref, int]] = []  # what the slots of a segment keep alive, and its bytes
        self.shared: list[np.ndarray] = []

    @property
    def segment(self) -> int:
        """Bytes of a block, unless one slot is larger."""
        return SEGMENT

    def _segments(self) -> list[int]:
        """Bytes of those that are in use."""
        self._slots = [(owner, nbytes) for owner, nbytes in self._slots if owner() is not None]
        return [nbytes for _, nbytes in self._slots]

    @property
    def nbytes(self) -> int:
        """Of all blocks."""
        return sum(self._segments()) + self.shared_bytes

    @property
    def segments(self) -> int:
        """How many blocks there are."""
        return len(self._segments()) + len(self.shared)

    @property
    def shared_bytes(self) -> int:
        """Of the shared segments."""
        return sum(raw.nbytes for raw in self.shared)

    def close(self) -> None:
        """Forget the segments: each goes back when the last slot of it is gone."""
        self._slots.clear()
        self.shared.clear()

    def take(self, sizes: Mapping[int, int], shared: Sequence[int] = ()) -> dict[int, np.ndarray]:
        """A slot for each key, of at least its bytes; and see that the shared segments have at least `shared` bytes.
        Raises OutOfHostMemory before anything is taken if the limit would be passed."""
        here = [raw.nbytes for raw in self.shared] + [0] * len(shared)
        small = [k for k, size in enumerate(shared) if size > here[k]]
        need = sum(align(size) for size in sizes.values())
        self._check(need + sum(shared[k] - here[k] for k in small))
        if any(here[k] for k in small):
            self.device.synchronize()  # the last run's copies
        for k in small:
            if here[k]:
                self.shared[k] = np.empty(0, np.uint8)  # goes back before the larger one is taken
            self.shared[k : k + 1] = [self.device.host_take(shared[k], pinned=True)]
        slots: dict[int, np.ndarray] = {}
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

    def shared_slot(self, segment: int, offset: int, nbytes: int) -> np.ndarray:
        """Part of a shared segment."""
        return self.shared[segment][offset : offset + nbytes]

    def _segment(self, keys: list[int], sizes: Mapping[int, int], slots: dict[int, np.ndarray]) -> None:
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
