"""Runs of layers that can work on a part of the batch at a time. Pure.

A region is a run of layers in the net's order, all of which say `splits_over_batch`, over blobs of one first axis. What
is made and read inside it exists in parts only; what crosses its border is whole. Layers that share their bottom's
memory (Split, Flatten) lie in a region only with all that they share, for a part is no piece of a whole's memory; with
`lms_param { policy: RECOMPUTE }`, only where all that they make lies inside.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from math import gcd

from ...layers.base import Runs, count
from ...layers.draws import LANES, RandomLayer
from ...proto.caffe_pb2 import LMSParameter
from ..build.graph import Graph, Node


@dataclass(frozen=True)
class Region:
    """Layers first..last (indices, both included), over blobs of `items` images."""

    first: int
    last: int
    items: int

    def __contains__(self, node: int) -> bool:
        return self.first <= node <= self.last


def find_regions(graph: Graph, cut: Collection[int] = ()) -> list[Region]:
    """The longest regions without the layers `cut`, in order. None where shapes may change in the middle of an
    iteration."""
    if any(node.layer.looks_at or (node.layer.runs_on is Runs.HOST and node.bottoms) for node in graph.nodes):
        return []
    closed = [region for run in _runs(graph, cut) for region in _closed(graph, run)]
    return [region for whole in closed if (region := _trimmed(graph, whole)) is not None]


def is_region(graph: Graph, piece: Region, parts: int) -> bool:
    """Whether some layers of a region are one, too, that can be cut into so many parts."""
    works = any(node.layer.runs_on is Runs.DEVICE for node in graph.nodes[piece.first : piece.last + 1])
    return works and _closed(graph, piece) == [piece] and len(boundaries(graph, piece, parts)) > parts


def _trimmed(graph: Graph, region: Region) -> Region | None:
    """The region without as many of its last layers, or else of its first, as keep it from being cut into two: a row of
    what they leave whole has an odd number of elements. None where nothing is left that does any work."""
    pieces = [Region(region.first, last, region.items) for last in range(region.last, region.first - 1, -1)]
    pieces += [Region(first, region.last, region.items) for first in range(region.first + 1, region.last + 1)]
    return next((piece for piece in pieces if is_region(graph, piece, 2)), None)


def _runs(graph: Graph, cut: Collection[int]) -> Iterable[Region]:
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
    """How many images a layer works on, if it can work on some of them; else 0."""
    layer, values = node.layer, [graph.values[v] for v in (*node.bottoms, *node.tops)]
    if not layer.splits_over_batch or layer.runs_on is Runs.HOST or not node.bottoms:
        return 0
    if layer.param.lms_param.policy == LMSParameter.KEEP or any(v.loss_weight for v in values):
        return 0
    firsts = {v.shape[0] if v.shape else 0 for v in values}
    empty = any(count(v.shape) == 0 for v in values)
    return firsts.pop() if len(firsts) == 1 and not empty else 0


def readers(graph: Graph) -> Mapping[int, list[int]]:
    """Layers that read a value, by its id."""
    found: dict[int, list[int]] = {}
    for node in graph.nodes:
        for b in node.bottoms:
            found.setdefault(b, []).append(node.index)
    return found


def inner_values(graph: Graph, region: Region, reading: Mapping[int, list[int]]) -> set[int]:
    """Values that are made and read inside only. What nobody reads is for the user, so it is whole."""
    return {
        t
        for node in graph.nodes[region.first : region.last + 1]
        for t in node.tops
        if reading.get(t) and all(i in region for i in reading[t])
    }


def _closed(graph: Graph, region: Region) -> list[Region]:
    """The region without the layers that share memory with a value outside, or are to make one again, in pieces."""
    reading = readers(graph)
    inner = inner_values(graph, region, reading)
    for node in graph.nodes[region.first : region.last + 1]:
        shared = node.layer.shares_data()
        stays = {v for t, b in shared.items() for v in (node.tops[t], node.bottoms[b])}
        if node.layer.param.lms_param.policy == LMSParameter.RECOMPUTE:  # parts of a whole are not made again
            stays |= set(node.tops)
        if stays - inner:
            pieces = [
                Region(region.first, node.index - 1, region.items),
                Region(node.index + 1, region.last, region.items),
            ]
            return [r for piece in pieces if piece.first <= piece.last for r in _closed(graph, piece)]
    return [region]


def boundaries(graph: Graph, region: Region, parts: int) -> list[int]:
    """Images at which the parts begin, and the number of images. So many parts, fewer where there are too few places to
    cut: each part of a whole blob, and of what is drawn at random, begins at a multiple of LANES elements (16 bytes of
    float32, which kernels and libraries count on)."""
    inner = inner_values(graph, region, readers(graph))
    step = 1
    for node in graph.nodes[region.first : region.last + 1]:
        draws = isinstance(node.layer, RandomLayer) and node.layer.random
        for v in (*node.bottoms, *node.tops):
            if draws or v not in inner:
                one = LANES // gcd(LANES, count(graph.values[v].shape, 1))
                step = step * one // gcd(step, one)
    units = -(-region.items // step)
    parts = min(parts, units)
    return [min(region.items, step * (i * units // parts)) for i in range(parts)] + [region.items]
