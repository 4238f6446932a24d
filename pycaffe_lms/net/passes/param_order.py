"""Memory order of parameters: stored channels-last, (O, H, W, C), where their layer runs channels-last.

A parameter's data, its gradient and a solver's histories have the same order, which its owner sets once, when the net
is built (`choose`). A layer that shares a parameter stored in the other order, with a layer of this net or of another
net, works on a copy in workspace (`request_copies`, `ParamCopies`). Users always see (O, C, H, W).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from ...arrays import AnyArray
from ...layers.base import Gradients, Lives, Pass, Runs, Shape, count
from ...ops.axes import memory_shape
from ..build.graph import Graph, Node
from .memory_order import matters

Users: TypeAlias = "list[tuple[Node, int]]"
"""The uses of a parameter: (layer, index among its parameters)."""


def choose(graph: Graph) -> None:
    """Set `channels_last` of every parameter. To be called after `memory_order.choose`."""
    for owner, users in users_of(graph).items():
        param = graph.params[owner]
        last = takes_last(graph.nodes[param.node], param.position) and matters(param.shape)
        set_order(graph, users, last and may_store_last(graph, users))


def users_of(graph: Graph) -> dict[int, Users]:
    """Return {owner's index: uses of the parameter, by its owner and by all layers that share it}."""
    found: dict[int, Users] = {param.index: [] for param in graph.learnable}
    for node in graph.nodes:
        for i, p in enumerate(node.params):
            found[graph.params[p].owner].append((node, i))
    return found


def set_order(graph: Graph, users: Users, last: bool) -> None:
    """Set the order of a parameter at all its uses."""
    for node, i in users:
        graph.params[node.params[i]].channels_last = last


def takes_last(node: Node, i: int) -> bool:
    """Return whether a layer takes its parameter i channels-last."""
    return node.channels_last and i in node.layer.declares.channels_last_params


def may_store_last(graph: Graph, users: Users) -> bool:
    """Return whether every user of a parameter can work on a copy in the other order: none runs on the host, changes it
    in its forward, or has it in another shape."""
    alike = len({graph.params[node.params[i]].shape for node, i in users}) == 1
    return alike and all(
        node.layer.declares.runs_on is Runs.DEVICE and i not in node.layer.forward_updates() for node, i in users
    )


def differs(graph: Graph, node: Node, i: int) -> bool:
    """Return whether a layer takes its parameter i in another order than it is stored in."""
    param = graph.params[node.params[i]]
    return matters(param.shape) and param.channels_last != takes_last(node, i)


def stored_shape(graph: Graph, node: Node, i: int) -> Shape:
    """Return the shape in which a layer's parameter i is stored; where both orders are the same memory, the shape that
    the layer expects."""
    param = graph.params[node.params[i]]
    return memory_shape(param.shape, param.channels_last if matters(param.shape) else takes_last(node, i))


def request_copies(graph: Graph, node: Node) -> None:
    """Request the workspace for copies of parameters in the layer's order. To be called after `layer.declare`."""
    layer = node.layer
    reads = layer.forward_needs().params
    needs = layer.backward_needs(node.propagate, node.param_propagate) if node.need_backward else None
    for i, p in enumerate(node.params):
        if not differs(graph, node, i):
            continue
        shape = memory_shape(graph.params[p].shape, takes_last(node, i))
        back = needs is not None and i in needs.params
        if i in reads or back:
            layer.scratch(f"order.param{i}", shape, lives=Lives.CALL, forward=i in reads, backward=back)
        if node.need_backward and node.param_propagate[i]:
            layer.scratch(f"order.param_diff{i}", shape, lives=Lives.CALL, forward=False, gradients=Gradients.PARAMS)


class ParamCopies:
    """Convert the parameters of a layer's pass to its order, and their gradients back to the stored order."""

    def __init__(self, graph: Graph, node: Node):
        # parameter -> (O, C, product of the other axes), whether the layer takes it channels-last
        self._moves: dict[int, tuple[Shape, bool]] = {}
        for i, p in enumerate(node.params):
            if differs(graph, node, i):
                shape = graph.params[p].shape
                self._moves[i] = (shape[0], shape[1], count(shape, 2)), takes_last(node, i)

    def __bool__(self) -> bool:
        return bool(self._moves)

    def forward(self, io: Pass, run: Callable[[Pass], None]) -> None:
        """Run a forward on converted parameters."""
        self._copy_in(io)
        run(io)

    def backward(self, io: Pass, run: Callable[[Pass], None]) -> None:
        """Run a backward on converted parameters and gradients."""
        self._copy_in(io)
        replaced = {i: io.param_diff[i] for i in self._moves if io.param_diff[i] is not None}
        for i, gradient in replaced.items():
            io.param_diff[i] = io.scratch[f"order.param_diff{i}"]
            if io.accumulate[i]:
                self._copy(io, i, gradient, io.param_diff[i], inwards=True)
        run(io)
        for i, gradient in replaced.items():
            self._copy(io, i, io.param_diff[i], gradient, inwards=False)

    def _copy_in(self, io: Pass) -> None:
        """Replace the parameters of a pass by converted copies."""
        for i in self._moves:
            if io.param[i] is not None:
                copy = io.scratch[f"order.param{i}"]
                self._copy(io, i, io.param[i], copy, inwards=True)
                io.param[i] = copy

    def _copy(self, io: Pass, i: int, source: AnyArray, target: AnyArray, *, inwards: bool) -> None:
        """Queue a copy, to the layer's order if `inwards`, else to the stored order."""
        (o, c, s), last = self._moves[i]
        io.ops.transpose(source, target, (o, c, s) if last is inwards else (o, s, c), (0, 2, 1))
