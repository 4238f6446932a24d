"""Which layers keep one bit per element for their backward in place of a value. Pure.

A layer whose backward only asks on which side of a bound a value lies (ReLU and its kin, alone or at the end of a chain
that runs as one) can save those bits in its forward. That pays where nobody else's backward reads the value: then it
may go after its last forward reader, be it a pooling, a sum or a Concat, and the bits are a 32nd of it. Where a
convolution reads the value anyway, the layer is left as it is, unless bits are quicker to read than the value and cost
nothing to save (the sums at the end of residual chains): there backward needs the value earlier for the last time.
Results are the same to the bit. Only a solver's iterations save bits; passes that a user starts by hand read values.
"""

from __future__ import annotations

import copy
from collections import defaultdict
from collections.abc import Collection, Sequence

from ...layers.base import Runs
from ...layers.masked import Masked
from ...lms.program import Buffer
from ..build.graph import Graph, Node


def mask_layers(graph: Graph, buffers: Sequence[Buffer], least: int | None, staying: Collection[int]) -> list[Node]:
    """Let layers save bits; returns those of them that are new in `graph.groups` or changed there. Their `declare` is
    due, and buffers are then to be assigned anew.

    graph: with its groups, declared, and buffers assigned. least: only values of more than so many bytes are worth it;
    None: no memory is to be saved, only time. staying: buffers that last anyway.
    """
    if any(node.layer.looks_at or (node.layer.runs_on is Runs.HOST and node.bottoms) for node in graph.nodes):
        return []  # shapes may change in the middle, and with them what pays
    inside = {m for group in graph.groups for m in group.members}
    units = [*(n for n in graph.nodes if n.index not in inside), *graph.groups]
    readers, sparers = defaultdict(list), defaultdict(list)
    for unit in units:
        reads = backward_reads(graph, unit)
        left = _reads_masked(graph, unit) if isinstance(unit.layer, Masked) else reads
        for b in left:
            readers[b].append(unit)
        for b in reads - left:
            sparers[b].append(unit)
    chosen: dict[int, Node] = {}
    for b, able in sparers.items():
        cost = sum(4 * unit.layer.mask_words(graph.values[unit.tops[0]].shape) for unit in able)
        goes = least is not None and not readers[b] and b not in staying and buffers[b].nbytes > max(least, cost)
        chosen.update((id(unit), unit) for unit in able if goes or unit.layer.quicker_with_bits)
    return [_masked(graph, unit) for unit in sorted(chosen.values(), key=lambda unit: unit.index)]


def bits_of(graph: Graph, buffers: Sequence[Buffer], least: int) -> list[int]:
    """Buffers of bits that layers save in place of values of more than `least` bytes."""
    masked = (unit for unit in graph.groups if isinstance(unit.layer, Masked) and unit.layer.masked)
    return [u.scratch["bits"] for u in masked if buffers[graph.values[u.tops[0]].data].nbytes > least]


def backward_reads(graph: Graph, unit: Node) -> set[int]:
    """Buffers of values whose data a layer's, or a group's, backward reads."""
    if not unit.need_backward or not (any(unit.propagate) or any(unit.param_propagate)):
        return set()
    needs = unit.layer.backward_needs(unit.propagate, unit.param_propagate)
    values = [unit.bottoms[i] for i in needs.bottoms] + [unit.tops[i] for i in needs.tops]
    return {graph.values[v].data for v in values}


def _reads_masked(graph: Graph, unit: Node) -> set[int]:
    try:
        unit.layer.masked = True
        return backward_reads(graph, unit)
    finally:
        unit.layer.masked = False


def _masked(graph: Graph, unit: Node) -> Node:
    """The unit with a layer that saves bits: a group is changed; a layer of its own becomes a group of one, so that
    passes by hand go on reading its value."""
    if unit.group is None:
        unit = copy.copy(unit)
        unit.layer, unit.scratch = copy.copy(unit.layer), {}
        unit.layer.scratches = {}
        unit.group, unit.members = len(graph.groups), (unit.index,)
        graph.groups.append(unit)
    unit.layer.masked = True
    return unit
