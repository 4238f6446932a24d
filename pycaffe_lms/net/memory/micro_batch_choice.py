"""Chooses which regions of a net run in micro-batches ("parts" of the batch), which layers in blocks of outputs. Pure.

The numbers of parts and blocks are those of `-lms_split` and `-lms_split_outputs`, or, with `auto`, the fewest that fit
the budget. `auto` splits nothing that fits whole, because gradients then add up in another order and results differ in
the last digits. A step that does not fit is split into blocks if parameters are more than half of its bytes, else into
parts; if that does not help, the other way.

`Splitting` holds the choice, `Splitting.widen` refines it. See also: `fit.py` (when it is refined),
`../passes/micro_batch.py` (the graph that then runs).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from ...layers.base import count
from ...lms.program import Buffer
from ..build.graph import Graph, Node
from ..passes.micro_batch import MicroBatchedGraph
from ..passes.regions import Region, boundaries, cuttable, find_regions, inner_values
from ..passes.slabs import cuttable_into_slabs, most_slabs, refuses_slabs
from ..program.programs import AnyStep
from ..program.steps import LayerStep


@dataclass(frozen=True)
class Chosen:
    """Hold the number of parts by (first, last layer) of a region, of blocks of outputs by layer, and of slabs of the
    largest layers; 0: no slabs."""

    parts: Mapping[tuple[int, int], int] = field(default_factory=dict)
    blocks: Mapping[int, int] = field(default_factory=dict)
    slabs: int = 0


@dataclass(frozen=True)
class Shortage:
    """Hold what a net's steps need and what there is; count the parts or blocks that make a step fit.

    Args:
        graph, micro_batched: the user's graph, and how it runs now.
        steps: of layers and of updates; need: bytes of `managed` buffers that each of them needs at once.
        limit: bytes of `managed` buffers on the device at once.
    """

    graph: Graph
    micro_batched: MicroBatchedGraph
    steps: Sequence[AnyStep]
    need: Sequence[int]
    managed: Mapping[int, Buffer]
    limit: int

    def _bytes(self, step: AnyStep, buffers: set[int]) -> int:
        here = {a.buffer for a in step.step.accesses} & buffers & self.managed.keys()
        return sum(self.managed[b].nbytes for b in here)

    def parameters(self, step: AnyStep) -> tuple[int, int]:
        """Find the user's layer that a step runs or whose parameters it updates.

        Returns:
            (layer, bytes of its parameters, their gradients and histories that the step needs); (-1, 0) for an update
            of several layers or of none.
        """
        run = self.micro_batched.graph
        if isinstance(step, LayerStep):
            node = run.nodes[step.node]
            return node.origin, self._bytes(
                step, {b for p in node.params for b in (run.params[p].data, run.params[p].diff)}
            )
        touched = {a.buffer for a in step.step.accesses}
        layers = {run.nodes[p.node].origin for p in run.learnable if not touched.isdisjoint((p.data, p.diff))}
        return (layers.pop(), self._bytes(step, touched)) if len(layers) == 1 else (-1, 0)

    def blocks(self, step: AnyStep, layer: int, own: int, nbytes: int, now: int) -> int:
        """Return the number of blocks of the layer for which the step would fit; 0: blocks cannot help.

        own: bytes of parameters that the step needs. nbytes: all bytes that it needs. now: current number of blocks.
        """
        rest = nbytes - own
        if isinstance(step, LayerStep):  # a block reads the whole batch
            node = self.graph.nodes[layer]
            images = count(self.graph.values[node.bottoms[0]].shape) * node.layer.dtype.itemsize
            rest = max(rest, images if step.forward or not node.propagate[0] else 2 * images)
        if own == 0 or rest >= self.limit:
            return 0
        return now + 1 if nbytes <= self.limit else max(now + 1, -(-own * now // (self.limit - rest)))

    def parts(self, step: LayerStep, region: Region, nbytes: int, now: int) -> int:
        """Return the number of parts of the region for which the step would fit; 0: parts cannot help.

        nbytes: all bytes that the step needs. now: current number of parts.
        """
        if nbytes <= self.limit:  # every step fits, but the packing does not
            return now + 1
        run = self.micro_batched.graph
        whole = _whole_bytes(self.graph, run, region, run.nodes[step.node], step, self.managed)
        return 0 if whole >= self.limit else max(now + 1, -(-(nbytes - whole) * now // (self.limit - whole)))


@dataclass
class Splitting:
    """Hold which layers of one net run in parts and in blocks.

    Args:
        asked: parts of every region; None: chosen here, region by region; 0 or 1: no parts.
        asked_blocks: the same for blocks of outputs, for every layer that can be cut.
        asked_slabs: the same for slabs of the largest layers. A net in slabs has no parts of the batch.
        chosen: what was chosen here so far.
        obstacle: which layer cannot run in slabs, and why, where more slabs were wanted last; None: none is in the way.
        layers_left: layers, each time in slabs, that may still be arranged to choose more slabs; None: no limit.
        given: blocks, by layer, of layers that share parameters with another net and so are cut as there; 1: whole.
    """

    asked: int | None = None
    asked_blocks: int | None = None
    asked_slabs: int | None = 0
    chosen: Chosen = Chosen()
    layers_left: int | None = None
    given: dict[int, int] = field(default_factory=dict)
    obstacle: str | None = None

    def blocks(self, graph: Graph) -> dict[int, int]:
        """Return the number of blocks by layer, for layers that run in more than one."""
        able = cuttable(graph)
        found = dict(self.chosen.blocks) if self.asked_blocks is None else dict.fromkeys(able, self.asked_blocks)
        found |= self.given
        return {i: min(found[i], outputs) for i, outputs in able.items() if found.get(i, 1) > 1}

    def parts(self, graph: Graph) -> dict[Region, int]:
        """Return the number of parts by region, for the current shapes."""
        if self.asked is not None:
            return dict.fromkeys(self._regions(graph), self.asked) if self.asked > 1 else {}
        if not self.chosen.parts:
            return {}
        return {r: self.chosen.parts[_key(r)] for r in self._regions(graph) if _key(r) in self.chosen.parts}

    def slabs(self, graph: Graph) -> int:
        """Return the number of slabs of the largest layers; 0: no layer runs in slabs."""
        n = self.chosen.slabs if self.asked_slabs is None else self.asked_slabs
        return min(n, most_slabs(graph)) if n > 1 else 0

    @property
    def chooses(self) -> bool:
        """Return whether the number of parts, of blocks or of slabs is chosen here."""
        return None in (self.asked, self.asked_blocks, self.asked_slabs)

    def _regions(self, graph: Graph) -> list[Region]:
        return find_regions(graph, self.blocks(graph))

    def more(self, graph: Graph, factor: float) -> Chosen:
        """Return `chosen` with `factor` times the parts, blocks and slabs, limited by the number of places to cut."""
        regions, able = self.parts(graph).items(), cuttable(graph)
        parts = {_key(r): min(math.ceil(factor * k), _most(graph, r)) for r, k in regions}
        blocks = {i: min(math.ceil(factor * n), able[i]) for i, n in self.chosen.blocks.items()}
        slabs = self.chosen.slabs and min(math.ceil(factor * self.chosen.slabs), most_slabs(graph))
        return Chosen(parts, blocks, slabs)

    def adopt(self, graph: Graph, blocks: Mapping[int, int]) -> bool:
        """Fix the number of blocks of some layers, overriding the choice. Returns whether that changes anything."""
        before = self.blocks(graph)
        self.given.update(blocks)
        return self.blocks(graph) != before

    def widen(self, short: Shortage) -> bool:
        """Choose more parts or blocks for every step over the limit, or for the largest ones if none is over it; more
        slabs where these cannot help.

        Returns:
            Whether the choice grew. False, with the choice unchanged, if nothing can help some step.
        """
        fixed = self.asked_slabs is not None
        if (fixed or not self.slabs(short.graph)) and self._more_parts(short):
            return True
        return not fixed and self._more_slabs(short)

    def _more_slabs(self, short: Shortage) -> bool:
        """Choose more slabs, and no parts of the batch. Returns whether the choice grew."""
        graph, micro_batched, need, limit = short.graph, short.micro_batched, short.need, short.limit
        now, most, able = max(1, self.slabs(graph)), most_slabs(graph), frozenset(cuttable_into_slabs(graph))
        self.obstacle = None
        for step, nbytes in zip(short.steps, need, strict=True):
            if nbytes > limit:
                node = micro_batched.graph.nodes[step.node] if isinstance(step, LayerStep) else None
                if node is None:
                    return False  # an update
                joins = node.slab is None and node.origin in micro_batched.slabs
                if joins or node.origin not in able:
                    why = "joins the slabs of an output" if joins else refuses_slabs(graph, graph.nodes[node.origin])
                    name = graph.nodes[node.origin].name
                    self.obstacle = f'layer "{name}" cannot run in slabs: it {why or "reads a blob that is not cut"}'
                    return False
        if now >= most or not able:
            return False
        wanted = min(most, max(now + 1, math.ceil(now * max(need, default=0) / max(1, limit))))
        if self.layers_left is not None:
            self.layers_left -= wanted * len(graph.nodes)
            if self.layers_left < 0:
                return False
        self.chosen = Chosen(blocks=self.chosen.blocks, slabs=wanted)
        return True

    def _more_parts(self, short: Shortage) -> bool:
        """Choose more parts or blocks. The result is that of `widen`."""
        graph, need, limit = short.graph, short.need, short.limit
        regions = self._regions(graph) if self.asked is None and not self.slabs(graph) else []
        now, able = self.blocks(graph), cuttable(graph)
        parts, blocks, largest = dict(self.chosen.parts), dict(self.chosen.blocks), max(need, default=0)
        for step, nbytes in zip(short.steps, need, strict=True):
            if nbytes <= limit and nbytes < largest:
                continue
            layer, own = short.parameters(step)
            in_blocks = 0
            if self.asked_blocks is None and layer in able and layer not in self.given:
                in_blocks = min(short.blocks(step, layer, own, nbytes, now.get(layer, 1)), able[layer])
            region = next((r for r in regions if layer in r), None)
            in_parts = 0  # more parts than so far, or none
            if isinstance(step, LayerStep) and region is not None:
                so_far = self.chosen.parts.get(_key(region), 1)
                in_parts = min(short.parts(step, region, nbytes, so_far), _most(graph, region))
                in_parts = in_parts if in_parts > so_far else 0
            more_blocks = in_blocks > now.get(layer, 1)
            if more_blocks and (2 * own > nbytes or not in_parts):
                blocks[layer] = max(in_blocks, blocks.get(layer, 1))
            elif in_parts and region is not None:
                parts[_key(region)] = max(in_parts, parts.get(_key(region), 1))
            else:
                return False
        self.chosen = Chosen(parts, blocks, self.chosen.slabs)
        left = {_key(r) for r in self._regions(graph)}  # new blocks may change regions; choices for old regions go
        self.chosen = Chosen({key: k for key, k in parts.items() if key in left}, blocks, self.chosen.slabs)
        return True


def _key(region: Region) -> tuple[int, int]:
    return region.first, region.last


def _most(graph: Graph, region: Region) -> int:
    """Return the largest number of parts of a region."""
    return len(boundaries(graph, region, region.items)) - 1


def _whole_bytes(
    graph: Graph, run: Graph, region: Region, node: Node, step: LayerStep, managed: Mapping[int, Buffer]
) -> int:
    """Return the bytes that a step needs however many parts there are: parameters, and blobs at the region's border."""
    fixed = {b for p in node.params for b in (run.params[p].data, run.params[p].diff)}
    if node.part is not None:
        found = (run.values[v].whole for v in (*node.bottoms, *node.tops))
        wholes = (run.values[v] for v in found if v is not None)
    else:
        inner = inner_values(graph, region, graph.readers())
        user = graph.nodes[node.origin]
        wholes = (graph.values[v] for v in (*user.bottoms, *user.tops) if v not in inner)
    fixed |= {b for value in wholes for b in (value.data, value.diff)}
    return sum(managed[a.buffer].nbytes for a in step.step.accesses if a.buffer in fixed and a.buffer in managed)


