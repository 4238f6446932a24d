"""Owns the blobs of a net: what users see of its values, gradients and parameters.

Blobs outlive a reshape: the objects that a user keeps are pointed at the net's new memory.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np

from ..blob import Blob
from ..memory.exported_views import alive
from ..memory.states import Ask, State
from ..memory.synced import SyncedMemory
from ..vectors import NetBlobVec
from .build.graph import Graph, Param
from .inspect.named import Named
from .memory.buffer_store import BufferStore
from .memory.versions import Versions


class NetBlobs:
    """Make the blobs of a net and follow its memory.

    Attributes:
        blobs: blob name -> Blob. params: layer name -> its parameters.
        versions: which version of its value every blob shows.
        reshaped: whether a user changed the shape of a blob since the last `follow`.
        reads: (blob, "data" or "diff") that a user asked for, since somebody cleared it.
    """

    def __init__(self, graph: Graph, dtype: np.dtype, store: BufferStore):
        self._graph, self._dtype = graph, dtype
        self._params: dict[int, Blob] = {}
        self.blobs: Named[Blob] = Named(net=graph.name, kind="blob", of=Blob)
        self.reshaped = False
        self.reads: set[tuple[str, str]] = set()
        self._point_at(store, None)

    def follow(self, store: BufferStore) -> None:
        """Point all blobs at new memory, after the net was reshaped."""
        kept = self.blobs
        self.blobs = Named(net=self._graph.name, kind="blob", of=Blob)
        self.reshaped = False
        self._point_at(store, self.versions)
        for name, blob in self.blobs.items():
            mine = kept.get(name)
            if mine is not None:
                mine.take_over(blob)
                self.blobs[name] = mine

    def _point_at(self, store: BufferStore, before: Versions | None) -> None:
        graph, self._store = self._graph, store
        for name, v in graph.last.items():
            value = graph.values[v]
            pair, last = (store.shown(value.data), store.shown(value.diff)), value.channels_last
            shape, told = value.shape, (self._on_reshape, last, self._on_read)
            self.blobs[name] = Blob(name, shape, self._dtype, pair, *told)
        self.params: Named[NetBlobVec] = Named(net=graph.name, kind="layer with parameters", of=NetBlobVec)
        for node in graph.nodes:
            node.layer.blobs = NetBlobVec(self._lasting(graph.params[p]) for p in node.params)
            if node.params:
                self.params[node.name] = node.layer.blobs
        self.versions = Versions(graph, self.blobs, store.shown, self._dtype, before)
        for value in graph.values:
            if value.loss_weight:
                pair = store.memories[value.data], store.memories[value.diff]
                Blob(value.name, value.shape, self._dtype, pair).diff = value.loss_weight

    def _lasting(self, param: Param) -> Blob:
        """Return the Blob of a parameter; the same object after every reshape, pointed at the current memory."""
        now = self.of_param(param)
        blob = self._params.setdefault(param.index, now)
        blob.take_over(now)
        return blob

    def of_param(self, param: Param) -> Blob:
        """Return a new Blob of a parameter's current data and diff memory."""
        name = f"{self._graph.nodes[param.node].name}[{param.position}]"
        pair = self._store.memories[param.data], self._store.memories[param.diff]
        return Blob(name, param.shape, self._dtype, pair, channels_last=param.channels_last)

    def __iter__(self) -> Iterator[Blob]:
        """Yield all blobs, then all parameters."""
        yield from self.blobs.values()
        for vector in self.params.values():
            yield from vector

    @contextmanager
    def moved(self) -> Iterator[None]:
        """Within, the net may get other memory: move all values to it afterwards, and NumPy views of them."""
        before = [(blob, _memories(blob)) for blob in self]
        for _, memories in before:
            for memory in memories:
                if memory.state is State.HEAD_AT_GPU:
                    memory.ask(Ask.READ_CPU)  # the device copy is about to be released
        yield
        for blob, memories in before:
            for old, new in zip(memories, _memories(blob), strict=True):
                move_value(old, new)

    def _on_read(self, blob: Blob, which: str) -> None:
        self.reads.add((blob.name, which))

    def _on_reshape(self, blob: Blob, shape: tuple[int, ...]) -> None:
        """Give all versions of a blob memory of the new shape; other shapes follow when the net is reshaped."""
        versions = [v for v in self._graph.values if v.name == blob.name]
        if versions[0].shape == shape:
            return
        nbytes, memories = math.prod(shape) * self._dtype.itemsize, self._store.memories
        for b in {b for v in versions for b in (v.data, v.diff)}:
            memory = memories[b]
            if memory.nbytes != nbytes:
                memory.give_back()
                memories[b] = SyncedMemory(nbytes, memory.name, memory.device, pinned=memory.pinned)
        self.versions.reshaped(blob, memories)
        for value in versions:
            value.shape = shape
        self.reshaped = True


def _memories(blob: Blob) -> tuple[SyncedMemory, SyncedMemory]:
    """Return the memory of a blob's data and of its gradient."""
    assert blob.diff_memory is not None, "every blob of a net has one"
    return blob.data_memory, blob.diff_memory


def move_value(old: SyncedMemory, new: SyncedMemory) -> None:
    """Move the value of one memory to another of the same size, with the NumPy views of it."""
    if old is new or old.nbytes != new.nbytes or old.state in (State.UNINITIALIZED, State.DISCARDED):
        return
    old.ask(Ask.WRITE_CPU if alive(old.host_held) else Ask.READ_CPU)
    if alive(old.host_held) and new.host is None and not old.locked:
        new.host, new.host_held = old.host, old.host_held
    new.ask(Ask.OVERWRITE_CPU)
    if new.host is not old.host:
        new.host_bytes[:] = old.host_bytes
