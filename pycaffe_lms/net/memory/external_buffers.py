"""Adds external buffers to a net's memory: a solver's histories, which outlive a reshape, and those of another net.

See also: `net_memory.py`, whose base class this is.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from ...backend.device import Device, align
from ...lms.managed import Managed
from ...lms.program import Buffer
from ...lms.runtime.runtime import Runtime
from ...memory.split_memory import SplitMemory
from ...memory.synced import SyncedMemory
from ..passes.micro_batch import WIDENED

EXTRA = 1 << 20  # the first id of external buffers, above all of the graph's, so that a reshape keeps them


class ExternalBuffers:
    """Add, drop and share the buffers of a `NetMemory` that are not its graph's."""

    runtime: Runtime
    device: Device
    buffers: dict[int, Buffer]
    memories: dict[int, SyncedMemory]
    split_memories: list[SplitMemory]
    _extras: dict[int, bool | None]  # `manage` of each external buffer, by id
    _shared: dict[int, SyncedMemory]
    _used: set[int]
    _managed: Managed
    _plans: dict

    def shown(self, b: int) -> SyncedMemory:
        """Return the memory of a buffer as users see it: in the net's type, also if it is stored as bfloat16."""
        return self.memories.get(WIDENED + b, self.memories[b])

    def extras(self) -> list[int]:
        """Return the ids of the buffers that `add` made."""
        return list(self._extras)

    def add(self, name: str, nbytes: int, *, manage: bool | None = None) -> int:
        """Add an external buffer (a solver's history), which a reshape keeps, and return its id. Forgets plans.

        manage: whether LMS manages it; None: by its size, as other buffers.
        """
        b = max(self._extras, default=EXTRA - 1) + 1
        self._register(Buffer(b, name, max(align(nbytes), align(1))), SyncedMemory(nbytes, name, self.device), manage)
        self.runtime.make_room()
        return b

    def drop(self, ids: Iterable[int]) -> None:
        """Drop external buffers and their values. Forgets plans."""
        for b in ids:
            nbytes = self.buffers.pop(b).nbytes
            resident = 0 if b in self._managed.ids or self.device.is_host else nbytes
            dropped = Managed(frozenset({b}), resident, 0 if self.device.is_host else nbytes)
            self.runtime.unregister(dropped)
            self._managed = Managed(
                self._managed.ids - dropped.ids,
                self._managed.resident_bytes - dropped.resident_bytes,
                self._managed.demanded - dropped.demanded,
            )
            self._used.discard(b)
            del self._extras[b]
            self.memories.pop(b).give_back()
        self._plans.clear()

    def _take_over(self, old: ExternalBuffers) -> None:
        """Take over the external and shared buffers of the memory that this one replaces."""
        for b, manage in old._extras.items():
            self._register(old.buffers[b], old.memories[b], manage)
        theirs = {old.buffers[b].name: memory for b, memory in old._shared.items()}
        for b, buffer in list(self.buffers.items()):
            if buffer.name in theirs:
                self.share(b, theirs[buffer.name])

    def _register(self, buffer: Buffer, memory: SyncedMemory, manage: bool | None) -> None:
        self.buffers[buffer.id], self.memories[buffer.id] = buffer, memory
        self._extras[buffer.id] = manage
        if self.runtime.keeps_params():
            manage = False
        managed = self.runtime.register([buffer], None if manage is None else {buffer.id: manage})
        if bool(managed.ids) is not memory.managed:
            memory.manage(bool(managed.ids))
        self._managed = Managed(
            self._managed.ids | managed.ids,
            self._managed.resident_bytes + managed.resident_bytes,
            self._managed.demanded + managed.demanded,
        )
        self._used.add(buffer.id)
        self._plans.clear()

    def share(self, mine: int, theirs: SyncedMemory) -> None:
        """Use another net's memory for a buffer. Forgets plans."""
        if self.memories[mine] is not theirs:
            if not (self.device.is_host or self.memories[mine].managed) and mine in self._used:
                nbytes = self.buffers[mine].nbytes
                self.runtime.resident_bytes -= nbytes
                self._managed = replace(self._managed, resident_bytes=self._managed.resident_bytes - nbytes)
            self.memories[mine] = self._shared[mine] = theirs
            self._plans.clear()

    def share_whole(self, mine: int, theirs: SplitMemory) -> None:
        """Use another net's split memory for a value whose buffers were all shared. Forgets plans."""
        self.split_memories = [theirs if memory is self.memories[mine] else memory for memory in self.split_memories]
        self.memories[mine] = theirs
        self._plans.clear()
