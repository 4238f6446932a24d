"""What layers carry from one forward to the next (recurrent states), read and set between two runs."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

import numpy as np

from ..layers.base import Lives, Scratch, count
from ..memory.states import Ask
from ..memory.synced import SyncedMemory
from .net import Net


def read(net: Net, copy: Callable[[SyncedMemory], np.ndarray] | None = None) -> dict[tuple[str, str], np.ndarray]:
    """(layer, name of the buffer) -> a copy of its values. copy: makes one, as bytes, in place of the usual way."""
    return {
        key: (copy or _copy)(memory)[: count(s.shape) * s.dtype.itemsize].view(s.dtype).reshape(s.shape)
        for key, s, memory in _buffers(net)
    }


def _copy(memory: SyncedMemory) -> np.ndarray:
    memory.ask(Ask.READ_CPU)
    return memory.host[: memory.nbytes].copy()


def memories(net: Net) -> list[SyncedMemory]:
    """The buffers that `read` reads."""
    return [memory for _, _, memory in _buffers(net)]


def shapes(net: Net) -> dict[tuple[str, str], tuple[int, ...]]:
    """(layer, name of the buffer) -> its shape."""
    return {key: scratch.shape for key, scratch, _ in _buffers(net)}


def write(net: Net, values: Mapping[tuple[str, str], np.ndarray]) -> None:
    """Set what `read` returned; what is not in `values` becomes zero, as before the first forward."""
    for key, scratch, memory in _buffers(net):
        memory.ask(Ask.OVERWRITE_CPU)
        memory.host_array(scratch.shape, scratch.dtype)[...] = values.get(key, 0)


def _buffers(net: Net) -> Iterator[tuple[tuple[str, str], Scratch, SyncedMemory]]:
    for node in net.graph.nodes:
        for scratch in node.layer.scratches.values():
            if scratch.lives is Lives.STATE:
                yield (node.name, scratch.name), scratch, net.memory.memories[node.scratch[scratch.name]]
