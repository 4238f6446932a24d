"""Fusion: which chains of layers a solver's iterations run as one step. Pure.

A chain is a convolution and ReLU; or a normalisation followed by any of, in this order: a factor per channel, a sum
with another value, ReLU. Each layer must be the only reader of the one before, since an iteration does not compute the
values between them. `find_groups` returns the chains as groups; the graph keeps its layers and values, and passes that
a user starts by hand run layer by layer.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace

from ...layers.base import Layer
from ...layers.conv.convolution import ConvolutionLayer, FusedConvolutionLayer
from ...layers.declarations import Role
from ...layers.norm.batch_norm import BatchNormLayer
from ...layers.norm.fused_norm import FusedNormLayer
from ...layers.norm.scale import ScaleLayer
from ...layers.norm.slab_norm import FusedSlabApplyLayer, FusedSlabMomentsLayer, SlabApplyLayer, SlabMomentsLayer
from ...proto import caffe_pb2
from ..build.graph import Graph, Node

_FOLLOWING: dict[Role | None, tuple[Role, ...]] = {
    Role.CONVOLVE: (Role.RECTIFY,),
    Role.NORMALISE: (Role.AFFINE, Role.ADD, Role.RECTIFY),
    Role.NORMALISE_SLAB: (Role.AFFINE, Role.RECTIFY),
}


def _following(node: Node) -> tuple[Role, ...]:
    """Return the roles that may follow a layer in a chain; none where no chain begins with it."""
    return _FOLLOWING.get(node.layer.role, ())


def find_groups(
    graph: Graph, kept: Collection[str], gradients: Collection[int], kept_gradients: Collection[str]
) -> list[Node]:
    """Return the groups, in the order of their last layers.

    Args:
        kept: names of blobs whose values a user wants to read after an iteration.
        gradients: the values whose gradients a user wants to read, since blobs show them.
        kept_gradients: the names of these blobs.
    """
    if graph.shapes_may_change:
        return []  # shapes may change within an iteration, before a group's first layers have run
    readers = graph.readers()
    taken: set[int] = set()
    groups = []
    # later chains first: of two that meet in a sum, the later one takes it
    for node in reversed(graph.nodes):
        if _following(node) and node.index not in taken:
            chain = _chain(graph, node, readers, taken, kept, gradients)
            if len(chain) > 1 and not _overwrites_gradient(graph, chain, kept_gradients):
                taken.update(n.index for n in chain)
                groups.append(chain)
    groups = _whole_norms(graph, groups)
    groups.sort(key=lambda chain: chain[0].index if isinstance(chain[0].layer, SlabMomentsLayer) else chain[-1].index)
    return [_make(graph, chain, k) for k, chain in enumerate(groups)]


def _whole_norms(graph: Graph, groups: list[list[Node]]) -> list[list[Node]]:
    """Return the groups without those of a BatchNorm in slabs whose slabs do not all run as alike groups; with a group
    of one for each layer of moments, whose backward then is another."""
    found = {chain[0].index: chain for chain in groups if chain[0].layer.role is Role.NORMALISE_SLAB}
    if not found:
        return groups
    slabs: dict[int, list[Node]] = {}
    for node in graph.nodes:
        if node.layer.role is Role.NORMALISE_SLAB:
            slabs.setdefault(node.origin, []).append(node)
    kept: dict[int, dict[int, list[Node]]] = {}  # BatchNorm -> slab -> its chain
    for origin, nodes in slabs.items():
        chains = [found[node.index] for node in nodes if node.index in found]
        if len(chains) == len(nodes) and len({tuple(n.origin for n in chain) for chain in chains}) == 1:
            kept[origin] = {chain[0].slab[0]: chain for chain in chains if chain[0].slab is not None}
    chosen = [chain for chain in groups if chain[0].index not in found or chain[0].origin in kept]
    for node in graph.nodes:
        if isinstance(node.layer, SlabMomentsLayer) and node.origin in kept and node.slab is not None:
            chosen.append([node, *kept[node.origin][node.slab[0]]])
    return chosen


def _chain(
    graph: Graph,
    first: Node,
    readers: Mapping[int, list[int]],
    taken: set[int],
    kept: Collection[str],
    gradients: Collection[int],
) -> list[Node]:
    """Return the longest chain that begins with a layer: that layer alone if nothing can be fused with it."""
    chain, wanted = [first], _following(first)
    while wanted:
        value = graph.values[chain[-1].tops[0]]
        following = readers.get(value.id, [])
        shown = value.id in gradients or (graph.last.get(value.name) == value.id and value.name in kept)
        if len(chain[-1].tops) > 1 or len(following) != 1 or value.loss_weight or shown:
            break
        node = graph.nodes[following[0]]
        role = node.layer.role
        if role not in wanted or node.index in taken or node.need_backward != first.need_backward:
            break
        if node.bottoms.count(value.id) != 1 or not _runs_alike(first, node):
            break
        if node.need_backward and not node.propagate[node.bottoms.index(value.id)]:
            break
        chain.append(node)
        wanted = wanted[wanted.index(role) + 1 :]
    return chain


def _overwrites_gradient(graph: Graph, chain: list[Node], kept: Collection[str]) -> bool:
    """Return whether a group would overwrite a gradient that may be read later: of a convolution with ReLU the inner
    one, unless the ReLU is in place and a user does not keep the blob's gradient; of a normalised slab the top's."""
    if chain[0].layer.role is Role.NORMALISE_SLAB:
        return graph.values[chain[-1].tops[0]].name in kept or bool(graph.values[chain[-1].tops[0]].loss_weight)
    if chain[0].layer.role is not Role.CONVOLVE:
        return False
    inner, last = graph.values[chain[0].tops[0]], graph.values[chain[-1].tops[0]]
    return inner.name != last.name or last.name in kept or bool(last.loss_weight)


def _runs_alike(a: Node, b: Node) -> bool:
    """Return whether two layers have the same memory order, precision and `lms_param`."""
    alike = (a.channels_last, a.half) == (b.channels_last, b.half)
    return alike and a.layer.param.lms_param == b.layer.param.lms_param


def _scale_of(affine: Node | None) -> ScaleLayer | None:
    """Return the layer of the factor per channel, None where a chain has none."""
    if affine is None:
        return None
    assert isinstance(affine.layer, ScaleLayer), "by its role"
    return affine.layer


def _make_moments(graph: Graph, node: Node, chain: list[Node], index: int) -> Node:
    """Return a group of one: the layer of a slab's moments where `chain`, with the same slab, is a group."""
    affine = next((n for n in chain if n.layer.role is Role.AFFINE), None)
    assert isinstance(node.layer, SlabMomentsLayer), "asked by the caller"
    layer = FusedSlabMomentsLayer(node.layer, _scale_of(affine))
    made = replace(node, layer=layer, scratch={}, group=index, members=(node.index,))
    made.params = affine.params[:1] if affine is not None else []
    made.param_propagate = [False] * len(made.params)
    statistics = chain[0].bottoms[1]
    made.later = ((chain[-1].tops[0], "diff"), (statistics, "data"), (statistics, "diff"))
    _decide(made.layer, node)
    return made


