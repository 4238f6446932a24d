"""Which values are one memory in Caffe, so that a blob shows the gradient of one of them. Pure."""

from __future__ import annotations

from .graph import Graph, Node


def shown_gradients(graph: Graph) -> dict[str, int]:
    """{blob name: the value whose gradient it shows after a whole backward}: the lowest version that gets one, or the
    last one where none does. Versions of another shape than the blob's are other blobs here."""
    alike, lowest = in_one_memory(graph), lowest_gradients(graph)
    return {name: lowest.get(alike[v], v) for name, v in graph.last.items()}


def lowest_gradients(graph: Graph) -> dict[int, int]:
    """{first of values that are one memory: the first of them that gets a gradient in a whole backward}."""
    alike, lowest = in_one_memory(graph), {}
    for v in sorted(b for node in graph.nodes if node.need_backward for b in gets_gradient(node)):
        lowest.setdefault(alike[v], v)
    return lowest


def gets_gradient(node: Node) -> list[int]:
    """Bottoms to which a layer's backward gives a gradient, if it runs."""
    return [b for b, wanted in zip(node.bottoms, node.propagate, strict=True) if wanted]


def in_one_memory(graph: Graph) -> list[int]:
    """For every value the first of those whose gradients are one memory in Caffe: versions of a blob, and what shares
    it under another name."""
    first = list(range(len(graph.values)))
    for node in graph.nodes:
        shared = node.layer.shares()
        for j, t in enumerate(node.tops):
            if j in shared:
                first[t] = first[node.bottoms[shared[j]]]
            elif j < len(node.bottoms):
                old, new = graph.values[node.bottoms[j]], graph.values[t]
                if (old.name, old.shape) == (new.name, new.shape):
                    first[t] = first[old.id]
    return first
