"""Keeps the buffers of a solver's histories: one for each parameter and slot, or for each block of its outputs.

`Histories` follows a net whose parameters get other blocks or another storage order; values are kept.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from ...blob import Blob
from ...errors import GraphError
from ...layers.base import count
from ...lms.program import BufferId
from ...memory.split_memory import SplitMemory
from ...memory.synced import SyncedMemory
from ...net.blobs import move_value
from ...net.build.graph import Param
from ...net.net import Net
from .sharing import Shares

Slots = tuple[BufferId, ...]  # buffers of the histories of a parameter, or of one block of it, slot by slot


class Histories:
    """Own the histories of a net's parameters.

    Args:
        slots: number of histories of each.
        kind: the name of one.
        shares: of which this rank keeps its own; None: it keeps all. Then blocks and storage orders must stay.
    """

    def __init__(self, net: Net, slots: int, kind: str = "history", shares: Shares | None = None):
        self._net, self._slots, self._kind, self._shares = net, slots, kind, shares
        self._of: dict[int, list[Slots]] = {}  # by parameter, for each of its pieces: itself, or its blocks
        self._sizes: dict[int, list[int]] = {}  # by parameter: elements of each piece
        self._last: dict[int, bool] = {}  # by parameter: whether its histories are stored channels-last

    def follow(self, params: Iterable[Param]) -> bool:
        """Give these parameters, and no others, histories that match their pieces and storage order, keeping values.

        Returns whether any got other buffers; then the net's plans are forgotten."""
        wanted = {p.index: p for p in params}
        sizes = {i: [count(piece.shape) for piece in self._net.arrangement.pieces(p)] for i, p in wanted.items()}
        changed = [i for i in sizes if self._sizes.get(i) != sizes[i]]
        for i in changed:
            before = [self._memory(i, slot) for slot in range(self._slots)] if i in self._of else []
            old = self._of.get(i, [])
            self._of[i] = self._add(wanted[i], sizes[i])
            for slot, memory in enumerate(before if self._shares is None else ()):
                now = self._memory(i, slot)
                move_value(memory, now)
                if isinstance(now, SplitMemory):
                    now.hand_on()
            self._net.memory.store.drop(b for slots in old for b in slots)
        self._sizes |= sizes
        for i, p in wanted.items():
            if self._last.setdefault(i, p.channels_last) != p.channels_last:
                if self._shares is not None:
                    raise GraphError(
                        f"the storage order of {self._net.graph.param_name(p)} has changed, and its history is divided "
                        "among ranks",
                        fix="train without -shard_history",
                    )
                self._turn(p)
        return bool(changed)

    def _turn(self, param: Param) -> None:
        """Store a parameter's histories in its present order of axes."""
        before = [self.blob(param, slot).read_data().copy() for slot in range(self._slots)]
        self._last[param.index] = param.channels_last
        for slot, values in enumerate(before):
            blob = self.blob(param, slot)
            blob.data = values
            hand_on(blob)

    def _add(self, param: Param, sizes: Sequence[int]) -> list[Slots]:
        """Register the buffers of a parameter's histories. sizes: elements of its pieces."""
        net, item = self._net, self._net.dtype.itemsize
        if self._shares is not None:
            sizes = [max(1, self._shares.own(n)[1]) for n in sizes]
        name = f"{net.graph.nodes[param.node].name}.param{param.position}"
        blocks = [f" [{j + 1}/{len(sizes)}]" if len(sizes) > 1 else "" for j in range(len(sizes))]
        manage = True if len(sizes) > 1 and sum(sizes) * item > net.runtime.config.min_bytes else None
        return [
            tuple(
                net.memory.store.add(f"{name}{block}.{self._kind}{slot or ''}", n * item, manage=manage)
                for slot in range(self._slots)
            )
            for block, n in zip(blocks, sizes, strict=True)
        ]

    def pieces(self, params: Iterable[Param]) -> Iterator[tuple[Param, Slots]]:
        """Yield what is updated by itself, in order: a parameter or a block of one, with its histories."""
        for p in params:
            yield from zip(self._net.arrangement.pieces(p), self._of[p.index], strict=True)

    def has(self, param: Param) -> bool:
        """Return whether a parameter has histories."""
        return param.index in self._of

    def blob(self, param: Param, slot: int) -> Blob:
        """Return a whole history. Values written to one that is in blocks take effect with `hand_on`."""
        memory = self._memory(param.index, slot)
        last = self._last[param.index]
        return Blob(memory.name, param.shape, self._net.dtype, (memory, None), channels_last=last)

    def _memory(self, index: int, slot: int) -> SyncedMemory:
        memories = [self._net.memory.memories[slots[slot]] for slots in self._of[index]]
        if len(memories) == 1:
            return memories[0]
        return SplitMemory(memories[0].name.replace(f" [1/{len(memories)}]", ""), self._net.device, memories)


def hand_on(blob: Blob) -> None:
    """Copy what was written to a history that is in blocks to its blocks."""
    if isinstance(blob.data_memory, SplitMemory):
        blob.data_memory.hand_on()