def _decide(layer: Layer, first: Node) -> None:
    """Tell a group's layer what the net decided for the first layer of its chain, in whose place it runs."""
    decided = {"needs_backward": first.need_backward, "channels_last": first.channels_last, "half": first.half}
    layer.update_context(**decided, by_hand=False)


def _make(graph: Graph, chain: list[Node], index: int) -> Node:
    """Return a node that runs a chain as one layer; `index` is its index among the groups."""
    if isinstance(chain[0].layer, SlabMomentsLayer):
        return _make_moments(graph, chain[0], chain[1:], index)
    first, last = chain[0], chain[-1]
    by_role = {node.layer.role: node for node in chain}
    affine, add = by_role.get(Role.AFFINE), by_role.get(Role.ADD)
    bottoms, propagate = list(first.bottoms), list(first.propagate)
    if add is not None:
        before = chain[chain.index(add) - 1].tops[0]
        other = next(k for k, b in enumerate(add.bottoms) if b != before)
        bottoms.append(add.bottoms[other])
        propagate.append(add.propagate[other])
    name = "+".join(node.name for node in chain)
    param = caffe_pb2.LayerParameter(name=name, type="+".join(node.layer.param.type for node in chain))
    param.bottom.extend(graph.values[b].name for b in bottoms)
    param.top.append(graph.values[last.tops[0]].name)
    param.lms_param.CopyFrom(first.layer.param.lms_param)
    layer: Layer
    if isinstance(first.layer, ConvolutionLayer):
        layer = FusedConvolutionLayer(param, first.layer)
    elif isinstance(first.layer, SlabApplyLayer):
        layer = FusedSlabApplyLayer(param, first.layer, _scale_of(affine), relu=Role.RECTIFY in by_role)
    else:
        assert isinstance(first.layer, BatchNormLayer), "by its role"
        relu = Role.RECTIFY in by_role
        layer = FusedNormLayer(param, first.layer, _scale_of(affine), adds=add is not None, relu=relu)
    _decide(layer, first)
    node = Node(last.index, layer, first.message, first.line, bottoms, list(last.tops))
    node.params = [p for n in chain for p in n.params]
    node.param_propagate = [p for n in chain for p in n.param_propagate]
    node.propagate, node.need_backward = propagate, first.need_backward
    node.channels_last, node.half = first.channels_last, first.half
    node.origin, node.part, node.slab, node.adds = last.origin, last.part, last.slab, first.adds
    node.group, node.members = index, tuple(sorted(n.index for n in chain))
    return node
