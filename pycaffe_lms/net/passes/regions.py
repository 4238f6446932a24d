"""What of a net can be cut: regions of layers into micro-batches, layers into blocks of outputs. Pure.

A region is consecutive layers that can work on one micro-batch at a time. All of them declare `splits_over_batch`, over
blobs with one size of the first axis. A value that is made and read inside exists only as micro-batches, each with
memory of its own; a value at the border is whole. So a layer that shares its bottom's memory (Split, Flatten) may be in
a region only if all values that share it are inside, and a layer with `lms_param { policy: RECOMPUTE }` only if all its
tops are. `find_regions` finds the regions, `boundaries` the images at which one can be cut.

Blocks of outputs are for nets that do not fit because of one layer's parameters; each has its rows of them. `cuttable`
finds the layers, `output_cuts` the places to cut. `micro_batch.py` builds the graph that then runs,
`layers/micro_batch.py` the parts of a layer.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from math import gcd, lcm

from ...layers.base import Runs, count
from ...layers.mixins import LANES, RandomLayer
from ...proto.caffe_pb2 import LMSParameter
from ..build.graph import Graph, Node

EVEN = 4  # outputs: blocks of a multiple of them keep rows of their tops aligned to 16 bytes


@dataclass(frozen=True)
class Region:
    """Name the layers first..last (indices, both included), over blobs of `items` images."""

    first: int
    last: int
    items: int

    def __contains__(self, node: int) -> bool:
        return self.first <= node <= self.last


def find_regions(graph: Graph, cut: Collection[int] = ()) -> list[Region]:
    """Return the longest regions, in order, that exclude the layers `cut`; none where shapes may change within an
    iteration."""
    if graph.shapes_may_change:
        return []
    pieces = [piece for run in _candidates(graph, cut) for piece in _valid_pieces(graph, run)]
    return [region for piece in pieces if (region := _divisible(graph, piece)) is not None]


def is_region(graph: Graph, piece: Region, parts: int) -> bool:
    """Return whether a piece of a region is a region itself that can be cut into so many micro-batches."""
    works = any(node.layer.declares.runs_on is Runs.DEVICE for node in graph.nodes[piece.first : piece.last + 1])
    return works and _valid_pieces(graph, piece) == [piece] and len(boundaries(graph, piece, parts)) > parts


def _divisible(graph: Graph, region: Region) -> Region | None:
    """Return a piece of a region that can be cut into two: without as few of its last layers as possible, or else of
    its first. None if there is no such piece with a layer that runs on the device.

    A region of few images cannot be cut if an image of a border value has an odd number of elements: see
    `boundaries`."""
    pieces = [Region(region.first, last, region.items) for last in range(region.last, region.first - 1, -1)]
    pieces += [Region(first, region.last, region.items) for first in range(region.first + 1, region.last + 1)]
    return next((piece for piece in pieces if is_region(graph, piece, 2)), None)


def _candidates(graph: Graph, cut: Collection[int]) -> Iterable[Region]:
    """Yield consecutive layers, without `cut`, that work on the same number of images."""
    run: Region | None = None
    for node in graph.nodes:
        items = 0 if node.index in cut else _items(graph, node)
        if items and run is not None and items == run.items:
            run = Region(run.first, node.index, items)
            continue
        if run is not None:
            yield run
        run = Region(node.index, node.index, items) if items else None
    if run is not None:
        yield run


def _items(graph: Graph, node: Node) -> int:
    """Return how many images a layer works on, 0 if it cannot work on some of them at a time."""
    layer, values = node.layer, [graph.values[v] for v in (*node.bottoms, *node.tops)]
    if not layer.splits_over_batch or layer.declares.runs_on is Runs.HOST or not node.bottoms:
        return 0
    if layer.param.lms_param.policy == LMSParameter.KEEP or any(v.loss_weight for v in values):
        return 0
    firsts = {v.shape[0] if v.shape else 0 for v in values}
    empty = any(count(v.shape) == 0 for v in values)
    return firsts.pop() if len(firsts) == 1 and not empty else 0


def inner_values(graph: Graph, region: Region, reading: Mapping[int, list[int]]) -> set[int]:
    """Return the values that a region makes and that are read only inside. One that no layer reads is an output for the
    user, so it is not among them."""
    return {
        t
        for node in graph.nodes[region.first : region.last + 1]
        for t in node.tops
        if reading.get(t) and all(i in region for i in reading[t])
    }


def _valid_pieces(graph: Graph, region: Region) -> list[Region]:
    """Return the pieces of a region without the layers that share memory with a value outside, or that must
    rematerialize one."""
    reading = graph.readers()
    inner = inner_values(graph, region, reading)
    for node in graph.nodes[region.first : region.last + 1]:
        shared = node.layer.shares_data()
        must_be_inner = {v for t, b in shared.items() for v in (node.tops[t], node.bottoms[b])}
        if node.layer.param.lms_param.policy == LMSParameter.RECOMPUTE:  # images of a whole are not rematerialized
            must_be_inner |= set(node.tops)
        if must_be_inner - inner:
            pieces = [
                Region(region.first, node.index - 1, region.items),
                Region(node.index + 1, region.last, region.items),
            ]
            return [r for piece in pieces if piece.first <= piece.last for r in _valid_pieces(graph, piece)]
    return [region]


def boundaries(graph: Graph, region: Region, parts: int) -> list[int]:
    """Return the first image of each micro-batch, then the number of images.

    There are `parts` micro-batches, or fewer where there are too few places to cut: in whole blobs and in random draws,
    each begins at a multiple of LANES elements (16 bytes of float32, which kernels and libraries rely on)."""
    inner = inner_values(graph, region, graph.readers())
    step = 1
    for node in graph.nodes[region.first : region.last + 1]:
        sizes = [count(graph.values[v].shape, 1) for v in (*node.bottoms, *node.tops) if v not in inner]
        if isinstance(node.layer, RandomLayer) and node.layer.random:
            sizes.append(node.layer.draws_per_item(graph.values[node.tops[0]].shape))
        for size in sizes:
            step = lcm(step, LANES // gcd(LANES, size))
    units = -(-region.items // step)
    parts = min(parts, units)
    return [min(region.items, step * (i * units // parts)) for i in range(parts)] + [region.items]


def cuttable(graph: Graph) -> dict[int, int]:
    """Return {index of a layer that can be cut: its number of outputs}. Excludes layers that share a parameter and
    those with `lms_param { policy: KEEP }`."""
    users = Counter(p.owner for p in graph.params)
    found = {}
    for node in graph.nodes:
        own = all(graph.params[p].owner == p and users[p] == 1 for p in node.params)
        if own and node.layer.splits_over_outputs > 1 and node.layer.param.lms_param.policy != LMSParameter.KEEP:
            found[node.index] = node.layer.splits_over_outputs
    return found


def output_cuts(outputs: int, blocks: int) -> list[int]:
    """Return the first output of each block, then the number of outputs.

    There are never more blocks than outputs. All but the last have a multiple of EVEN outputs if there are enough."""
    step = EVEN if outputs >= EVEN * blocks else 1
    units = -(-outputs // step)
    blocks = min(blocks, units)
    return [min(outputs, step * (j * units // blocks)) for j in range(blocks)] + [outputs]
