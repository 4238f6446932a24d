"""The graph that runs: regions of a net's graph in micro-batches, and layers in blocks of outputs. Pure.

Every layer of a region becomes k layers, one per micro-batch; all layers of the first micro-batch come first. They
share the parameters, whose gradients add up. A value inside a region becomes k values with memory of their own; a value
at its border stays whole, and each micro-batch sees its images. The rest of the graph is unchanged.

A layer in blocks of outputs becomes n layers with parameters of their own, one that gathers their tops, and n - 1 that
pass the bottom from block to block: in backward they add up its gradient, two at a time, from the last block on.

`with_micro_batches` makes that graph; `split_values` gives the user's graph its buffers. `regions.py` says what can be
cut.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Any

from ...layers.base import Layer
from ...layers.micro_batch import block_of, gather_of, part_of, spread_of
from ...layers.mixins import RandomLayer
from ...layers.slabs import AXIS
from ...lms.program import Buffer, BufferId, BufferKind, buffer_id, kind_of
from ...ops.axes import around_axis
from ..build.graph import Graph, Node, Value
from .regions import Region, boundaries, inner_values, output_cuts


@dataclass(frozen=True)
class MicroBatchedGraph:
    """Hold the graph that runs and how the user's graph maps to it.

    Args:
        values: per value of the user's graph, its values in `graph`: one, or one per micro-batch.
        starts: per region, the first image of each micro-batch, then the number of images.
        params: per parameter of the user's graph, its parameters in `graph`: one, or one per block of outputs.
        cuts: per layer in blocks, the first output of each block, then the number of outputs.
        slabs: per layer in slabs, the first row of each slab of its tops, then the number of rows.
    """

    graph: Graph
    values: Mapping[int, tuple[int, ...]]
    starts: Mapping[Region, tuple[int, ...]]
    params: Mapping[int, tuple[int, ...]]
    cuts: Mapping[int, tuple[int, ...]]
    slabs: Mapping[int, tuple[int, ...]] = field(default_factory=dict)

    def names(self, blobs: Collection[str]) -> set[str]:
        """Return the names in `graph` of blobs of the user."""
        return {v.name for v in self.graph.values if v.blob in blobs}


def with_micro_batches(
    graph: Graph, parts: Mapping[Region, int], blocks: Mapping[int, int] | None = None
) -> MicroBatchedGraph:
    """Build the graph that runs; without parts and blocks, the graph itself.

    Args:
        parts: number of micro-batches by region; fewer are made where there are too few places to cut.
        blocks: number of blocks of outputs by the index of a layer outside of all regions.
    """
    if not parts and not blocks:
        whole = {p.index: (p.index,) for p in graph.params}
        return MicroBatchedGraph(graph, {v.id: (v.id,) for v in graph.values}, {}, whole, {})
    return MicroBatching(graph, parts, blocks or {}).run()


class MicroBatching:
    """Build a `MicroBatchedGraph`, node by node."""

    def __init__(self, graph: Graph, parts: Mapping[Region, int], blocks: Mapping[int, int]):
        self.old, self.parts, self.blocks = graph, parts, blocks
        self.new = Graph(graph.name, inputs=list(graph.inputs), outputs=list(graph.outputs))
        self.values: dict[int, list[int]] = {}
        self.starts: dict[Region, tuple[int, ...]] = {}
        self.readers = graph.readers()
        self.new.params = [replace(p, node=-1, data=-1, diff=-1) for p in graph.params]
        self.params = {p.index: [p.index] for p in graph.params}
        self.cuts: dict[int, tuple[int, ...]] = {}

    def run(self) -> MicroBatchedGraph:
        """Return the graph that runs."""
        self.build()
        for node in reversed(self.new.nodes):  # so the first micro-batch owns them
            for p in node.params:
                self.new.params[p].node = node.index
        for v in self.old.last.values():
            self.new.last.update({self.new.values[i].name: i for i in self.values[v]})
        values, params = ({k: tuple(ids) for k, ids in found.items()} for found in (self.values, self.params))
        return MicroBatchedGraph(self.new, values, self.starts, params, self.cuts)

    def build(self) -> None:
        """Add all layers and values."""
        starting = {region.first: region for region in self.parts}
        skip = -1
        for node in self.old.nodes:
            if node.index in starting:
                self._region(starting[node.index])
                skip = starting[node.index].last
            elif node.index in self.blocks:
                self._in_blocks(node)
            elif node.index > skip:
                self._plain(node)

    def _add(self, value: Value, **changes: Any) -> int:
        """Add a copy of a value with changes, and return its id."""
        self.new.values.append(replace(value, id=len(self.new.values), data=-1, diff=-1, **changes))
        return len(self.new.values) - 1

    def _plain(self, node: Node) -> None:
        """Add a layer as it is."""
        index = len(self.new.nodes)
        bottoms = [self.values[b][0] for b in node.bottoms]
        for t in node.tops:
            self.values[t] = [self._add(self.old.values[t], producer=index)]
        tops = [self.values[t][0] for t in node.tops]
        self.new.nodes.append(replace(node, index=index, bottoms=bottoms, tops=tops, origin=node.index))

    def _region(self, region: Region) -> None:
        """Add the layers of a region, micro-batch by micro-batch."""
        starts = tuple(boundaries(self.old, region, self.parts[region]))
        self.starts[region] = starts
        inner = inner_values(self.old, region, self.readers)
        nodes = self.old.nodes[region.first : region.last + 1]
        k = len(starts) - 1
        for i in range(k):
            here: dict[int, int] = {}  # values of this micro-batch
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

    def _node(
        self, node: Node, index: int, i: int, starts: tuple[int, ...], bottoms: list[int], tops: list[int]
    ) -> None:
        """Add the layer that does micro-batch i of a layer."""
        k = len(starts) - 1
        layer, first_draw = node.layer, 0
        if isinstance(layer, RandomLayer):
            first_draw = starts[i] * layer.draws_per_item(self.old.values[node.tops[0]].shape)
        layer = part_of(layer, i, k, first_draw)
        layer.infer_shapes([self.new.values[b].shape for b in bottoms])
        own = replace(node, index=index, layer=layer, bottoms=bottoms, tops=tops)
        self.new.nodes.append(replace(own, scratch={}, origin=node.index, part=(i, k)))

    def _part(self, v: int, i: int, starts: tuple[int, ...], producer: int) -> int:
        """Add a value with memory of its own for micro-batch i of a value inside a region."""
        value = self.old.values[v]
        shape = (starts[i + 1] - starts[i], *value.shape[1:])
        return self._add(value, name=f"{value.name} [{i + 1}/{len(starts) - 1}]", shape=shape, producer=producer)

    def _rows(self, v: int, i: int, starts: tuple[int, ...], producer: int | None = None) -> int:
        """Add a value for the images of micro-batch i of a whole value. Its name is unique, so that no layer works in
        place across the region's border."""
        whole = self.values[v][0]
        value, rows = self.new.values[whole], (starts[i], starts[i + 1])
        name = f"{value.name} #{whole} {rows[0]}..{rows[1] - 1}"
        shape = (rows[1] - rows[0], *value.shape[1:])
        producer = value.producer if producer is None else producer
        return self._add(value, name=name, shape=shape, producer=producer, rows=rows, whole=whole)

    def _in_blocks(self, node: Node) -> None:
        """Add a layer in blocks of outputs, and the layers that gather their tops and pass on its bottom."""
        cuts = self.cuts[node.index] = tuple(output_cuts(node.layer.splits_over_outputs, self.blocks[node.index]))
        n, rest, tops = len(cuts) - 1, self.values[node.bottoms[0]][0], []
        whole = self.old.values[node.tops[0]]
        for j, (first, end) in enumerate(pairwise(cuts)):
            here = rest
            if node.propagate[0] and j < n - 1:
                here, rest = self._spread(node, rest, j, n)
            block = block_of(node.layer, j, n, end - first)
            top = self._between(whole, f"{whole.name} [outputs {j + 1}/{n}]", (*whole.shape[:-1], end - first), 0)
            params = [self._rows_of(p, j, end - first) for p in node.params]
            index = self._insert(node, block, [here], [top], propagate=node.propagate, block=(j, n))
            self.new.nodes[index].params, self.new.nodes[index].param_propagate = params, node.param_propagate
            block.infer_shapes([self.new.values[here].shape])
            tops.append(top)
        top = self._add(whole, producer=len(self.new.nodes))
        self.values[node.tops[0]] = [top]
        names = [self.new.values[t].name for t in tops]
        gather = gather_of(node.layer, names, whole.name, len(whole.shape) - 1)
        self._insert(node, gather, tops, [top], propagate=[node.need_backward] * n)

    def _spread(self, node: Node, bottom: int, j: int, n: int) -> tuple[int, int]:
        """Add the layer that passes on the bottom; return the value for block j and the value for later blocks."""
        value = self.new.values[bottom]
        names = [f"{value.name} [{node.name} {numbers}/{n}]" for numbers in (f"{j + 1}", f"{j + 2}..{n}")]
        tops = [self._between(value, name, value.shape, k) for k, name in enumerate(names)]
        spread = spread_of(node.layer, j, n, value.name, names)
        index = self._insert(node, spread, [bottom], tops, propagate=node.propagate)
        self.new.nodes[index].channels_last = value.channels_last
        spread.update_context(channels_last=value.channels_last)
        return tops[0], tops[1]

    def _between(self, like: Value, name: str, shape: tuple[int, ...], top: int) -> int:
        """Add a value that is no blob of the user and that the next inserted layer makes."""
        return self._add(
            like, name=name, blob=name, shape=shape, producer=len(self.new.nodes), top=top, loss_weight=0.0
        )

    def _insert(self, node: Node, layer: Layer, bottoms: list[int], tops: list[int], **more: Any) -> int:
        """Add a layer made for blocks of a node, and return its index."""
        layer.update_context(needs_backward=node.need_backward)
        index, line, origin = len(self.new.nodes), node.line, node.index
        more = {"need_backward": node.need_backward, "origin": origin} | more
        self.new.nodes.append(Node(index, layer, layer.param, line, bottoms, tops, **more))
        return index

    def _rows_of(self, p: int, j: int, rows: int) -> int:
        """Return the parameter for block j of a parameter: `rows` of its rows."""
        old = self.old.params[p]
        shape = (rows, *old.shape[1:])
        if j == 0:
            self.new.params[p].shape = shape
            return p
        index = len(self.new.params)
        self.new.params.append(replace(old, index=index, owner=index, node=-1, shape=shape, data=-1, diff=-1))
        self.params[p].append(index)
        return index


