"""From a NetParameter to a graph: bottoms, tops, shared parameters, shapes, needed gradients. No arrays.

Source: BVLC/caffe, src/caffe/net.cpp, Net::Init, AppendTop, AppendBottom, AppendParam (behaviour).
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import TYPE_CHECKING

from ...arrays import DType
from ...errors import CaffeError, GraphError
from ...layers.base import BuildContext, InPlace, Shape, count
from ...layers.registry import layer_class
from ...layers.sizes import check_params, check_tops
from ...proto.caffe_pb2 import LayerParameter, NetParameter, ParamSpec
from .gradients import plan_gradients
from .graph import Graph, Node, Param, Value

if TYPE_CHECKING:
    from ...proto.caffe_pb2 import Phase

AUTOMATIC = "(automatic)"
_MULTIPLIERS = ("lr_mult", "decay_mult")


def wire(
    net: NetParameter,
    lines: list[int | None],
    *,
    file: str | None,
    dtype: DType,
    context_of: Callable[[LayerParameter, int], BuildContext] | None = None,
) -> Graph:
    """Build the graph of a filtered NetParameter with Split layers. Data layers open their sources.

    Args:
        lines: prototxt line of each layer.
        context_of: gives the context of a layer and its index (seed, rank), with phase and dtype.
    Raises:
        CaffeError: a layer cannot be set up or connected; names file, line, layer and blob.
    """
    graph = Graph(net.name)
    newest: dict[str, int] = {}
    consumed: set[str] = set()
    named_params: dict[str, int] = {}

    def plain(param: LayerParameter, index: int) -> BuildContext:
        return BuildContext(phase=param.phase, dtype=dtype)

    for i, message in enumerate(net.layer):
        try:
            node = _make_node(i, message, lines[i], net.state.phase, context_of or plain)
            _connect_bottoms(graph, node, newest, consumed)
            node.layer.setup([graph.values[b].shape for b in node.bottoms])
            check_params(node.layer)
            _make_tops(graph, node, newest, consumed)
            _make_params(graph, node, named_params)
        except CaffeError as error:
            error.at(file=file, line=lines[i], layer=message.name, type=message.type)
            raise
        graph.nodes.append(node)
    graph.last = newest
    anonymous = {v.name for v in graph.values if v.name == AUTOMATIC}
    graph.outputs = sorted(n for n in newest if n not in consumed and n not in anonymous)
    plan_gradients(graph, force=net.force_backward)
    return graph


def _make_node(
    index: int,
    message: LayerParameter,
    line: int | None,
    phase: Phase,
    context_of: Callable[[LayerParameter, int], BuildContext],
) -> Node:
    """Make a layer and its node, without connections."""
    cls = layer_class(message.type)
    param = copy.deepcopy(message)
    if not param.HasField("phase"):
        param.phase = phase
    saved = copy.deepcopy(param)
    while cls.declares.is_loss and len(param.top) < cls.declares.tops.least:
        param.top.append(AUTOMATIC)
    layer = cls(param, context_of(param, index))
    layer.check_counts(len(param.bottom), len(param.top))
    n = len(param.propagate_down)
    if n not in (0, len(param.bottom)):
        raise layer.error(
            f"propagate_down is given {n} times for {len(param.bottom)} bottoms",
            kind=GraphError,
            fix="give it once per bottom, or not at all",
        )
    return Node(index, layer, saved, line)


def _connect_bottoms(graph: Graph, node: Node, newest: dict[str, int], consumed: set[str]) -> None:
    """Set a node's bottoms to the newest versions of the blobs that it names."""
    for j, blob in enumerate(node.layer.param.bottom):
        if blob not in newest:
            raise GraphError(
                f"Unknown bottom blob '{blob}' (layer '{node.name}', bottom index {j}): no earlier layer makes it",
                fix="name a top of an earlier layer",
            ).at(blob=blob)
        node.bottoms.append(newest[blob])
        consumed.add(blob)


