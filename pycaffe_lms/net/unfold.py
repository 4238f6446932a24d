"""The graph that runs: regions of a net's graph in parts, one after the other. Pure.

Every layer of a region becomes k layers on the images of their part; all of the first part come first. Parameters are
the same ones, so their gradients add up from part to part. A value inside a region becomes k values with memory of
their own; of a value at its border the parts see their images. Everything else is as it was.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace

from ..layers.base import count
from ..layers.part import part_of
from .graph import Graph, Node, Value
from .regions import Region, boundaries, inner_values, readers


@dataclass(frozen=True)
class Unfolded:
    """graph: what runs. values: of every value of the user's graph, its values there: one, or one for each part.
    starts: of every region in parts, the images at which they begin, and their number."""

    graph: Graph
    values: Mapping[int, tuple[int, ...]]
    starts: Mapping[Region, tuple[int, ...]]

    def names(self, blobs: Collection[str]) -> set[str]:
        """What blobs of the user are called there."""
        return {v.name for v in self.graph.values if v.blob in blobs}


def unfold(graph: Graph, parts: Mapping[Region, int]) -> Unfolded:
    """Regions in so many parts, or in as many as there are places to cut. The graph itself where there are none."""
    if not parts:
        return Unfolded(graph, {v.id: (v.id,) for v in graph.values}, {})
    return _Unfolding(graph, parts).run()


class _Unfolding:
    def __init__(self, graph: Graph, parts: Mapping[Region, int]):
        self.old, self.parts = graph, parts
        self.new = Graph(graph.name, inputs=list(graph.inputs), outputs=list(graph.outputs))
        self.values: dict[int, list[int]] = {}
        self.starts: dict[Region, tuple[int, ...]] = {}
        self.readers = readers(graph)

    def run(self) -> Unfolded:
        starting = {region.first: region for region in self.parts}
        skip = -1
        for node in self.old.nodes:
            if node.index in starting:
                self._region(starting[node.index])
                skip = starting[node.index].last
            elif node.index > skip:
                self._plain(node)
        first = {node.origin: node.index for node in reversed(self.new.nodes)}
        self.new.params = [replace(p, node=first[p.node], data=-1, diff=-1) for p in self.old.params]
        for v in self.old.last.values():
            self.new.last.update({self.new.values[i].name: i for i in self.values[v]})
        return Unfolded(self.new, {v: tuple(ids) for v, ids in self.values.items()}, self.starts)

    def _add(self, value: Value, **changes) -> int:
        self.new.values.append(replace(value, id=len(self.new.values), data=-1, diff=-1, **changes))
        return len(self.new.values) - 1

    def _plain(self, node: Node) -> None:
        index = len(self.new.nodes)
        bottoms = [self.values[b][0] for b in node.bottoms]
        for t in node.tops:
            self.values[t] = [self._add(self.old.values[t], producer=index)]
        tops = [self.values[t][0] for t in node.tops]
        self.new.nodes.append(replace(node, index=index, bottoms=bottoms, tops=tops, origin=node.index))

    def _region(self, region: Region) -> None:
        starts = tuple(boundaries(self.old, region, self.parts[region]))
        self.starts[region] = starts
        inner = inner_values(self.old, region, self.readers)
        nodes = self.old.nodes[region.first : region.last + 1]
        k = len(starts) - 1
        for i in range(k):
            here: dict[int, int] = {}  # values of this part
            for node in nodes:
                index = len(self.new.nodes)
                bottoms = [here[b] if b in here else self._rows(b, i, starts) for b in node.bottoms]
                for t in node.tops:
                    if t in inner:
                        here[t] = self._part(t, i, starts, index)
                        self.values.setdefault(t, []).append(here[t])
                        continue
                    if t not in self.values:
                        self.values[t] = [self._add(self.old.values[t], producer=index)]
                    here[t] = self._rows(t, i, starts, index)
                self._node(node, index, i, starts, bottoms, [here[t] for t in node.tops])

    def _node(self, node: Node, index: int, i: int, starts: tuple[int, ...], bottoms: list, tops: list) -> None:
        k = len(starts) - 1
        first_element = starts[i] * count(self.old.values[(*node.tops, *node.bottoms)[0]].shape, 1)
        layer = part_of(node.layer, i, k, first_element)
        layer.infer_shapes([self.new.values[b].shape for b in bottoms])
        more = {"scratch": {}, "origin": node.index, "part": (i, k)}
        self.new.nodes.append(replace(node, index=index, layer=layer, bottoms=bottoms, tops=tops, **more))

    def _part(self, v: int, i: int, starts: tuple[int, ...], producer: int) -> int:
        value = self.old.values[v]
        shape = (starts[i + 1] - starts[i], *value.shape[1:])
        return self._add(value, name=f"{value.name} [{i + 1}/{len(starts) - 1}]", shape=shape, producer=producer)

    def _rows(self, v: int, i: int, starts: tuple[int, ...], producer: int | None = None) -> int:
        """Images of a whole value. The name is nobody else's, so no layer works in place across the border."""
        whole = self.values[v][0]
        value, rows = self.new.values[whole], (starts[i], starts[i + 1])
        changes = {
            "name": f"{value.name} #{whole} {rows[0]}..{rows[1] - 1}",
            "shape": (rows[1] - rows[0], *value.shape[1:]),
        }
        if producer is not None:
            changes["producer"] = producer
        return self._add(value, rows=rows, whole=whole, **changes)
