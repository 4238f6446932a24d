"""Reads and sets recurrent states, the values that layers carry from one forward to the next, between two runs."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

import numpy as np

from ..layers.base import Lives, Scratch, count
from ..memory.states import Ask
from ..memory.synced import SyncedMemory
from .build.graph import Graph


class RecurrentStates:
    """Read and set the states of a graph's layers, by (layer, name of the scratch).

    memories: of the buffers of the graph, by id. A reshape makes new ones.
    """

    def __init__(self, graph: Graph, memories: Mapping[int, SyncedMemory]):
        self._graph, self._memories = graph, memories

    def read(self, copy: Callable[[SyncedMemory], np.ndarray] | None = None) -> dict[tuple[str, str], np.ndarray]:
        """Return a copy of every state. copy: returns the bytes of a memory; None: copied through the host."""
        return {
            key: (copy or _copy)(memory)[: count(s.shape) * s.dtype.itemsize].view(s.dtype).reshape(s.shape)
            for key, s, memory in self._buffers()
        }

    def memories(self) -> list[SyncedMemory]:
        """Return the memories that `read` reads."""
        return [memory for _, _, memory in self._buffers()]

    def shapes(self) -> dict[tuple[str, str], tuple[int, ...]]:
        """Return the shape of every state."""
        return {key: scratch.shape for key, scratch, _ in self._buffers()}

    def write(self, values: Mapping[tuple[str, str], np.ndarray]) -> None:
        """Set the states that `read` returned; one missing from `values` becomes zero, as before the first forward."""
        for key, scratch, memory in self._buffers():
            memory.ask(Ask.OVERWRITE_CPU)
            memory.host_array(scratch.shape, scratch.dtype)[...] = values.get(key, 0)

    def _buffers(self) -> Iterator[tuple[tuple[str, str], Scratch, SyncedMemory]]:
        for node in self._graph.nodes:
            for scratch in node.layer.scratches.values():
                if scratch.lives is Lives.STATE:
                    yield (node.name, scratch.name), scratch, self._memories[node.scratch[scratch.name]]


def _copy(memory: SyncedMemory) -> np.ndarray:
    memory.ask(Ask.READ_CPU)
    return memory.host_bytes.copy()
