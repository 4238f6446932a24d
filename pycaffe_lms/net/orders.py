"""In which order images lie in memory: which layers run channels-last, and where arrays change their order. Pure.

A value is stored as its maker leaves it; a layer that runs in the other order gets a copy in workspace, and its results
go back through workspace. Layers that prefer channels-last (convolutions) get it; those that can do either follow most
of their bottoms' bytes. What a layer shares with its bottom under another shape (Flatten), and what layers on the host
see, is stored as (N, C, H, W).
"""

from __future__ import annotations

from ..layers.base import Lives, Runs, Shape, count
from ..ops.channel_order import memory_shape
from .graph import Graph, Node


def matters(shape: Shape) -> bool:
    """Whether the two orders differ for an array of this shape."""
    return len(shape) >= 4 and shape[1] > 1 and count(shape, 2) > 1


def choose(graph: Graph, ops) -> None:
    """Set `channels_last` of every node and value."""
    pinned = _pinned(graph)
    for node in graph.nodes:
        bottoms, tops = _shapes(graph, node.bottoms), _shapes(graph, node.tops)
        layer = node.layer
        if not layer.takes_channels_last(bottoms, tops, ops):
            node.channels_last = False
        elif layer.prefers_channels_last:
            node.channels_last = True
        else:
            last = sum(count(graph.values[b].shape) for b in node.bottoms if graph.values[b].channels_last)
            images = sum(count(s) for s in bottoms if matters(s))
            node.channels_last = 2 * last > images
        alike = _alike(graph, node)
        for j, t in enumerate(node.tops):
            value = graph.values[t]
            if j in alike:
                value.channels_last = graph.values[node.bottoms[alike[j]]].channels_last
            else:
                value.channels_last = node.channels_last and t not in pinned and matters(value.shape)
        layer.channels_last = node.channels_last


def _pinned(graph: Graph) -> set[int]:
    """Values that must be stored channels-first."""
    pinned: set[int] = set()
    for node in reversed(graph.nodes):
        if node.layer.runs_on is Runs.HOST:
            pinned.update(node.bottoms)
        shared = node.layer.shares_data()
        for t, b in _alike(graph, node).items():
            if node.tops[t] in pinned or (t in shared and not node.layer.order_free):
                pinned.update((node.bottoms[b], node.tops[t]))
    return pinned


def _alike(graph: Graph, node: Node) -> dict[int, int]:
    """{top index: bottom index} of what must be stored in one order: shared memory, and versions of one blob, whose
    gradient has one buffer."""
    versions = {
        j: j
        for j, (b, t) in enumerate(zip(node.bottoms, node.tops, strict=False))
        if graph.values[b].name == graph.values[t].name
    }
    return versions | dict(node.layer.shares_data())


def _shapes(graph: Graph, values: list[int]) -> list[Shape]:
    return [graph.values[v].shape for v in values]


def differs(graph: Graph, node: Node, v: int) -> bool:
    """Whether a layer sees a value in another order than it is stored in."""
    value = graph.values[v]
    return matters(value.shape) and value.channels_last != node.channels_last


def request_copies(graph: Graph, node: Node) -> None:
    """Ask for the workspace in which the layer's arrays stand in its own order. After `layer.declare`."""
    layer = node.layer
    if layer.runs_on is not Runs.DEVICE or layer.shares_data():
        return
    reads = layer.forward_needs().bottoms
    needs = layer.backward_needs(node.propagate, node.param_propagate) if node.need_backward else None
    for i, v in enumerate(node.bottoms):
        if differs(graph, node, v):
            back = needs is not None and i in needs.bottoms
            if i in reads or back:
                _ask(node, f"order.bottom{i}", graph.values[v].shape, forward=i in reads, backward=back)
            if node.need_backward and node.propagate[i]:
                _ask(node, f"order.bottom_diff{i}", graph.values[v].shape, forward=False, backward=True)
    for j, v in enumerate(node.tops):
        if differs(graph, node, v):
            back = needs is not None and j in needs.tops
            _ask(node, f"order.top{j}", graph.values[v].shape, forward=True, backward=back)
            if node.need_backward:
                _ask(node, f"order.top_diff{j}", graph.values[v].shape, forward=False, backward=True)


def _ask(node: Node, name: str, shape: Shape, *, forward: bool, backward: bool) -> None:
    shape = memory_shape(shape, node.channels_last)
    node.layer.scratch(name, shape, lives=Lives.CALL, forward=forward, backward=backward)


class Reorder:
    """Brings the arrays of one pass of a layer into its order, and its results into theirs."""

    def __init__(self, graph: Graph, node: Node):
        self.bottoms = [i for i, v in enumerate(node.bottoms) if differs(graph, node, v)]
        self.tops = [j for j, v in enumerate(node.tops) if differs(graph, node, v)]
        self._to_last = node.channels_last
        self._sizes = {}
        for kind, ids in (("bottom", node.bottoms), ("top", node.tops)):
            for k, v in enumerate(ids):
                shape = graph.values[v].shape
                if matters(shape):
                    self._sizes[kind, k] = shape[0], shape[1], count(shape, 2)

    def __bool__(self) -> bool:
        return bool(self.bottoms or self.tops)

    def _copy(self, io, kind: str, k: int, source, target, *, inwards: bool) -> None:
        n, c, s = self._sizes[kind, k]
        to_last = self._to_last if inwards else not self._to_last
        io.ops.transpose(source, target, (n, c, s) if to_last else (n, s, c), (0, 2, 1))

    def _bring(self, io, kind: str, which: str, k: int, arrays: list) -> None:
        if arrays[k] is not None:
            copy = io.scratch[f"order.{which}{k}"]
            self._copy(io, kind, k, arrays[k], copy, inwards=True)
            arrays[k] = copy

    def _lend(self, io, which: str, k: int, arrays: list, lent: list) -> None:
        if arrays[k] is not None:
            lent.append((which, k, arrays[k]))
            arrays[k] = io.scratch[f"order.{which}{k}"]

    def forward(self, io, run) -> None:
        lent: list = []
        for i in self.bottoms:
            self._bring(io, "bottom", "bottom", i, io.bottom)
        for j in self.tops:
            self._lend(io, "top", j, io.top, lent)
        run(io)
        for which, k, array in lent:
            self._copy(io, "top", k, io.scratch[f"order.{which}{k}"], array, inwards=False)

    def backward(self, io, run) -> None:
        lent: list = []
        for i in self.bottoms:
            self._bring(io, "bottom", "bottom", i, io.bottom)
            self._lend(io, "bottom_diff", i, io.bottom_diff, lent)
        for j in self.tops:
            self._bring(io, "top", "top", j, io.top)
            self._bring(io, "top", "top_diff", j, io.top_diff)
        run(io)
        for which, k, array in lent:
            self._copy(io, "bottom", k, io.scratch[f"order.{which}{k}"], array, inwards=False)
