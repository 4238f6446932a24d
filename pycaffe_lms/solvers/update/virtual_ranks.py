"""Lets one process compute several virtual ranks, one after the other, as if each were a process of its own.

Each has its own records, random numbers, running statistics and recurrent states; weights and histories are common. The
first virtual rank of a process is the one whose values the net shows between iterations, tests and snapshots included.
`net/program/tree_reduction.py` adds up the gradients.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence

import numpy as np

from ...layers.base import Lives, count
from ...lms.program import Access, BufferId, Mode, Step
from ...net.build.graph import Param
from ...net.net import Net
from ...net.program.programs import HostedStep
from ...net.program.tree_reduction import EXCHANGE_BYTES, TreeBuffers, keep_step, kept_level
from ...ops import ops_of
from .slots import Histories

_WORD = np.dtype(np.float32)  # copies of it change no bit; all numbers take a multiple of its bytes


class VirtualRanks:
    """Own what differs between the virtual ranks of one process, and the sums of their gradients.

    Args:
        net: the train net, built as rank `first` of `total`.
        total: number of virtual ranks, a power of two.
        processes: number of processes that compute them, which divides it.

    Raises LayerParamError for layers that need the batches of all ranks at once.
    """

    def __init__(self, net: Net, total: int, processes: int):
        for node in net.graph.exchanging:
            raise node.layer.error(
                "sync: true needs the batches of all ranks at once, and -virtual_ranks computes one after the other",
                fix="train without -virtual_ranks, or with the statistics of each virtual rank: sync: false",
            ).at(file=net.file, line=node.line)
        self.total, self.inside, self.first = total, total // processes, net.solver_rank
        self.at = 0  # the virtual rank of this process whose values the net holds
        self._net, self._processes = net, processes
        self._sums = Histories(net, self.inside.bit_length() - 1, "sum")
        self._summed: list[Param] = []
        self._kept: dict[str, tuple[int, list[BufferId]]] = {}  # by buffer's name: its bytes, one buffer for each rank
        self._begun = False  # whether every virtual rank has statistics of its own
        self.tree = TreeBuffers(total, self.inside, {})

    def follow(self, reached: Collection[int]) -> None:
        """Take memory that matches the net's. reached: the gradients that its backward writes."""
        net = self._net
        pieces = net.arrangement.pieces
        if self.inside > 1:
            self._summed = [p for p in net.graph.learnable if any(piece.diff in reached for piece in pieces(p))]
            self._sums.follow(self._summed)
            self.tree.sums = {piece.diff: sums for piece, sums in self._sums.pieces(self._summed)}
            self._follow_values()
        if self._processes > 1 and self.tree.received is None:
            most = sum(count(p.shape) for p in net.graph.learnable) * net.dtype.itemsize
            nbytes = min(max(most, net.dtype.itemsize), EXCHANGE_BYTES)
            self.tree.packed, self.tree.received = (
                net.memory.store.add(f"ranks.{name}", nbytes) for name in ("packed", "received")
            )

    def keep_steps(self, index: int) -> list[HostedStep]:
        """Return the steps behind the backward of virtual rank `index` of this process, which is not the last one."""
        executor, level = self._net.memory.executor, kept_level(index)
        return [keep_step(executor, piece, sums, level) for piece, sums in self._sums.pieces(self._summed)]

    # -- from one to the next -----------------------------------------------------------------------------------------
    def turn_to(self, index: int) -> None:
        """Let the net go on as virtual rank `index` of this process."""
        if self.inside == 1:
            return
        if not self._begun:
            self._run("virtual ranks begin", [s for b in self._statistics() for s in self._spread(b)])
            self._begun = True
        if index != self.at:
            steps = [s for b in self._values() for s in self._exchanged(b, self.at, index)]
            self._run(f"virtual rank {self.at} to {index}", steps)
            self._turn_layers(index)

    def each(self) -> Iterator[int]:
        """Yield the indices of this process's virtual ranks, in layers that stand where each of them does."""
        for index in reversed(range(self.inside)):
            self._turn_layers(index)
            yield index

    def begin_anew(self) -> None:
        """Let all begin with the running statistics that the net has now, because others were loaded."""
        self._begun = False

    def _turn_layers(self, index: int) -> None:
        self._net.turn_to(self.first + index)
        self.at = index

    # -- values that differ -------------------------------------------------------------------------------------------
    def _statistics(self) -> dict[int, int]:
        """Return the buffers of parameters that forwards change and updates do not, with their bytes."""
        graph, found = self._net.graph, dict[int, int]()
        changed = {graph.params[n.params[i]].owner for n in graph.nodes for i in n.layer.forward_updates()}
        for p in graph.learnable:
            if p.index in changed and p.lr_mult == 0:
                for piece in self._net.arrangement.pieces(p):
                    found[piece.data] = count(piece.shape) * self._net.dtype.itemsize
        return found

    def _values(self) -> dict[int, int]:
        """Return all buffers whose values are those of one virtual rank, with their bytes."""
        states = {
            node.scratch[s.name]: s.nbytes
            for node in self._net.graph.nodes
            for s in node.layer.scratches.values()
            if s.lives is Lives.STATE
        }
        return self._statistics() | states

    def _follow_values(self) -> None:
        store = self._net.memory.store
        wanted = {store.buffers[b].name: nbytes for b, nbytes in self._values().items()}
        for name, (nbytes, buffers) in list(self._kept.items()):
            if wanted.get(name) != nbytes:  # states of another batch size begin at zero
                store.drop(buffers)
                del self._kept[name]
        for name, nbytes in wanted.items():
            if name not in self._kept:
                of = [store.add(f"{name} of virtual rank {self.first + i}", nbytes) for i in range(self.inside)]
                self._kept[name] = nbytes, of

    def _buffers(self, buffer: int) -> list[BufferId]:
        return self._kept[self._net.memory.store.buffers[buffer].name][1]

    def _spread(self, buffer: int) -> list[HostedStep]:
        others = [b for i, b in enumerate(self._buffers(buffer)) if i != self.at]
        return [self._copy(buffer, other) for other in others]

    def _exchanged(self, buffer: int, old: int, new: int) -> list[HostedStep]:
        kept = self._buffers(buffer)
        return [self._copy(buffer, kept[old]), self._copy(kept[new], buffer)]

    def _copy(self, source: int, target: int) -> HostedStep:
        memory = self._net.memory
        name = f"copy:{memory.store.buffers[target].name}"
        step = Step(name, (Access(source, Mode.READ), Access(target, Mode.OVERWRITE)))

        def run() -> None:
            device, executor, words = self._net.device, memory.executor, memory.memories[source].nbytes // 4
            x, y = (executor.array(b, (words,), _WORD, device.is_host) for b in (source, target))
            ops_of(device).copy(x, y)

        return HostedStep(step, run, repeatable=True)

    def _run(self, key: str, steps: Sequence[HostedStep]) -> None:
        if steps:
            self._net.run_steps(key, steps)
