"""Versions of a blob: what layers made in place, in memory of its own, of one name."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np

from ..blob import Blob, host_view
from ..memory.states import Ask, State
from ..memory.synced import SyncedMemory
from .graph import Graph, Value


class Versions:
    """Of the blobs of a net: which version each shows, `shown`, by the id of its value. start, end: first and last
    layer of a forward. What they touch is found once, for a solver's iterations are short on small batches."""

    def __init__(self, graph: Graph, blobs: Mapping[str, Blob], memory_of: Callable[[int], SyncedMemory], dtype):
        self._graph, self._blobs, self._memory_of, self._dtype = graph, blobs, memory_of, dtype
        self.shown = dict(graph.last)
        places: dict[str, set[int]] = {}
        for value in graph.values:
            places.setdefault(value.name, set()).add(value.data)
        self._several = {name for name, data in places.items() if len(data) > 1}
        self._read: dict[tuple[int, int], list[Value]] = {}
        self._made: dict[tuple[int, int], list[Value]] = {}

    def bring(self, start: int, end: int) -> None:
        """Before a forward: what a blob shows is what its next reader gets, as if versions shared memory."""
        if (start, end) not in self._read:
            self._read[start, end] = self._read_first(start, end)
        for value in self._read[start, end]:
            self._bring(self._graph.values[self.shown.get(value.name, value.id)], value)

    def show(self, start: int, end: int) -> None:
        """After a forward: blobs show the versions that it made last."""
        if (start, end) not in self._made:
            tops = [self._graph.values[t] for node in self._graph.nodes[start : end + 1] for t in node.tops]
            last = {v.name: v for v in tops if v.name in self._several and v.name in self._blobs}
            self._made[start, end] = list(last.values())
        for value in self._made[start, end]:
            self.shown[value.name] = value.id
            blob = self._blobs[value.name]
            blob.data_memory, blob.data_last = self._memory_of(value.data), value.channels_last

    def _read_first(self, start: int, end: int) -> list[Value]:
        """What these layers read that they do not make before, of blobs with several versions."""
        made: set[int] = set()
        read = []
        for node in self._graph.nodes[start : end + 1]:
            values = (self._graph.values[b] for b in node.bottoms if b not in made)
            read += [value for value in values if value.name in self._several]
            if not node.layer.is_net_input:
                made.update(t for j, t in enumerate(node.tops) if node.layer.rewrites(j))
        return read

    def _bring(self, shown: Value, wanted: Value) -> None:
        if shown.data == wanted.data:
            return
        source, target = (self._memory_of(v.data) for v in (shown, wanted))
        if source.state is State.UNINITIALIZED:
            return
        source.ask(Ask.READ_CPU)
        target.ask(Ask.OVERWRITE_CPU)
        np.copyto(
            host_view(target, wanted.shape, self._dtype, wanted.channels_last),
            host_view(source, shown.shape, self._dtype, shown.channels_last),
        )
