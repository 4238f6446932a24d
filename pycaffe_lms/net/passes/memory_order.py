"""Memory order of images: which layers run channels-last, (N, H, W, C), and which values are stored so. Pure.

`choose` decides for each node. Layers that prefer channels-last (convolutions) run so; layers that run as well in
both orders (depthwise convolutions among them) take that of most of their bottoms' elements. A value is stored in the
order of the layer that makes it; a layer that runs in the other order works on copies (see `order_copies.py`). Values
that share memory under another shape (Flatten) or that layers on the host access are stored as (N, C, H, W).
"""

from __future__ import annotations

from ...layers.base import Ops, Runs, Shape, count
from ..build.graph import Graph, Node


def matters(shape: Shape) -> bool:
    """Return whether the two orders differ for an array of this shape."""
    return len(shape) >= 4 and shape[1] > 1 and count(shape, 2) > 1


def choose(graph: Graph, ops: Ops) -> None:
    """Set `channels_last` of every node and value."""
    pinned = _pinned(graph)
    for node in graph.nodes:
        bottoms, tops = _shapes(graph, node.bottoms), _shapes(graph, node.tops)
        layer = node.layer
        if not layer.takes_channels_last(bottoms, tops, ops):
            node.channels_last = False
        elif layer.prefers_channels_last(bottoms, tops):
            node.channels_last = True
        else:
            last = sum(count(graph.values[b].shape) for b in node.bottoms if graph.values[b].channels_last)
            images = sum(count(s) for s in bottoms if matters(s))
            node.channels_last = 2 * last > images
        alike = stored_alike(graph, node)
        for j, t in enumerate(node.tops):
            value = graph.values[t]
            if j in alike:
                value.channels_last = graph.values[node.bottoms[alike[j]]].channels_last
            else:
                value.channels_last = node.channels_last and t not in pinned and matters(value.shape)
        layer.update_context(channels_last=node.channels_last)


def _pinned(graph: Graph) -> set[int]:
    """Return the values that must be stored channels-first."""
    pinned: set[int] = set()
    for node in reversed(graph.nodes):
        if node.layer.declares.runs_on is Runs.HOST:
            pinned.update(node.bottoms)
        shared = node.layer.shares_data()
        for t, b in stored_alike(graph, node).items():
            if node.tops[t] in pinned or (t in shared and not node.layer.declares.layout_agnostic):
                pinned.update((node.bottoms[b], node.tops[t]))
    return pinned


def stored_alike(graph: Graph, node: Node) -> dict[int, int]:
    """Return {top index: bottom index} of the pairs that must be stored in the same order: shared memory, and versions
    of one blob, whose gradients share a buffer."""
    versions = {
        j: j
        for j, (b, t) in enumerate(zip(node.bottoms, node.tops, strict=False))
        if graph.values[b].name == graph.values[t].name
    }
    return versions | dict(node.layer.shares_data())


def _shapes(graph: Graph, values: list[int]) -> list[Shape]:
    return [graph.values[v].shape for v in values]
