"""Where a solver's histories lie: as its parameters do, in one buffer each, or in one for each block of outputs."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from ..blob import Blob
from ..layers.base import count
from ..memory.split_memory import SplitMemory
from ..memory.synced import SyncedMemory
from ..net.build.graph import Param
from ..net.memory.fit import move_value
from ..net.net import Net

Slots = tuple[int, ...]  # buffers of one piece of a parameter, one for each history


class Histories:
    """slots: histories of each parameter. A net whose parameters lie otherwise than before is followed by `follow`."""

    def __init__(self, net: Net, slots: int):
        self._net, self._slots = net, slots
        self._of: dict[int, list[Slots]] = {}  # by parameter, for each of its pieces
        self._sizes: dict[int, list[int]] = {}
        self._last: dict[int, bool] = {}  # by parameter: whether they are stored channels-last, as it was

    def follow(self, params: Iterable[Param]) -> bool:
        """Let these parameters, and no others, have histories, which keep their values. Returns whether any had to be
        laid out; then the net's plans are forgotten."""
        wanted = {p.index: p for p in params}
        sizes = {i: [count(piece.shape) for piece in self._net.arrangement.pieces(p)] for i, p in wanted.items()}
        changed = [i for i in sizes if self._sizes.get(i) != sizes[i]]
        for i in changed:
            before = [self._memory(i, slot) for slot in range(self._slots)] if i in self._of else []
            old = self._of.get(i, [])
            self._of[i] = self._add(wanted[i], sizes[i])
            for slot, memory in enumerate(before):
                now = self._memory(i, slot)
                move_value(memory, now)
                if isinstance(now, SplitMemory):
                    now.hand_on()
            self._net.memory.store.drop(b for slots in old for b in slots)
        self._sizes |= sizes
        for i, p in wanted.items():
            if self._last.setdefault(i, p.channels_last) != p.channels_last:
                self._turn(p)
        return bool(changed)

    def _turn(self, param: Param) -> None:
        """Store a parameter's histories in its order of now."""
        before = [self.blob(param, slot).read_data().copy() for slot in range(self._slots)]
        self._last[param.index] = param.channels_last
        for slot, values in enumerate(before):
            blob = self.blob(param, slot)
            blob.data = values
            hand_on(blob)

    def _add(self, param: Param, sizes: Sequence[int]) -> list[Slots]:
        net, item = self._net, self._net.dtype.itemsize
        name = f"{net.graph.nodes[param.node].name}.param{param.position}"
        blocks = [f" [{j + 1}/{len(sizes)}]" if len(sizes) > 1 else "" for j in range(len(sizes))]
        manage = True if len(sizes) > 1 and sum(sizes) * item > net.runtime.config.min_bytes else None
        return [
            tuple(
                net.memory.store.add(f"{name}{block}.history{slot or ''}", n * item, manage=manage)
                for slot in range(self._slots)
            )
            for block, n in zip(blocks, sizes, strict=True)
        ]

    def pieces(self, params: Iterable[Param]) -> Iterator[tuple[Param, Slots]]:
        """What is updated by itself, in order: a parameter or a block of one, and its histories."""
        for p in params:
            yield from zip(self._net.arrangement.pieces(p), self._of[p.index], strict=True)

    def blob(self, param: Param, slot: int) -> Blob | None:
        """A history as a whole, on the host; None where the parameter has none. What is written to one in blocks counts
        from `hand_on` on."""
        if param.index not in self._of:
            return None
        memory = self._memory(param.index, slot)
        last = self._last[param.index]
        return Blob(memory.name, param.shape, self._net.dtype, (memory, None), channels_last=last)

    def _memory(self, index: int, slot: int) -> SyncedMemory:
        memories = [self._net.memory.memories[slots[slot]] for slots in self._of[index]]
        if len(memories) == 1:
            return memories[0]
        return SplitMemory(memories[0].name.replace(f" [1/{len(memories)}]", ""), self._net.device, memories)


def hand_on(blob: Blob) -> None:
    """Let what was written to a history count."""
    if isinstance(blob.data_memory, SplitMemory):
        blob.data_memory.hand_on()
