"""Which gradient a blob shows. Pure.

In Caffe, the versions of a blob and the blobs that share its memory have one gradient array. Here each value may have
its own; `shown_gradients` picks the one that Caffe's array would hold after a backward.
"""

from __future__ import annotations

from .graph import Graph, Node


def shown_gradients(graph: Graph) -> dict[str, int]:
    """Return {blob name: the value whose gradient it shows after a whole backward}.

    That is the first version that gets a gradient, or the last one if none does. Versions with another shape than the
    blob's do not count."""
    alike, lowest = in_one_memory(graph), lowest_gradients(graph)
    return {name: lowest.get(alike[v], v) for name, v in graph.last.items()}


def lowest_gradients(graph: Graph) -> dict[int, int]:
    """Return {first of the values that share memory: the first of them that gets a gradient in a whole backward}."""
    alike, lowest = in_one_memory(graph), dict[int, int]()
    for v in sorted(b for node in graph.nodes if node.need_backward for b in gets_gradient(node)):
        lowest.setdefault(alike[v], v)
    return lowest


def gets_gradient(node: Node) -> list[int]:
    """Return the bottoms for which a layer's backward, if it runs, makes a gradient."""
    return [b for b, wanted in zip(node.bottoms, node.propagate, strict=True) if wanted]


def in_one_memory(graph: Graph) -> list[int]:
    """Return, per value, the first value whose gradient shares its memory in Caffe: versions of a blob, and tops that
    share it under another name."""
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
