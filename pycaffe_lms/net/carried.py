"""What layers carry from one forward to the next (recurrent states), read and set between two runs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np

from ..layers.base import Lives, Scratch
from ..memory.states import Ask
from ..memory.synced import SyncedMemory
from .net import Net


def read(net: Net) -> dict[tuple[str, str], np.ndarray]:
    """(layer, name of the buffer) -> a copy of its values."""
    found = {}
    for key, scratch, memory in _buffers(net):
        memory.ask(Ask.READ_CPU)
        found[key] = memory.host_array(scratch.shape, scratch.dtype).copy()
    return found


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
