"""Writes step scalars, the numbers that layers change at every forward (`Layer.turn`), on the host before a run."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import numpy as np

from ...layers.base import Lives
from ...memory.states import Ask
from ...memory.synced import SyncedMemory
from ..build.graph import Graph
from ..program.programs import AnyStep
from ..program.steps import LayerStep, node_of

_WORD = (1 << 64) - 1


class StepScalars:
    """Advance the step scalars of the layers whose forward is among `steps`."""

    def __init__(self, graph: Graph, memories: Mapping[int, SyncedMemory], steps: Iterable[AnyStep]):
        layers = (s for s in steps if isinstance(s, LayerStep) and s.forward)
        forwards = (s for s in layers if not (s.look or s.prepares or s.finishes))
        nodes = (node_of(graph, s) for s in forwards)
        self._memories = memories
        self._nodes = [n for n in nodes if any(s.lives is Lives.STEP_SCALAR for s in n.layer.scratches.values())]
        self._before: list[dict[str, int]] = []

    def turn(self) -> None:
        """Advance all layers to their next forward and write their scalars."""
        self._before = [node.layer.state() for node in self._nodes]
        for node in self._nodes:
            for name, numbers in node.layer.next_step_scalars().items():
                scratch, memory = node.layer.scratches[name], self._memories[node.scratch[name]]
                memory.ask(Ask.OVERWRITE_CPU)
                words = np.array([n & _WORD for n in numbers], scratch.dtype)
                memory.host_array(scratch.shape, scratch.dtype)[...] = words

    def take_back(self, first: int) -> None:
        """Restore the state of layer `first` and later ones, whose forwards did not run."""
        for node, state in zip(self._nodes, self._before, strict=True):
            if node.origin >= first:
                node.layer.set_state(state)
