"""Reads and sets recurrent states, the values that layers carry from one forward to the next, between two runs."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

import numpy as np

from ..layers.base import Lives, Scratch, count
from ..memory.states import Ask
from ..memory.synced import SyncedMemory
from .net import Net


def read(net: Net, copy: Callable[[SyncedMemory], np.ndarray] | None = None) -> dict[tuple[str, str], np.ndarray]:
    """Return a copy of every recurrent state by (layer, name of the scratch).

    copy: returns the bytes of a memory; None: copied through the host.
    """
    return {
        key: (copy or _copy)(memory)[: count(s.shape) * s.dtype.itemsize].view(s.dtype).reshape(s.shape)
        for key, s, memory in _buffers(net)
    }


def _copy(memory: SyncedMemory) -> np.ndarray:
    memory.ask(Ask.READ_CPU)
    return memory.host_bytes.copy()


def memories(net: Net) -> list[SyncedMemory]:
    """Return the memories that `read` reads."""
    return [memory for _, _, memory in _buffers(net)]


def shapes(net: Net) -> dict[tuple[str, str], tuple[int, ...]]:
    """Return the shape of every recurrent state by (layer, name of the scratch)."""
    return {key: scratch.shape for key, scratch, _ in _buffers(net)}


def write(net: Net, values: Mapping[tuple[str, str], np.ndarray]) -> None:
    """Set the states that `read` returned; a state missing from `values` becomes zero, as before the first forward."""
    for key, scratch, memory in _buffers(net):
        memory.ask(Ask.OVERWRITE_CPU)
        memory.host_array(scratch.shape, scratch.dtype)[...] = values.get(key, 0)


def _buffers(net: Net) -> Iterator[tuple[tuple[str, str], Scratch, SyncedMemory]]:
    for node in net.graph.nodes:
        for scratch in node.layer.scratches.values():
            if scratch.lives is Lives.STATE:
                yield (node.name, scratch.name), scratch, net.memory.memories[node.scratch[scratch.name]]
