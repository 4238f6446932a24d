"""Back from the graph that runs to the user's: where the values of his blobs are. Pure.

See also: `unfold.py` (the way there), `memory/parted.py` (a value in several buffers).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ..lms.schedule import Buffer
from .graph import Graph
from .unfold import Unfolded

PARTED = 1 << 19  # ids of what stands for several buffers start here
WIDENED = 1 << 24  # the id of what stands for a buffer of bfloat16, less the buffer's


@dataclass(frozen=True)
class PartedValue:
    """A value, a parameter, or a gradient of one, whose parts lie in `buffers`, in order. half: as bfloat16."""

    id: int
    name: str
    buffers: tuple[int, ...]
    half: bool = False


def fold(graph: Graph, unfolded: Unfolded) -> list[PartedValue]:
    """Give the user's graph the buffer ids of the graph that runs. What is in parts gets an id of its own."""
    run = unfolded.graph
    if run is graph:
        return []
    found: dict[tuple[int, ...], PartedValue] = {}

    def one(name: str, kind: str, ids: tuple[int, ...], half: bool = False) -> int:
        if len(ids) == 1:
            return ids[0]
        if ids not in found:
            found[ids] = PartedValue(PARTED + len(found), f"{name}.{kind}", ids, half)
        return found[ids].id

    for value in graph.values:
        mine = [run.values[v] for v in unfolded.values[value.id]]
        value.data = one(value.name, "data", tuple(v.data for v in mine), value.half)
        value.diff = one(value.name, "diff", tuple(v.diff for v in mine), value.half)
    for param in graph.params:
        mine = [run.params[p] for p in unfolded.params[param.index]]
        name = f"{graph.nodes[param.node].name}.param{param.position}"
        param.data = one(name, "data", tuple(p.data for p in mine))
        param.diff = one(name, "diff", tuple(p.diff for p in mine))
    return list(found.values())


def widened(graph: Graph, buffers: Sequence[Buffer]) -> list[PartedValue]:
    """What stands for the buffers of bfloat16 of the user's graph. After `fold`."""
    ids = {b for v in graph.values if v.half for b in (v.data, v.diff) if b < PARTED}
    return [PartedValue(WIDENED + b, buffers[b].name, (b,), True) for b in sorted(ids)]
