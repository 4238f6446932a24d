"""Which regions of a net run in how many parts: as `-lms_split` says, or as few as a budget allows. Pure.

With `auto`, nothing is split that fits whole: results would differ from the whole net's in the last digits, for
gradients of parameters add up in another order.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from ..lms.handover import handovers, needed_bytes
from ..lms.schedule import Buffer, Program
from .access import LayerStep
from .graph import Graph, Node
from .regions import Region, boundaries, find_regions, inner_values, readers
from .unfold import Unfolded


@dataclass
class Splitting:
    """Of one net. asked: parts of every region; None: chosen here, region by region; 0 or 1: none.

    chosen: parts by the first and last layer of their region."""

    asked: int | None = None
    chosen: dict[tuple[int, int], int] = field(default_factory=dict)

    def parts(self, graph: Graph) -> dict[Region, int]:
        """What runs in parts, with the shapes of now."""
        if self.asked is not None:
            return {region: self.asked for region in find_regions(graph)} if self.asked > 1 else {}
        if not self.chosen:
            return {}
        return {r: self.chosen[_key(r)] for r in find_regions(graph) if _key(r) in self.chosen}

    def more(self, graph: Graph, factor: float) -> dict[tuple[int, int], int]:
        """`chosen`, so many times as many parts, as far as there are places to cut."""
        regions = self.parts(graph).items()
        return {_key(r): min(math.ceil(factor * k), _most(graph, r)) for r, k in regions}

    def widen(self, graph: Graph, unfolded: Unfolded, need: Sequence[int], steps: Sequence[LayerStep],
              managed: Mapping[int, Buffer], limit: int) -> bool:  # fmt: skip
        """Choose more parts, where that can help. Returns whether.

        need: bytes of `managed` buffers that each of the net's steps needs at once. limit: bytes that there are."""
        if self.asked is not None:
            return False
        regions, more, largest = find_regions(graph), dict(self.chosen), max(need, default=0)
        for step, nbytes in zip(steps, need, strict=True):
            if nbytes <= limit and nbytes < largest:
                continue
            node = unfolded.graph.nodes[step.node]
            region = next((r for r in regions if node.origin in r), None)
            if region is None:
                return False
            now = self.chosen.get(_key(region), 1)
            wanted = now + 1  # where steps fit, their offsets do not
            if nbytes > limit:
                whole = _whole_bytes(graph, unfolded.graph, region, node, step, managed)
                if whole >= limit:
                    return False
                wanted = max(wanted, -(-(nbytes - whole) * now // (limit - whole)))
            wanted = min(wanted, _most(graph, region))
            if wanted <= now:
                return False
            more[_key(region)] = max(wanted, more.get(_key(region), 1))
        self.chosen = more
        return True


def _key(region: Region) -> tuple[int, int]:
    return region.first, region.last


def _most(graph: Graph, region: Region) -> int:
    """Parts of a region, at most."""
    return len(boundaries(graph, region, region.items)) - 1


def needs(steps: Sequence[LayerStep], managed: Mapping[int, Buffer]) -> list[int]:
    """Bytes of managed buffers that every step needs at once."""
    program = Program("all", tuple(s.step for s in steps), frozenset())
    sizes = {b: buffer.nbytes for b, buffer in managed.items()}
    pairs = handovers(program, managed)
    return [needed_bytes(program, s, sizes, pairs) for s in range(len(steps))]


def _whole_bytes(graph: Graph, run: Graph, region: Region, node: Node, step: LayerStep, managed) -> int:
    """Bytes of what a step needs that do not become less with more parts: parameters, and blobs at the border of the
    region that is to be cut."""
    fixed = {b for p in node.params for b in (run.params[p].data, run.params[p].diff)}
    if node.part is not None:
        wholes = (
            run.values[run.values[v].whole] for v in (*node.bottoms, *node.tops) if run.values[v].whole is not None
        )
    else:
        inner = inner_values(graph, region, readers(graph))
        user = graph.nodes[node.origin]
        wholes = (graph.values[v] for v in (*user.bottoms, *user.tops) if v not in inner)
    fixed |= {b for value in wholes for b in (value.data, value.diff)}
    return sum(managed[a.buffer].nbytes for a in step.step.accesses if a.buffer in fixed and a.buffer in managed)


def describe(graph: Graph, unfolded: Unfolded) -> list[str]:
    """A line for each region that runs in parts."""
    lines = []
    for region, starts in unfolded.starts.items():
        sizes = sorted({b - a for a, b in zip(starts, starts[1:], strict=False)})
        images = " or ".join(map(str, sizes))
        first, last = graph.nodes[region.first].name, graph.nodes[region.last].name
        lines.append(f'layers "{first}" .. "{last}" run in {len(starts) - 1} parts of {images} images')
    return lines
