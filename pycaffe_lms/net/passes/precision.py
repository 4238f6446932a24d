"""Which values are stored as bfloat16, and which layers run on such arrays (`-math bf16`). Pure.

A layer that prefers it (convolutions) runs so; those that can do either follow most of their bottoms' bytes. A value is
stored so where its maker runs so. The rest stays as it is: parameters, what enters and leaves the net, what a loss or a
layer on the host reads, what a layer takes where it gives no gradient (labels, indices, regions), losses themselves.
"""

from __future__ import annotations

from ...backend.bfloat16 import BFLOAT16
from ...layers.base import Runs, count
from ..build.graph import Graph, Node, Value
from .memory_order import stored_alike


def choose(graph: Graph, ops) -> None:
    """Set `half` of every node and value. After the orders are chosen."""
    pinned = _pinned(graph)
    for node in graph.nodes:
        node.half = node.layer.half = _runs_half(graph, node, ops)
        same = stored_alike(graph, node)
        for j, t in enumerate(node.tops):
            value = graph.values[t]
            if j in same:
                value.half = graph.values[node.bottoms[same[j]]].half
            else:
                value.half = node.half and t not in pinned


def _runs_half(graph: Graph, node: Node, ops) -> bool:
    layer, bottoms = node.layer, [graph.values[b] for b in node.bottoms]
    if layer.runs_on is not Runs.DEVICE:
        return False  # what it shares is the maker's
    if not layer.takes_half([b.shape for b in bottoms], [graph.values[t].shape for t in node.tops], ops):
        return False
    half = sum(count(b.shape) for b in bottoms if b.half)
    return layer.prefers_half or 2 * half > sum(count(b.shape) for b in bottoms)


def _pinned(graph: Graph) -> set[int]:
    """Values that stay as they are."""
    pinned = {graph.last[name] for name in (*graph.outputs, *graph.inputs)}
    pinned |= {v.id for v in graph.values if v.loss_weight}
    for node in reversed(graph.nodes):
        layer = node.layer
        for i, b in enumerate(node.bottoms):
            blocked = layer.no_backward is None or i in layer.no_backward or i in layer.exact or i in layer.looks_at
            if blocked or layer.is_loss or layer.runs_on is Runs.HOST:
                pinned.add(b)
        for t, b in stored_alike(graph, node).items():
            if node.tops[t] in pinned:
                pinned.add(node.bottoms[b])
    return pinned


def type_of(value: Value, dtype):
    """The type of the array in which a value, or its gradient, is stored; `dtype` is the net's."""
    return BFLOAT16 if value.half else dtype


def value_bytes(value: Value, itemsize: int) -> int:
    """Bytes of a value, or of its gradient, as it is stored; `itemsize` is of the net's numbers."""
    return count(value.shape) * (BFLOAT16.itemsize if value.half else itemsize)
