"""Back from the graph that runs to the user's: where the values of his blobs are. Pure.

See also: `unfold.py` (the way there), `memory/parted.py` (a value in several buffers).
"""

from __future__ import annotations

from dataclasses import dataclass

from .graph import Graph
from .unfold import Unfolded

PARTED = 1 << 19  # ids of what stands for several buffers start here


@dataclass(frozen=True)
class PartedValue:
    """A value, a parameter, or a gradient of one, whose parts lie in `buffers`, in order."""

    id: int
    name: str
    buffers: tuple[int, ...]


def fold(graph: Graph, unfolded: Unfolded) -> list[PartedValue]:
    """Give the user's graph the buffer ids of the graph that runs. What is in parts gets an id of its own."""
    run = unfolded.graph
    if run is graph:
        return []
    found: dict[tuple[int, ...], PartedValue] = {}

    def one(name: str, kind: str, ids: tuple[int, ...]) -> int:
        if len(ids) == 1:
            return ids[0]
        if ids not in found:
            found[ids] = PartedValue(PARTED + len(found), f"{name}.{kind}", ids)
        return found[ids].id

    for value in graph.values:
        mine = [run.values[v] for v in unfolded.values[value.id]]
        value.data = one(value.name, "data", tuple(v.data for v in mine))
        value.diff = one(value.name, "diff", tuple(v.diff for v in mine))
    for param in graph.params:
        mine = [run.params[p] for p in unfolded.params[param.index]]
        name = f"{graph.nodes[param.node].name}.param{param.position}"
        param.data = one(name, "data", tuple(p.data for p in mine))
        param.diff = one(name, "diff", tuple(p.diff for p in mine))
    return list(found.values())
