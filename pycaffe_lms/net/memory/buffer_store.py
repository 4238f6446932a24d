"""Owns the memory of a net's buffers: one SyncedMemory each, of which Large Model Support manages some.

Besides the buffers of the graph there are external ones, a solver's histories, which a reshape keeps, and buffers whose
memory is another net's.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from ...backend.device import align
from ...errors import OutOfDeviceMemory
from ...layers.base import Lives, Runs
from ...lms.managed import Managed
from ...lms.program import Buffer, BufferId, BufferKind, buffer_id, kind_of
from ...lms.runtime.runtime import Runtime
from ...memory import exported_views
from ...memory.split_memory import SplitMemory
from ...memory.synced import SyncedMemory
from ..build.graph import Graph
from ..program.buffers import makers
from .choice import MemoryChoice


def hand_on(memories: Sequence[SplitMemory]) -> None:
    """Copy what the user wrote to split values into the buffers that store them."""
    exported_views.before_run(memories, ())
    for memory in memories:
        memory.hand_on()


class BufferStore:
    """Make the memory of a net's buffers, add external ones, share and release it.

    It is the memory owner by which errors name the net.

    Attributes:
        buffers, memories: every buffer and its memory, by id; `memories` also has the split memories.
        split: the split memory of every value that several buffers store, or one as bfloat16.
        version: a number that changes whenever plans made before no longer fit the buffers.

    Args:
        old: the store that this one replaces after a reshape. Values, parameters and kept scratch whose size in bytes
            is unchanged carry over.
        file: the prototxt, for errors.
    """

    def __init__(self, graph: Graph, choice: MemoryChoice, runtime: Runtime, old: BufferStore | None, file: str | None):
        self.name, self._file = graph.name, file
        self._graph, self._choice, self._runtime, self._device = graph, choice, runtime, runtime.device
        table = choice.table
        self.buffers: dict[int, Buffer] = {buffer.id: buffer for buffer in table.buffers}
        self.memories: dict[int, SyncedMemory] = {}
        self.split: list[SplitMemory] = []
        self.version = 0
        self._external: dict[int, bool | None] = {}  # whether LMS manages each; None: by its size
        self._shared: dict[int, SyncedMemory] = {}
        self._used = set(choice.used)
        kept = old.carry() if old is not None else {}
        for buffer, nbytes in zip(table.buffers, table.used_bytes, strict=True):
            memory = kept.get(buffer.name)
            if memory is None or memory.nbytes != nbytes:
                memory = SyncedMemory(nbytes, buffer.name, self._device)
            else:
                del kept[buffer.name]
            self.memories[buffer.id] = memory
        for memory in kept.values():  # their size changed
            memory.give_back()
        own = (b for b in table.buffers if b.id in choice.used and b.id not in choice.packed)
        self._managed = runtime.register(own, choice.asked)
        managed = self.managed_ids | choice.by_hand | choice.packed | choice.dropped  # all that a program may discard
        for b in self.buffers:
            self.memories[b].manage(b in managed)
        self._pin_host_sources()

    def take_over(self, old: BufferStore | None) -> None:
        """Take over the external and shared buffers of the store that this one replaces; make split memories."""
        if old is not None:
            for b, manage in old._external.items():
                self._register(old.buffers[b], old.memories[b], manage)
            theirs = {old.buffers[b].name: memory for b, memory in old._shared.items()}
            for b, buffer in list(self.buffers.items()):
                if buffer.name in theirs:
                    self.share(b, theirs[buffer.name])
        before = {memory.name: memory for memory in (old.split if old is not None else ())}
        for value in self._choice.split_values:
            parts = tuple(self.memories[b] for b in value.buffers)
            memory = before.get(value.name)
            if memory is None or (memory.parts, memory.outer) != (parts, value.outer):
                memory = SplitMemory(value.name, self._device, parts, half=value.half, outer=value.outer)
            self.memories[value.id] = memory
            self.split.append(memory)

    def _pin_host_sources(self) -> None:
        for node in self._graph.nodes:
            on_host = node.layer.declares.runs_on is Runs.HOST
            scratches, finished = node.layer.scratches.values(), node.layer.finished_tops()
            sources = [node.scratch[s.name] for s in scratches if s.lives is Lives.MADE]
            for j, t in enumerate(node.tops):
                if (on_host and j not in finished) or not node.layer.rewrites(j):
                    sources.append(self._graph.values[t].data)
            for b in sources:
                self.memories[b].pinned = True

    # -- what there is ----------------------------------------------------------------------------------------------
    @property
    def managed_ids(self) -> frozenset[int]:
        """Return the ids of the buffers that Large Model Support manages."""
        return self._managed.ids | self._choice.by_hand

    @property
    def packed(self) -> frozenset[int]:
        """Return the ids of the buffers that share one arena because LMS is off and their live ranges are short."""
        return self._choice.packed

    @property
    def dropped(self) -> frozenset[int]:
        """Return the ids of the buffers whose values a solver's iteration does not make."""
        return self._choice.dropped

    @property
    def external(self) -> list[int]:
        """Return the ids of the external buffers."""
        return list(self._external)

    @property
    def call_scratch(self) -> frozenset[int]:
        """Return the ids of buffers whose content never outlives a step."""
        return frozenset(b for b, buffer in self.buffers.items() if buffer.call_scratch)

    @property
    def unmanaged_call_scratch(self) -> set[int]:
        """Return the ids of call scratch that uses the shared workspace."""
        return set((self.call_scratch & self._used) - self.managed_ids)

    def managed(self) -> dict[int, Buffer]:
        """Return the buffers whose device memory plans control, by id."""
        return {b: buffer for b, buffer in self.buffers.items() if self.memories[b].managed}

    def shown(self, b: int) -> SyncedMemory:
        """Return the memory of a buffer as users see it: in the net's type, also if it is stored as bfloat16."""
        return self.memories.get(buffer_id(BufferKind.WIDENED, b), self.memories[b])

    def resident_listing(self, *, own: bool = False) -> list[tuple[str, int]]:
        """Return (layer, bytes) of every resident buffer, in creation order. own: leave out those of another net."""
        layers = makers(self._graph)
        return [
            (layers.get(b.id, b.name.split(".")[0]), b.nbytes)
            for b in self.buffers.values()
            if b.id in self._used and not b.call_scratch and not self.memories[b.id].managed
            if not (own and b.id in self._shared)
        ]

    def place(self, error: OutOfDeviceMemory, layer: str) -> OutOfDeviceMemory:
        """Return the error with the layer's place in this net's prototxt."""
        return self._graph.place(error.at(layer=layer), self._file)

    # -- external and shared buffers --------------------------------------------------------------------------------
    def add(self, name: str, nbytes: int, *, manage: bool | None = None) -> BufferId:
        """Add an external buffer (a solver's history), which a reshape keeps, and return its id.

        manage: whether LMS manages it; None: by its size, as other buffers.
        """
        b = BufferId(max(self._external, default=buffer_id(BufferKind.EXTERNAL, 0) - 1) + 1)
        self._register(Buffer(b, name, max(align(nbytes), align(1))), SyncedMemory(nbytes, name, self._device), manage)
        self._runtime.make_room()
        return b

    def drop(self, ids: Iterable[int]) -> None:
        """Drop external buffers and their values."""
        for b in ids:
            nbytes = self.buffers.pop(b).nbytes
            on_device = 0 if self._device.is_host else nbytes
            dropped = Managed(frozenset({b}), 0 if b in self._managed.ids else on_device, on_device)
            self._runtime.unregister(dropped)
            self._managed = self._managed.without(dropped)
            self._used.discard(b)
            del self._external[b]
            self.memories.pop(b).give_back()
        self.version += 1

    def share(self, mine: int, theirs: SyncedMemory) -> None:
        """Use another net's memory for a buffer."""
        if self.memories[mine] is not theirs:
            if not (self._device.is_host or self.memories[mine].managed) and mine in self._used:
                nbytes = self.buffers[mine].nbytes
                self._runtime.resident_bytes -= nbytes
                self._managed = self._managed.without(Managed(frozenset(), nbytes, 0))
            self.memories[mine] = self._shared[mine] = theirs
            self.version += 1

    def share_whole(self, mine: int, theirs: SplitMemory) -> None:
        """Use another net's split memory for a value whose buffers were all shared."""
        self.split = [theirs if memory is self.memories[mine] else memory for memory in self.split]
        self.memories[mine] = theirs
        self.version += 1

    def _register(self, buffer: Buffer, memory: SyncedMemory, manage: bool | None) -> None:
        self.buffers[buffer.id], self.memories[buffer.id] = buffer, memory
        self._external[buffer.id] = manage
        if self._runtime.keeps_params() or buffer.name.rpartition(".")[0] in self._choice.first_params:
            manage = False
        managed = self._runtime.register([buffer], None if manage is None else {buffer.id: manage})
        if bool(managed.ids) is not memory.managed:
            memory.manage(bool(managed.ids))
        self._managed = self._managed.joined_by(managed)
        self._used.add(buffer.id)
        self.version += 1

    # -- after a reshape --------------------------------------------------------------------------------------------
    def forget_values(self, ids: Iterable[int]) -> None:
        """Drop the values of these buffers, where they have one, with their device memory."""
        for b in ids:
            self.memories[b].forget()
        for memory in self.split:
            memory.follow()

    def carry(self) -> dict[str, SyncedMemory]:
        """Return, by buffer name, the memory that a reshaped net may reuse: its own, except for call scratch."""
        left = self.call_scratch | self._shared.keys()
        graph_ids = (b for b in self.buffers if kind_of(b) is BufferKind.GRAPH and b not in left)
        return {self.buffers[b].name: self.memories[b] for b in graph_ids}

    def release(self) -> None:
        """Release managed call scratch, which a reshaped net does not reuse, and unregister from the runtime."""
        shared = self.unmanaged_call_scratch
        self._runtime.unregister(self._managed)
        self._runtime.memory_owners.leave(self)
        for b in self.call_scratch - shared:
            self.memories[b].give_back()
