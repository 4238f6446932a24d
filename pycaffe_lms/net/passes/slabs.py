"""The graph that runs with layers in slabs: rows of axis 2, the first spatial one. Pure.

A layer in slabs becomes K layers, each of which makes one slab of the tops from the slabs of the bottoms that its rows
depend on. A value that such a layer makes exists only as slabs, each with memory of its own; for another layer that
reads it, or as an output, it is joined. BatchNorm with the batch's statistics takes two passes
(`layers/norm/slab_norm.py`).

Slabs do not run layer by layer: as soon as the rows that a deeper layer reads are there, it runs, so that a slab goes
through as many layers as possible while it is on the device. Backward runs in reverse.

`cuttable_into_slabs` finds the layers, `slab_cuts` the rows at which values are cut, `with_slabs` builds the graph.
"""

from __future__ import annotations

import heapq
from collections.abc import Mapping
from dataclasses import replace
from itertools import pairwise

from ...layers.base import Layer, Runs, count
from ...layers.mixins import RandomLayer
from ...layers.norm.batch_norm import BatchNormLayer
from ...layers.norm.slab_norm import SlabApplyLayer, SlabMomentsLayer, SlabStatisticsLayer
from ...layers.slabs import AXIS, SlabPiece, Span, join_of, needed, slab_of, spans_of
from ...proto.caffe_pb2 import LMSParameter
from ..build.graph import Graph, Node
from .micro_batch import MicroBatchedGraph, MicroBatching

_PASSES = (SlabMomentsLayer, SlabApplyLayer)


def refuses_slabs(graph: Graph, node: Node) -> str | None:
    """Return why a layer cannot run in slabs, None if it can."""
    layer, own = node.layer, node.layer.declares
    bottoms, tops = ([graph.values[v] for v in ids] for ids in (node.bottoms, node.tops))
    if not bottoms or not tops:
        return "has no bottoms" if not bottoms else "has no tops"
    if own.runs_on is Runs.HOST:
        return "runs on the host"
    if own.is_loss or any(v.loss_weight for v in (*bottoms, *tops)):
        return "is a loss"
    if layer.param.lms_param.policy in (LMSParameter.KEEP, LMSParameter.RECOMPUTE):
        return "has an lms_param whose blobs are whole"
    if any(len(v.shape) <= AXIS or v.shape[AXIS] < 2 or count(v.shape) == 0 for v in (*bottoms, *tops)):
        return f"has a blob without rows to cut along axis {AXIS}"
    if isinstance(layer, BatchNormLayer) and layer.splits_over_slabs:
        return None
    rows, read = tops[0].shape[AXIS], layer.forward_needs().bottoms
    unread = [v for i, v in enumerate(bottoms) if read and i not in read]  # their shape alone counts
    if len({v.shape[AXIS] for v in bottoms if v not in unread}) > 1 or any(
        v.shape[AXIS] != rows for v in (*tops, *unread)
    ):
        return "has blobs of different numbers of rows"
    if layer.rows_for(0, rows, _total(graph, node)) is None:
        return "needs all rows at once"
    default = type(layer).rows_for is Layer.rows_for
    return "changes shapes" if default and len({v.shape for v in (*bottoms, *tops)}) > 1 else None


def _total(graph: Graph, node: Node) -> int:
    """Return the rows of the bottoms that a layer reads."""
    read = node.layer.forward_needs().bottoms
    return graph.values[node.bottoms[min(read, default=0)]].shape[AXIS]


def cuttable_into_slabs(graph: Graph) -> list[int]:
    """Return the layers that can run in slabs; none where shapes may change within an iteration."""
    if graph.shapes_may_change:
        return []
    found, cut = list[int](), set[int]()
    for node in graph.nodes:
        if refuses_slabs(graph, node) is None and (not _reads_slabs(node) or cut.issuperset(node.bottoms)):
            found.append(node.index)
            cut.update(node.tops)
    return found


def _reads_slabs(node: Node) -> bool:
    """Return whether slabs of a layer read slabs only: a slab of a whole value does not lie in one piece."""
    layer = node.layer
    norm = isinstance(layer, BatchNormLayer) and layer.splits_over_slabs
    return bool(layer.shares_data()) or norm or (isinstance(layer, RandomLayer) and layer.random)