def _make_tops(graph: Graph, node: Node, newest: dict[str, int], consumed: set[str]) -> None:
    """Add a value for each top of a node, with its inferred shape and loss weight."""
    param, layer = node.layer.param, node.layer
    shapes = layer.infer_shapes([graph.values[b].shape for b in node.bottoms])
    if len(shapes) != len(param.top):
        raise AssertionError(f"{param.type}: {len(shapes)} shapes for {len(param.top)} tops")
    check_tops(layer, shapes)
    weights = _loss_weights(node)
    for j, (blob, shape) in enumerate(zip(param.top, shapes, strict=True)):
        in_place = j < len(param.bottom) and param.bottom[j] == blob
        if in_place and layer.declares.in_place is InPlace.REFUSED:
            raise layer.error("cannot run in place", kind=GraphError, blob=blob, fix="give the top another name")
        if not in_place and blob in newest and blob != AUTOMATIC:
            raise GraphError(
                f"Top blob '{blob}' produced by multiple sources.",
                fix="rename one of the tops; in place needs the same name at the same index of bottom and top, and no "
                "other layer may read the blob before",
            ).at(blob=blob)
        value = Value(len(graph.values), blob, tuple(shape), node.index, j, loss_weight=weights[j])
        graph.values.append(value)
        node.tops.append(value.id)
        newest[blob] = value.id
        consumed.discard(blob)
        if layer.declares.is_net_input:
            graph.inputs.append(blob)


def _loss_weights(node: Node) -> list[float]:
    """Return the loss weight of each top."""
    param, n = node.layer.param, len(node.layer.param.top)
    if param.loss_weight:
        given = list(param.loss_weight)
        if len(given) not in (n, len(node.message.top)):
            raise node.layer.error(
                f"loss_weight is given {len(given)} times for {n} tops", fix="give one loss_weight per top"
            )
        return given + [0.0] * (n - len(given))
    return [1.0 if node.layer.declares.is_loss and j == 0 else 0.0 for j in range(n)]


def _make_params(graph: Graph, node: Node, named: dict[str, int]) -> None:
    """Add a layer's parameters; one whose name is in `named` (name -> owner) uses its owner's memory."""
    layer, specs = node.layer, node.layer.param.param
    if len(specs) > len(layer.params):
        raise layer.error(
            f"has {len(specs)} param entries but only {len(layer.params)} parameter blobs",
            kind=GraphError,
            fix="remove the entries too many",
        )
    for position, request in enumerate(layer.params):
        spec = specs[position] if position < len(specs) else None
        index = len(graph.params)
        name = spec.name if spec is not None else ""
        here = lr = spec.lr_mult if spec is not None else request.lr_mult
        decay = spec.decay_mult if spec is not None else 1.0
        owner = index
        if spec is not None and name in named:
            owner = named[name]
            _check_sharing(graph, node, position, request.shape, spec, graph.params[owner])
            lr, decay = graph.params[owner].lr_mult, graph.params[owner].decay_mult
        elif name:
            named[name] = index
        explicit = {m for m in _MULTIPLIERS if spec is not None and spec.HasField(m)}
        graph.params.append(
            Param(
                index,
                node.index,
                position,
                request.shape,
                request.filler,
                name,
                owner,
                lr,
                decay,
                here,
                explicit,
                values=request.values,
            )
        )
        node.params.append(index)


def _check_sharing(graph: Graph, node: Node, position: int, shape: Shape, spec: ParamSpec, owner: Param) -> None:
    """Raise GraphError unless a parameter can use its owner's memory; set the owner's multipliers from `spec`."""
    first = node if owner.node == node.index else graph.nodes[owner.node]
    if spec.share_mode == 1:  # PERMISSIVE
        if count(shape) != count(owner.shape):
            raise GraphError(
                f'cannot share parameter "{spec.name}" with layer "{first.name}": {count(shape)} and '
                f"{count(owner.shape)} elements",
                fix="make the counts equal, or give the parameter another name",
            )
    elif tuple(shape) != tuple(owner.shape):
        raise GraphError(
            f'cannot share parameter "{spec.name}" with layer "{first.name}": shapes {tuple(shape)} and '
            f"{tuple(owner.shape)}",
            fix="make the shapes equal, or set share_mode: PERMISSIVE where only the counts are",
        )
    for what in _MULTIPLIERS:
        if not spec.HasField(what):
            continue
        if what in owner.explicit and getattr(owner, what) != getattr(spec, what):
            raise GraphError(
                f'shared parameter "{spec.name}" has {what} {getattr(spec, what):g} here and '
                f'{getattr(owner, what):g} in another layer (its owner is layer "{first.name}")',
                fix="give it once, or the same number everywhere",
            )
        setattr(owner, what, getattr(spec, what))
        owner.explicit.add(what)
