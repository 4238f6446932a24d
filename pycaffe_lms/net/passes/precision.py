"""Precision (`-math bf16`): which values are stored as bfloat16, and which layers run on such arrays. Pure.

Layers that prefer bfloat16 (convolutions, products over positions) run on it; layers that can run on both types take
that of most of their bottoms' elements. A table (Embed), whose bottom holds indices, gives bfloat16 where that reaches
a layer that prefers it through layers that can run on it. A value is stored as bfloat16 if the layer that makes it runs
on bfloat16. The rest keeps the net's type: parameters, inputs and outputs of the net, losses, what a layer on the host
or a loss reads (unless that prefers bfloat16), and bottoms without a gradient (labels, indices, regions).
"""

from __future__ import annotations

from ...arrays import DType
from ...backend.bfloat16 import BFLOAT16
from ...layers.base import Ops, Runs, count
from ..build.graph import Graph, Node, Value
from .memory_order import stored_alike


def choose(graph: Graph, ops: Ops) -> None:
    """Set `half` of every node and value. To be called after `memory_order.choose`."""
    pinned, wanted = _pinned(graph, ops), _wanted(graph, ops)
    for node in graph.nodes:
        node.half = _runs_half(graph, node, ops, wanted)
        node.layer.update_context(half=node.half)
        same = stored_alike(graph, node)
        for j, t in enumerate(node.tops):
            value = graph.values[t]
            if j in same:
                value.half = graph.values[node.bottoms[same[j]]].half
            else:
                value.half = node.half and t not in pinned


def _runs_half(graph: Graph, node: Node, ops: Ops, wanted: set[int]) -> bool:
    """Return whether a layer runs on bfloat16 arrays."""
    layer, bottoms = node.layer, [graph.values[b] for b in node.bottoms]
    if not _can_run_half(graph, node, ops):
        return False
    if _is_table(node):
        return not wanted.isdisjoint(node.tops)
    half = sum(count(b.shape) for b in bottoms if b.half)
    return layer.declares.prefers_half or 2 * half > sum(count(b.shape) for b in bottoms)


def _can_run_half(graph: Graph, node: Node, ops: Ops) -> bool:
    bottoms, tops = ([graph.values[v].shape for v in ids] for ids in (node.bottoms, node.tops))
    return node.layer.declares.runs_on is Runs.DEVICE and node.layer.takes_half(bottoms, tops, ops)


def _prefers_half(graph: Graph, node: Node, ops: Ops) -> bool:
    return node.layer.declares.prefers_half and _can_run_half(graph, node, ops)


def _is_table(node: Node) -> bool:
    return node.layer.declares.no_backward is None and bool(node.layer.params)


def _wanted(graph: Graph, ops: Ops) -> set[int]:
    """Return the values that reach a layer which prefers bfloat16 through layers that can run on it."""
    wanted: set[int] = set()
    if any(map(_is_table, graph.nodes)):  # nobody else asks
        for node in reversed(graph.nodes):
            known = node.layer.declares.prefers_half or not wanted.isdisjoint(node.tops)
            if known and _can_run_half(graph, node, ops):
                wanted.update(node.bottoms)
            wanted.update(node.bottoms[b] for t, b in stored_alike(graph, node).items() if node.tops[t] in wanted)
    return wanted


def _pinned(graph: Graph, ops: Ops) -> set[int]:
    """Return the values that keep the net's type."""
    pinned = {graph.last[name] for name in (*graph.outputs, *graph.inputs)}
    pinned |= {v.id for v in graph.values if v.loss_weight}
    for node in reversed(graph.nodes):
        own = node.layer.declares
        if own.is_loss:
            pinned.update(node.tops)
        wide = own.runs_on is Runs.HOST or (own.is_loss and not _prefers_half(graph, node, ops))
        for i, b in enumerate(node.bottoms):
            blocked = own.no_backward is None or i in own.no_backward | own.full_precision | own.dynamic_shape_bottoms
            if blocked or wide:
                pinned.add(b)
        for t, b in stored_alike(graph, node).items():
            if node.tops[t] in pinned:
                pinned.add(node.bottoms[b])
    return pinned


def type_of(value: Value, dtype: DType) -> DType:
    """Return the type in which a value and its gradient are stored; `dtype` is the net's."""
    return BFLOAT16 if value.half else dtype


def value_bytes(value: Value, itemsize: int) -> int:
    """Return the bytes of a value, or of its gradient, as stored; `itemsize`: bytes of a number of the net's type."""
    return count(value.shape) * (BFLOAT16.itemsize if value.half else itemsize)