def chosen_layers(graph: Graph, slabs: int) -> list[int]:
    """Return the layers that run in slabs if the largest one runs in `slabs`: those whose blobs together are larger
    than a slab of its blobs."""
    able = cuttable_into_slabs(graph)
    sizes = {i: _elements(graph, graph.nodes[i]) for i in able}
    largest = max(sizes.values(), default=0)
    found, cut = list[int](), set[int]()
    for i in able:
        node = graph.nodes[i]
        if sizes[i] * slabs > largest and (not _reads_slabs(node) or cut.issuperset(node.bottoms)):
            found.append(i)
            cut.update(node.tops)
    return found


def _elements(graph: Graph, node: Node) -> int:
    return sum(count(graph.values[v].shape) for v in (*node.bottoms, *node.tops))


def most_slabs(graph: Graph) -> int:
    """Return the largest number of slabs: the rows of the largest layer's tops; 0 if no layer can run in slabs."""
    able = cuttable_into_slabs(graph)
    largest = max(able, key=lambda i: _elements(graph, graph.nodes[i]), default=None)
    return 0 if largest is None else graph.values[graph.nodes[largest].tops[0]].shape[AXIS]


def slab_cuts(rows: int, least: int, slabs: int) -> tuple[int, ...]:
    """Return the first row of each slab of a value, then the number of rows.

    Values of a net are cut at multiples of the places where one with fewer rows, `least`, is cut, so that slabs of
    layers with strides begin at whole windows."""
    slabs = min(slabs, least)
    times = max(1, (2 * rows + least) // (2 * least))  # rounded
    cuts = [times * (least * i // slabs) for i in range(slabs)]
    if cuts[-1] >= rows:
        cuts = [rows * i // slabs for i in range(slabs)]
    return (*cuts, rows)


def with_slabs(graph: Graph, slabs: int, blocks: Mapping[int, int]) -> MicroBatchedGraph:
    """Build the graph that runs.

    Args:
        slabs: of the largest layers; fewer are made where there are too few rows.
        blocks: number of blocks of outputs by the index of a layer.
    """
    return _Slabs(graph, slabs, blocks).run()


class _Slabs(MicroBatching):
    """Build the graph node by node, then put the nodes in order."""

    def __init__(self, graph: Graph, slabs: int, blocks: Mapping[int, int]):
        super().__init__(graph, {}, blocks)
        self.inside = set(chosen_layers(graph, slabs)) - blocks.keys()
        ends = {v for i in self.inside for v in (*graph.nodes[i].bottoms, *graph.nodes[i].tops)}
        self.rows = {graph.values[v].shape[AXIS] for v in ends}
        self.slabs = slabs
        self.pieces: dict[int, tuple[int, ...]] = {}  # user's value in slabs -> values in the new graph
        self.spans: dict[int, tuple[int, ...]] = {}  # as `MicroBatchedGraph.slabs`

    def run(self) -> MicroBatchedGraph:
        return replace(super().run(), slabs=self.spans)

    def build(self) -> None:
        for node in self.old.nodes:
            if node.index in self.inside:
                self._in_slabs(node)
            else:
                cut = {b: self.values[b] for b in node.bottoms if b in self.pieces}
                for b in cut:
                    self.values[b] = [self._join(b, node.index)]
                (self._in_blocks if node.index in self.blocks else self._plain)(node)
                self.values.update(cut)
        self._order()

    def _cuts(self, v: int) -> tuple[int, ...]:
        rows = self.old.values[v].shape[AXIS]
        return slab_cuts(rows, min((r for r in self.rows if self.slabs <= r <= rows), default=rows), self.slabs)

    def _bottom(self, v: int) -> list[tuple[int, Span]]:
        """Return the values that hold a bottom, with their rows."""
        if v in self.pieces:
            return list(zip(self.pieces[v], pairwise(self._cuts(v)), strict=True))
        return [(self.values[v][0], (0, self.old.values[v].shape[AXIS]))]

    def _in_slabs(self, node: Node) -> None:
        """Add the layers of all slabs of a layer, and those that join tops that no layer reads."""
        spans = list(pairwise(self._cuts(node.tops[0])))
        self.spans[node.index] = self._cuts(node.tops[0])
        tops = [[self._slab(t, i, spans, j) for i in range(len(spans))] for j, t in enumerate(node.tops)]
        if isinstance(node.layer, BatchNormLayer) and node.layer.splits_over_slabs:
            self._norm(node, spans, tops[0])
        else:
            self._windows(node, spans, tops)
        for t, ids in zip(node.tops, tops, strict=True):
            self.pieces[t], self.values[t] = tuple(ids), ids
            if t not in self.readers:
                self.values[t] = [self._join(t, node.index)]

    def _slab(self, v: int, i: int, spans: list[Span], top: int) -> int:
        """Add the value for slab i of a user's value; its producer is set when it is added."""
        value, (first, end) = self.old.values[v], spans[i]
        shape = (*value.shape[:AXIS], end - first, *value.shape[AXIS + 1 :])
        return self._add(value, name=f"{value.name} [slab {i + 1}/{len(spans)}]", shape=shape, producer=-1, top=top)

    def _windows(self, node: Node, spans: list[Span], tops: list[list[int]]) -> None:
        """Add the layers of the slabs of a layer that needs one pass."""
        total, layer = _total(self.old, node), node.layer
        reads: list[list[list[tuple[int, Span]]]] = []  # by slab, by bottom
        for own in spans:
            rows = layer.rows_for(*own, total)
            assert rows is not None, "the layer can run in slabs"
            spans_read = spans_of(layer, rows, own, len(node.bottoms))
            reads.append([needed(self._bottom(b), at) for b, at in zip(node.bottoms, spans_read, strict=True)])
        readers: dict[int, list[int]] = {}
        for i, bottoms in enumerate(reads):
            for held in bottoms:
                for v, _ in held:
                    readers.setdefault(v, []).append(i)
        for i, (own, bottoms) in enumerate(zip(spans, reads, strict=True)):
            pieces = [
                [SlabPiece(v, at, adds=readers[v][-1] != i, alone=len(readers[v]) == 1) for v, at in held]
                for held in bottoms
            ]
            flat = [p for each in pieces for p in each]
            names = [self.new.values[p.value].name for p in flat]
            part = slab_of(layer, i, len(spans), own, total, pieces, names)
            part.infer_shapes([self.new.values[p.value].shape for p in flat])
            wanted = [w for each, w in zip(pieces, node.propagate, strict=True) for _ in each]
            made = [ids[i] for ids in tops]
            index = self._put(node, part, [p.value for p in flat], made, (i, len(spans)))
            new = self.new.nodes[index]
            new.propagate, new.params, new.param_propagate = wanted, list(node.params), list(node.param_propagate)
            new.adds = tuple(p.adds for p in flat)

    def _put(
        self, node: Node, layer: Layer, bottoms: list[int], tops: list[int], slab: tuple[int, int] | None = None
    ) -> int:
        """Add a layer made for a node, with its memory order and precision, and return its index."""
        index = len(self.new.nodes)
        self.new.nodes.append(
            replace(
                node, index=index, layer=layer, bottoms=bottoms, tops=tops, scratch={}, origin=node.index, slab=slab
            )
        )
        for t in tops:
            self.new.values[t].producer = index
        return index

    def _join(self, v: int, origin: int) -> int:
        """Add the layer that joins the slabs of a value, and return the whole value.

        Args:
            origin: the layer of the user's that reads it; of an output of the net, the layer that makes it.
        """
        value, slabs = self.old.values[v], self.pieces[v]
        node = self.old.nodes[value.producer]
        name = f"{value.name} [whole]"
        if v not in self.readers:  # the user's blob is the whole value
            name = value.name
            for s in slabs:
                self.new.values[s].blob = self.new.values[s].name
        whole = self._add(value, producer=len(self.new.nodes), top=0, blob=name)
        layer = join_of(node.layer, [self.new.values[s].name for s in slabs], value.name)
        layer.update_context(needs_backward=node.need_backward, channels_last=value.channels_last, half=value.half)
        new = self.new.nodes[self._put(node, layer, list(slabs), [whole])]
        new.propagate, new.params, new.param_propagate = [node.need_backward] * len(slabs), [], []
        new.channels_last, new.half, new.origin = value.channels_last, value.half, origin
        layer.infer_shapes([self.new.values[s].shape for s in slabs])
        return whole

    def _norm(self, node: Node, spans: list[Span], tops: list[int]) -> None:
        """Add the layers of a BatchNorm layer: moments of all slabs, statistics, all slabs by these."""
        norm, old, k = node.layer, self.old.values[node.bottoms[0]], len(spans)
        assert isinstance(norm, BatchNormLayer), "asked by the caller"
        sources = self._bottom(node.bottoms[0])
        assert len(sources) == k, "its bottom is cut as its top"
        each = (2 * norm.channels + 1,)

        def between(name: str) -> int:
            more = {"channels_last": False, "half": False, "loss_weight": 0.0, "producer": -1, "top": 0}
            return self._add(old, name=name, blob=name, shape=each, **more)

        def names(ids: list[int]) -> list[str]:
            return [self.new.values[v].name for v in ids]

        moments = [between(f"{norm.name} [moments {i + 1}/{k}]") for i in range(k)]
        statistics = between(f"{norm.name} [statistics]")
        wanted = node.propagate[0]
        for i, (v, _) in enumerate(sources):
            layer: Layer = SlabMomentsLayer(norm, f"{norm.name} [moments {i + 1}/{k}]", names([v]), names([moments[i]]))
            index = self._put(node, layer, [v], [moments[i]], (i, k))
            new = self.new.nodes[index]
            new.propagate, new.params, new.param_propagate = [wanted], [], []
            new.later = ((tops[i], "data"), (tops[i], "diff"), (statistics, "data"), (statistics, "diff"))
        layer = SlabStatisticsLayer(norm, f"{norm.name} [statistics]", names(moments), names([statistics]))
        index = self._put(node, layer, moments, [statistics])
        self.new.nodes[index].propagate = [False] * k
        self.new.nodes[index].channels_last = self.new.nodes[index].half = False
        for i, (v, _) in enumerate(sources):
            name = f"{norm.name} [slab {i + 1}/{k}]"
            layer = SlabApplyLayer(norm, name, names([v, statistics]), names([tops[i]]))
            index = self._put(node, layer, [v, statistics], [tops[i]], (i, k))
            new = self.new.nodes[index]
            new.propagate, new.params, new.param_propagate = [False, wanted], [], []
            new.adds = (False, i != k - 1)

    def _order(self) -> None:
        """Put the nodes in the order in which they run: of all that can run the deepest layer, and of its slabs the
        first. Layers that run whole keep their order."""
        nodes = self.new.nodes
        waits: list[int] = [0] * len(nodes)
        after: list[list[int]] = [[] for _ in nodes]
        before: dict[tuple[int, type[Layer]] | None, int] = {}  # slabs of a layer run in order, too
        for node in nodes:
            needs = {self.new.values[b].producer for b in node.bottoms}
            key = None if node.slab is None else (node.origin, type(node.layer))
            key = (node.origin, Layer) if key is not None and not isinstance(node.layer, _PASSES) else key
            needs |= {before[key]} if key in before else set()
            before[key] = node.index
            waits[node.index] = len(needs)
            for n in needs:
                after[n].append(node.index)
        ready = [(-node.origin, node.index) for node in nodes if not waits[node.index]]
        heapq.heapify(ready)
        order: list[int] = []
        while ready:
            _, index = heapq.heappop(ready)
            order.append(index)
            for n in after[index]:
                waits[n] -= 1
                if not waits[n]:
                    heapq.heappush(ready, (-nodes[n].origin, n))
        assert len(order) == len(nodes), "a graph has no cycles"
        places = {index: place for place, index in enumerate(order)}
        self.new.nodes = [nodes[index] for index in order]
        for node in self.new.nodes:
            node.index = places[node.index]
        for value in self.new.values:
            value.producer = places[value.producer]
