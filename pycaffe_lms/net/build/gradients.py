"""Which layers run backward, for which bottoms and parameters they make gradients, and which one a blob shows. Pure.

`plan_gradients` marks the graph. In Caffe, the versions of a blob and the blobs that share its memory have one gradient
array. Here each value may have its own; `shown_gradients` picks the one that Caffe's array would hold after a backward.
Source: BVLC/caffe, src/caffe/net.cpp, Net::Init, the two passes over need_backward (behaviour).
"""

from __future__ import annotations

from collections.abc import Sequence

from .graph import Graph, Node


def plan_gradients(graph: Graph, *, force: bool) -> None:
    """Set need_backward, propagate and param_propagate of every node, and takes_gradient of every value."""
    _from_inputs(graph)
    _from_losses(graph)
    if force:
        for node in graph.nodes:
            node.need_backward = True
            ignores = node.layer.declares.ignores_force_backward
            node.propagate = [p or b not in ignores for b, p in enumerate(node.propagate)]
            node.param_propagate = [True] * len(node.params)
    else:
        _ignore_under_no_loss(graph)
    for node in graph.nodes:
        if node.need_backward and node.layer.declares.computes_all_param_gradients:
            node.param_propagate = [True] * len(node.params)
        node.layer.update_context(needs_backward=node.need_backward)


def _from_inputs(graph: Graph) -> None:
    """Mark, from first layer to last, what depends on a parameter that learns."""
    needs: dict[int, bool] = {}
    for node in graph.nodes:
        explicit = list(node.layer.param.propagate_down)
        inherited = [needs[b] for b in node.bottoms]
        skips = node.layer.declares.skips_backward
        node.propagate = [p and b not in skips for b, p in enumerate(explicit or inherited)]
        node.param_propagate = [graph.params[p].lr_mult_here != 0 for p in node.params]
        node.need_backward = any(inherited) or any(node.param_propagate)
        for t in node.tops:
            needs[t] = node.need_backward


def _from_losses(graph: Graph) -> None:
    """Unmark, from last layer to first, what no loss depends on."""
    under_loss: set[str] = set()
    skipped: set[str] = set()
    for node in reversed(graph.nodes):
        contributes, skip = False, True
        for t in node.tops:
            value = graph.values[t]
            contributes |= bool(value.loss_weight) or value.name in under_loss
            skip &= value.name in skipped
        if node.need_backward and skip:
            node.need_backward = False
            node.propagate = [False] * len(node.bottoms)
        if not contributes:
            node.need_backward = False
            node.propagate = [False] * len(node.bottoms)
        for b, propagates in zip(node.bottoms, node.propagate, strict=True):
            name = graph.values[b].name
            if contributes:
                under_loss.add(name)
            if not propagates:
                skipped.add(name)


def _ignore_under_no_loss(graph: Graph) -> None:
    """Clear takes_gradient of tops that share memory and that no loss depends on.

    A diff that a user writes to a top under no loss is ignored, since the layer's backward does not run. It must be
    ignored, too, where the top shares memory: the diff would reach other layers without any backward (Flatten), or
    through a backward that runs because of other tops (Split)."""
    given = {b for node in graph.nodes if node.need_backward for b in gets_gradient(node)}
    alike = in_one_memory(graph)
    sharing = {alike[node.tops[j]] for node in graph.nodes for j in node.layer.shares()}
    for node in graph.nodes:
        shared = node.layer.shares_data()
        for j, t in enumerate(node.tops):
            value = graph.values[t]
            if j in shared or alike[t] in sharing:
                value.takes_gradient = t in given or bool(value.loss_weight)


def shown_gradients(graph: Graph) -> dict[str, int]:
    """Return {blob name: the value whose gradient it shows after a whole backward}.

    That is the first version that gets a gradient, or the last one if none does. Versions with another shape than the
    blob's do not count."""
    alike = in_one_memory(graph)
    lowest = lowest_gradients(graph, alike)
    return {name: lowest.get(alike[v], v) for name, v in graph.last.items()}


def lowest_gradients(graph: Graph, alike: Sequence[int]) -> dict[int, int]:
    """Return {first of the values that share memory: the first of them that gets a gradient in a whole backward}.

    alike: `in_one_memory` of the graph."""
    lowest: dict[int, int] = {}
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
