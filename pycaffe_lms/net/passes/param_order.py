"""In which order parameters lie in memory: those that a layer takes in the order of its images are stored so. Pure.

A parameter's data, its gradient and a solver's histories have one order, the owner's; it is chosen once, when the net
is built. A layer that takes a parameter in the other order, because it shares the parameter with its owner or its net
shares it with another net, works on a copy in workspace. Users see (O, C, H, W) in any case.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ...layers.base import Lives, Makes, Pass, Runs, Shape, count
from ...ops.axes import memory_shape
from ..build.graph import Graph, Node
from .memory_order import matters

Users = Sequence[tuple[Node, int]]
"""Who takes a parameter: (layer, which of its parameters)."""


def choose(graph: Graph) -> None:
    """Set `channels_last` of every parameter. After the layers' orders are chosen."""
    for owner, users in users_of(graph).items():
        param = graph.params[owner]
        last = takes_last(graph.nodes[param.node], param.position) and matters(param.shape)
        set_order(graph, users, last and may_lie_last(graph, users))


def users_of(graph: Graph) -> dict[int, Users]:
    """By its owner's index, who takes a parameter: its owner, and all that share it."""
    found: dict[int, list[tuple[Node, int]]] = {param.index: [] for param in graph.learnable}
    for node in graph.nodes:
        for i, p in enumerate(node.params):
            found[graph.params[p].owner].append((node, i))
    return found


def set_order(graph: Graph, users: Users, last: bool) -> None:
    """Of a parameter, for all who take it."""
    for node, i in users:
        graph.params[node.params[i]].channels_last = last


def takes_last(node: Node, i: int) -> bool:
    """Whether a layer takes its parameter i channels-last."""
    return node.channels_last and i in node.layer.ordered_params


def may_lie_last(graph: Graph, users: Users) -> bool:
    """Whether everybody who uses a parameter can work on a copy in the other order: no layer on the host, none that
    changes it in its forward, none that sees it in another shape."""
    alike = len({graph.params[node.params[i]].shape for node, i in users}) == 1
    return alike and all(
        node.layer.runs_on is Runs.DEVICE and i not in node.layer.forward_updates() for node, i in users
    )


def differs(graph: Graph, node: Node, i: int) -> bool:
    """Whether a layer takes its parameter i in another order than it is stored in."""
    param = graph.params[node.params[i]]
    return matters(param.shape) and param.channels_last != takes_last(node, i)


def stored_shape(graph: Graph, node: Node, i: int) -> Shape:
    """Of a layer's parameter i; where both orders are the same memory, the shape that the layer expects."""
    param = graph.params[node.params[i]]
    return memory_shape(param.shape, param.channels_last if matters(param.shape) else takes_last(node, i))


def request_copies(graph: Graph, node: Node) -> None:
    """Ask for the workspace in which parameters stand in the layer's order. After `layer.declare`."""
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
            layer.scratch(f"order.param_diff{i}", shape, lives=Lives.CALL, forward=False, serves=Makes.PARAMS)


class ParamCopies:
    """Brings the parameters of one pass of a layer into its order, and their gradients back into theirs."""

    def __init__(self, graph: Graph, node: Node):
        self._moves: dict[int, tuple[Shape, bool]] = {}  # by parameter: (O, C, the rest), whether channels go last
        for i, p in enumerate(node.params):
            if differs(graph, node, i):
                shape = graph.params[p].shape
                self._moves[i] = (shape[0], shape[1], count(shape, 2)), takes_last(node, i)

    def __bool__(self) -> bool:
        return bool(self._moves)

    def forward(self, io: Pass, run: Callable[[Pass], None]) -> None:
        self._bring(io)
        run(io)

    def backward(self, io: Pass, run: Callable[[Pass], None]) -> None:
        self._bring(io)
        lent = {i: io.param_diff[i] for i in self._moves if io.param_diff[i] is not None}
        for i, gradient in lent.items():
            io.param_diff[i] = io.scratch[f"order.param_diff{i}"]
            if io.accumulate[i]:
                self._copy(io, i, gradient, io.param_diff[i], inwards=True)
        run(io)
        for i, gradient in lent.items():
            self._copy(io, i, io.param_diff[i], gradient, inwards=False)

    def _bring(self, io: Pass) -> None:
        for i in self._moves:
            if io.param[i] is not None:
                copy = io.scratch[f"order.param{i}"]
                self._copy(io, i, io.param[i], copy, inwards=True)
                io.param[i] = copy

    def _copy(self, io: Pass, i: int, source, target, *, inwards: bool) -> None:
        (o, c, s), last = self._moves[i]
        io.ops.transpose(source, target, (o, c, s) if last is inwards else (o, s, c), (0, 2, 1))