def describe(graph: Graph, micro_batched: MicroBatchedGraph) -> list[str]:
    """Return a line for each region that runs in parts, and for each layer in blocks of outputs."""
    lines = []
    for region, starts in micro_batched.starts.items():
        sizes = sorted({b - a for a, b in pairwise(starts)})
        images = " or ".join(map(str, sizes))
        first, last = graph.nodes[region.first].name, graph.nodes[region.last].name
        lines.append(f'layers "{first}" .. "{last}" run in {len(starts) - 1} parts of {images} images')
    for layer, cuts in micro_batched.cuts.items():
        sizes = sorted({b - a for a, b in pairwise(cuts)})
        name, outputs = graph.nodes[layer].name, " or ".join(map(str, sizes))
        lines.append(f'layer "{name}" runs in {len(cuts) - 1} blocks of {outputs} outputs')
    if micro_batched.slabs:
        first, last = (graph.nodes[end(micro_batched.slabs)].name for end in (min, max))
        slabs = max(len(cuts) - 1 for cuts in micro_batched.slabs.values())
        rows = max(cuts[1] - cuts[0] for cuts in micro_batched.slabs.values())
        n = len(micro_batched.slabs)
        lines.append(f'{n} layers, "{first}" .. "{last}", run in {slabs} slabs of up to {rows} rows')
    return lines
