"""Masks: which layers save one bit per element for their backward instead of reading a value. Pure.

A layer whose backward only asks on which side of a bound a value lies (ReLU and similar layers, alone or at the end of
a fused chain) can save those bits in its forward; they take a 32nd of the value's memory. That saves memory if no other
backward reads the value, which is then freed after its last forward reader. If another backward reads it anyway, the
layer saves bits only if they are faster to read than the value and cost nothing to save (sums at the end of residual
chains). Results are bit-identical. Only a solver's iterations save bits; passes started by hand read values.
"""

from __future__ import annotations

import copy
from collections import defaultdict
from collections.abc import Collection, Sequence

from ...layers.mixins import Masked
from ...lms.program import Buffer
from ..build.graph import Graph, Node


def mask_layers(graph: Graph, buffers: Sequence[Buffer], least: int | None, staying: Collection[int]) -> list[Node]:
    """Choose the layers that save bits, and return their nodes, which are new or changed in `graph.groups`.

    The caller must then call `declare` on them and assign buffers again.

    Args:
        graph: with groups, after `declare`, with buffers assigned.
        least: replace only values of more bytes; None: save time only, no memory.
        staying: buffers that are never freed within an iteration.
    """
    if graph.shapes_may_change:
        return []  # shapes may change within an iteration, and the choice depends on them
    # buffer -> layers that must read it, those that may read bits instead
    readers: dict[int, list[Node]] = defaultdict(list)
    maskable: dict[int, list[tuple[Node, Masked]]] = defaultdict(list)
    for unit in graph.units():
        reads = backward_reads(graph, unit)
        left = reads
        if isinstance(layer := unit.layer, Masked):
            left = _reads_masked(graph, unit)
            for b in reads - left:
                maskable[b].append((unit, layer))
        for b in left:
            readers[b].append(unit)
    chosen: dict[int, Node] = {}
    for b, able in maskable.items():
        cost = sum(4 * layer.mask_words(graph.values[unit.tops[0]].shape) for unit, layer in able)
        frees_it = least is not None and not readers[b] and b not in staying and buffers[b].nbytes > max(least, cost)
        chosen.update((id(unit), unit) for unit, layer in able if frees_it or layer.quicker_with_bits)
    return [_masked(graph, unit) for unit in sorted(chosen.values(), key=lambda unit: unit.index)]


def bits_of(graph: Graph, buffers: Sequence[Buffer], least: int) -> list[int]:
    """Return the buffers of bits that layers save instead of values of more than `least` bytes."""
    masked = (unit for unit in graph.groups if isinstance(unit.layer, Masked) and unit.layer.context.saves_bits)
    return [u.scratch["bits"] for u in masked if buffers[graph.values[u.tops[0]].data].nbytes > least]


def backward_reads(graph: Graph, unit: Node) -> set[int]:
    """Return the data buffers of values that the backward of a layer or a group reads."""
    if not unit.need_backward or not (any(unit.propagate) or any(unit.param_propagate)):
        return set()
    needs = unit.layer.backward_needs(unit.propagate, unit.param_propagate)
    values = [unit.bottoms[i] for i in needs.bottoms] + [unit.tops[i] for i in needs.tops]
    values += [v for v, which in unit.later if which == "data"]
    return {graph.values[v].data for v in values}


def _reads_masked(graph: Graph, unit: Node) -> set[int]:
    """Return `backward_reads` as it would be if the layer saved bits."""
    try:
        unit.layer.update_context(saves_bits=True)
        return backward_reads(graph, unit)
    finally:
        unit.layer.update_context(saves_bits=False)


def _masked(graph: Graph, unit: Node) -> Node:
    """Return the node with a layer that saves bits. A group is changed; a single layer is copied to a group of one, so
    that passes started by hand still read its value."""
    if unit.group is None:
        unit = copy.copy(unit)
        unit.layer, unit.scratch = copy.copy(unit.layer), {}
        unit.layer.scratches = {}
        unit.group, unit.members = len(graph.groups), (unit.index,)
        graph.groups.append(unit)
    unit.layer.update_context(saves_bits=True)
    return unit
