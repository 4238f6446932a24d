"""Which regions of a net run in how many parts of the batch, and which layers in how many blocks of their outputs: as
`-lms_split` and `-lms_split_outputs` say, or as few as a budget allows. Pure.

With `auto`, nothing is split that fits whole: results would differ from the whole net's in the last digits, for
gradients add up in another order. A step that does not fit is made smaller in blocks where parameters are the larger
half of it, else in parts; the other way where the first does not help.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from ...layers.base import count
from ...lms.layout.inplace_reuse import inplace_reuses, needed_bytes
from ...lms.program import Buffer, Program
from ..build.graph import Graph, Node
from ..passes.blocks import cuttable
from ..passes.micro_batch import MicroBatchedGraph
from ..passes.regions import Region, boundaries, find_regions, inner_values, readers
from ..program.programs import HostedStep
from ..program.steps import LayerStep

AnyStep = LayerStep | HostedStep


@dataclass(frozen=True)
class Chosen:
    """parts: of regions, by their first and last layer. blocks: of outputs, by layer."""

    parts: Mapping[tuple[int, int], int] = field(default_factory=dict)
    blocks: Mapping[int, int] = field(default_factory=dict)


@dataclass
class Splitting:
    """Of one net. asked: parts of every region; None: chosen here, region by region; 0 or 1: none. asked_blocks:
    likewise, blocks of outputs of every layer that can be cut.

    given: blocks of layers that share parameters with another net, which lie as they lie there; 1: whole."""

    asked: int | None = None
    asked_blocks: int | None = None
    chosen: Chosen = Chosen()
    given: dict[int, int] = field(default_factory=dict)

    def blocks(self, graph: Graph) -> dict[int, int]:
        """Layers that run in blocks of outputs, and in how many."""
        able = cuttable(graph)
        found = dict(self.chosen.blocks) if self.asked_blocks is None else dict.fromkeys(able, self.asked_blocks)
        found |= self.given
        return {i: min(found[i], outputs) for i, outputs in able.items() if found.get(i, 1) > 1}

    def parts(self, graph: Graph) -> dict[Region, int]:
        """What runs in parts, with the shapes of now."""
        if self.asked is not None:
            return dict.fromkeys(self._regions(graph), self.asked) if self.asked > 1 else {}
        if not self.chosen.parts:
            return {}
        return {r: self.chosen.parts[_key(r)] for r in self._regions(graph) if _key(r) in self.chosen.parts}

    @property
    def chooses(self) -> bool:
        """Whether anything is left to be chosen here."""
        return self.asked is None or self.asked_blocks is None

    def _regions(self, graph: Graph) -> list[Region]:
        return find_regions(graph, self.blocks(graph))

    def more(self, graph: Graph, factor: float) -> Chosen:
        """`chosen`, so many times as many parts and blocks, as far as there are places to cut."""
        regions, able = self.parts(graph).items(), cuttable(graph)
        parts = {_key(r): min(math.ceil(factor * k), _most(graph, r)) for r, k in regions}
        return Chosen(parts, {i: min(math.ceil(factor * n), able[i]) for i, n in self.chosen.blocks.items()})

    def adopt(self, graph: Graph, blocks: Mapping[int, int]) -> bool:
        """Let layers have so many blocks, whatever is asked or chosen here. Returns whether that changes anything."""
        before = self.blocks(graph)
        self.given.update(blocks)
        return self.blocks(graph) != before

    def widen(self, graph: Graph, unfolded: MicroBatchedGraph, need: Sequence[int], steps: Sequence[AnyStep],
              managed: Mapping[int, Buffer], limit: int) -> bool:  # fmt: skip
        """Choose more parts or blocks, where that can help. Returns whether.

        need: bytes of `managed` buffers that each of these steps, layers' and updates, needs at once. limit: bytes that
        there are."""
        look = _Look(graph, unfolded, managed, limit)
        regions = self._regions(graph) if self.asked is None else []
        now, able = self.blocks(graph), cuttable(graph)
        parts, blocks, largest = dict(self.chosen.parts), dict(self.chosen.blocks), max(need, default=0)
        for step, nbytes in zip(steps, need, strict=True):
            if nbytes <= limit and nbytes < largest:
                continue
            layer, own = look.parameters(step)
            in_blocks = 0
            if self.asked_blocks is None and layer in able and layer not in self.given:
                in_blocks = min(look.blocks(step, layer, own, nbytes, now.get(layer, 1)), able[layer])
            region = next((r for r in regions if layer in r), None) if isinstance(step, LayerStep) else None
            in_parts = 0
            if self.asked is None and region is not None:
                so_far = self.chosen.parts.get(_key(region), 1)
                in_parts = min(look.parts(step, region, nbytes, so_far), _most(graph, region))
            more_blocks = in_blocks > now.get(layer, 1)
            more_parts = region is not None and in_parts > self.chosen.parts.get(_key(region), 1)
            if more_blocks and (2 * own > nbytes or not more_parts):
                blocks[layer] = max(in_blocks, blocks.get(layer, 1))
            elif more_parts:
                parts[_key(region)] = max(in_parts, parts.get(_key(region), 1))
            else:
                return False
        self.chosen = Chosen(parts, blocks)
        left = {_key(r) for r in self._regions(graph)}  # of what layers in blocks leave of regions nothing is known yet
        self.chosen = Chosen({key: k for key, k in parts.items() if key in left}, blocks)
        return True


@dataclass(frozen=True)
class _Look:
    """At steps of the graph that runs. managed: buffers, of which `limit` bytes may be there at once."""

    graph: Graph
    unfolded: MicroBatchedGraph
    managed: Mapping[int, Buffer]
    limit: int

    def _bytes(self, step: AnyStep, buffers: set[int]) -> int:
        here = {a.buffer for a in step.step.accesses} & buffers & self.managed.keys()
        return sum(self.managed[b].nbytes for b in here)

    def parameters(self, step: AnyStep) -> tuple[int, int]:
        """(a layer of the user's, bytes of its parameters, their gradients and histories that the step needs): the
        layer that runs, or the one whose parameters are updated; (-1, 0) where that are several or none."""
        run = self.unfolded.graph
        if isinstance(step, LayerStep):
            node = run.nodes[step.node]
            return node.origin, self._bytes(
                step, {b for p in node.params for b in (run.params[p].data, run.params[p].diff)}
            )
        touched = {a.buffer for a in step.step.accesses}
        layers = {run.nodes[p.node].origin for p in run.learnable if not touched.isdisjoint((p.data, p.diff))}
        return (layers.pop(), self._bytes(step, touched)) if len(layers) == 1 else (-1, 0)

    def blocks(self, step: AnyStep, layer: int, own: int, nbytes: int, now: int) -> int:
        """In how many blocks the layer would have to run for the step to fit; 0: that cannot help."""
        rest = nbytes - own
        if isinstance(step, LayerStep):  # a block has the whole batch
            node = self.graph.nodes[layer]
            images = count(self.graph.values[node.bottoms[0]].shape) * node.layer.dtype.itemsize
            rest = max(rest, images if step.forward or not node.propagate[0] else 2 * images)
        if own == 0 or rest >= self.limit:
            return 0
        return now + 1 if nbytes <= self.limit else max(now + 1, -(-own * now // (self.limit - rest)))

    def parts(self, step: LayerStep, region: Region, nbytes: int, now: int) -> int:
        """In how many parts the region would have to run for the step to fit; 0: that cannot help."""
        if nbytes <= self.limit:  # steps fit, their offsets do not
            return now + 1
        run = self.unfolded.graph
        whole = _whole_bytes(self.graph, run, region, run.nodes[step.node], step, self.managed)
        return 0 if whole >= self.limit else max(now + 1, -(-(nbytes - whole) * now // (self.limit - whole)))


def _key(region: Region) -> tuple[int, int]:
    return region.first, region.last


def _most(graph: Graph, region: Region) -> int:
    """Parts of a region, at most."""
    return len(boundaries(graph, region, region.items)) - 1


def needs(steps: Sequence[AnyStep], managed: Mapping[int, Buffer]) -> list[int]:
    """Bytes of managed buffers that every step needs at once."""
    program = Program("all", tuple(s.step for s in steps), frozenset())
    sizes = {b: buffer.nbytes for b, buffer in managed.items()}
    pairs = inplace_reuses(program, managed)
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


def describe(graph: Graph, unfolded: MicroBatchedGraph) -> list[str]:
    """A line for each region that runs in parts, and for each layer in blocks of outputs."""
    lines = []
    for region, starts in unfolded.starts.items():
        sizes = sorted({b - a for a, b in pairwise(starts)})
        images = " or ".join(map(str, sizes))
        first, last = graph.nodes[region.first].name, graph.nodes[region.last].name
        lines.append(f'layers "{first}" .. "{last}" run in {len(starts) - 1} parts of {images} images')
    for layer, cuts in unfolded.cuts.items():
        sizes = sorted({b - a for a, b in pairwise(cuts)})
        name, outputs = graph.nodes[layer].name, " or ".join(map(str, sizes))
        lines.append(f'layer "{name}" runs in {len(cuts) - 1} blocks of {outputs} outputs')
    return lines
