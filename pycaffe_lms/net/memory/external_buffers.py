"""Buffers of a net's memory that are not of its graph: a solver's, which outlast a reshape, and another net's.

See also: `memory.py`, whose base this is.
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

EXTRA = 1 << 20  # ids of buffers that are not the net's own start here, so that they survive a reshape


class ExternalBuffers:
    """See `memory.NetMemory`."""

    runtime: Runtime
    device: Device
    buffers: dict[int, Buffer]
    memories: dict[int, SyncedMemory]
    parted: list[SplitMemory]
    _extras: dict[int, bool | None]  # by id, what was asked of them
    _shared: dict[int, SyncedMemory]
    _used: set[int]
    _managed: Managed
    _plans: dict

    def shown(self, b: int) -> SyncedMemory:
        """The memory of a buffer as users see it: in the net's type."""
        return self.memories.get(WIDENED + b, self.memories[b])

    def extras(self) -> list[int]:
        """Ids of the buffers that `add` made."""
        return list(self._extras)

    def add(self, name: str, nbytes: int, *, manage: bool | None = None) -> int:
        """A further buffer (solver history); managed like the others, or as `manage` says, and kept over a reshape.
        Forgets plans."""
        b = max(self._extras, default=EXTRA - 1) + 1
        self._adopt(Buffer(b, name, max(align(nbytes), align(1))), SyncedMemory(nbytes, name, self.device), manage)
        self.runtime.make_room()
        return b

    def drop(self, ids: Iterable[int]) -> None:
        """Forget further buffers, and what they hold. Forgets plans."""
        for b in ids:
            nbytes = self.buffers.pop(b).nbytes
            stays = 0 if b in self._managed.ids or self.device.is_host else nbytes
            gone = Managed(frozenset({b}), stays, 0 if self.device.is_host else nbytes)
            self.runtime.unregister(gone)
            self._managed = Managed(
                self._managed.ids - gone.ids,
                self._managed.resident_bytes - gone.resident_bytes,
                self._managed.demanded - gone.demanded,
            )
            self._used.discard(b)
            del self._extras[b]
            self.memories.pop(b).give_back()
        self._plans.clear()

    def _take_on(self, old: ExternalBuffers) -> None:
        """All of the memory that this replaces."""
        for b, manage in old._extras.items():
            self._adopt(old.buffers[b], old.memories[b], manage)
        theirs = {old.buffers[b].name: memory for b, memory in old._shared.items()}
        for b, buffer in list(self.buffers.items()):
            if buffer.name in theirs:
                self.share(b, theirs[buffer.name])

    def _adopt(self, buffer: Buffer, memory: SyncedMemory, manage: bool | None) -> None:
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
        """Let a buffer be another net's memory."""
        if self.memories[mine] is not theirs:
            if not (self.device.is_host or self.memories[mine].managed) and mine in self._used:
                nbytes = self.buffers[mine].nbytes
                self.runtime.resident_bytes -= nbytes
                self._managed = replace(self._managed, resident_bytes=self._managed.resident_bytes - nbytes)
            self.memories[mine] = self._shared[mine] = theirs
            self._plans.clear()

    def share_whole(self, mine: int, theirs: SplitMemory) -> None:
        """Let a value in several buffers, each of which was shared, be another net's."""
        self.parted = [theirs if memory is self.memories[mine] else memory for memory in self.parted]
        self.memories[mine] = theirs
        self._plans.clear()