@dataclass(frozen=True)
class SplitValue:
    """Describe a value, a parameter or a gradient whose parts lie in `buffers`, in order. half: as bfloat16. outer: the
    whole is so many pieces in memory, and every part has a share of each; 1: the parts lie one behind the other."""

    id: BufferId
    name: str
    buffers: tuple[int, ...]
    half: bool = False
    outer: int = 1


def split_values(graph: Graph, micro_batched: MicroBatchedGraph) -> list[SplitValue]:
    """Set the buffer ids of the user's graph from the graph that runs, and return the split values: those of several
    buffers, which get ids of their own."""
    run = micro_batched.graph
    if run is graph:
        return []
    found: dict[tuple[int, ...], SplitValue] = {}

    def one(name: str, kind: str, ids: tuple[int, ...], half: bool = False, outer: int = 1) -> int:
        if len(ids) == 1:
            return ids[0]
        if ids not in found:
            found[ids] = SplitValue(buffer_id(BufferKind.SPLIT, len(found)), f"{name}.{kind}", ids, half, outer)
        return found[ids].id

    for value in graph.values:
        mine = [run.values[v] for v in micro_batched.values[value.id]]
        producer = run.nodes[mine[0].producer]
        outer = around_axis(value.shape, AXIS, value.channels_last).outer if producer.slab is not None else 1
        value.data = one(value.name, "data", tuple(v.data for v in mine), value.half, outer)
        value.diff = one(value.name, "diff", tuple(v.diff for v in mine), value.half, outer)
    for param in graph.params:
        pieces = [run.params[p] for p in micro_batched.params[param.index]]
        name = f"{graph.nodes[param.node].name}.param{param.position}"
        param.data = one(name, "data", tuple(p.data for p in pieces))
        param.diff = one(name, "diff", tuple(p.diff for p in pieces))
    return list(found.values())


def widened(graph: Graph, buffers: Sequence[Buffer]) -> list[SplitValue]:
    """Return a split value for each single bfloat16 buffer of the user's graph. To be called after `split_values`."""
    ids = {b for v in graph.values if v.half for b in (v.data, v.diff) if kind_of(b) is BufferKind.GRAPH}
    return [SplitValue(buffer_id(BufferKind.WIDENED, b), buffers[b].name, (b,), True) for b in sorted(ids)]
