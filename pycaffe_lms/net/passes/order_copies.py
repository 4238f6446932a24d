"""Copies in workspace for layers that run in another memory order or type than their values are stored in.

`request_copies` asks for the workspace when a net is built. In a pass, `Copies` converts the bottoms before the layer
runs and its results afterwards; one copy changes both order and type.
"""

from __future__ import annotations

from collections.abc import Callable

from ...arrays import AnyArray
from ...backend.bfloat16 import BFLOAT16
from ...layers.base import Gradients, Lives, Pass, Runs, Shape, count
from ...ops.axes import memory_shape
from ..build.graph import Graph, Node
from .memory_order import matters


def differs(graph: Graph, node: Node, v: int) -> bool:
    """Return whether a layer accesses a value in another order or type than it is stored in."""
    value = graph.values[v]
    if matters(value.shape) and value.channels_last != node.channels_last:
        return True
    return value.half != node.half and node.layer.declares.runs_on is Runs.DEVICE


def request_copies(graph: Graph, node: Node) -> None:
    """Request the workspace for a layer's copies. To be called after `layer.declare`."""
    layer = node.layer
    if layer.declares.runs_on is not Runs.DEVICE or layer.shares_data():
        return
    reads = layer.forward_needs().bottoms
    needs = layer.backward_needs(node.propagate, node.param_propagate) if node.need_backward else None
    for i, v in enumerate(node.bottoms):
        if differs(graph, node, v):
            back = needs is not None and i in needs.bottoms
            if i in reads or back:
                _request(node, f"copy.bottom{i}", graph.values[v].shape, forward=i in reads, backward=back)
            if node.need_backward and node.propagate[i]:
                name, shape = f"copy.bottom_diff{i}", graph.values[v].shape
                _request(node, name, shape, forward=False, backward=True, gradients=Gradients.BOTTOMS)
    for j, v in enumerate(node.tops):
        if differs(graph, node, v):
            back = needs is not None and j in needs.tops
            _request(node, f"copy.top{j}", graph.values[v].shape, forward=True, backward=back)
            if node.need_backward:
                _request(node, f"copy.top_diff{j}", graph.values[v].shape, forward=False, backward=True)


def _request(
    node: Node, name: str, shape: Shape, *, forward: bool, backward: bool, gradients: Gradients = Gradients.ALL
) -> None:
    shape, dtype = memory_shape(shape, node.channels_last), BFLOAT16 if node.half else None
    node.layer.scratch(
        name, shape, dtype=dtype, lives=Lives.CALL, forward=forward, backward=backward, gradients=gradients
    )


class Copies:
    """Convert the arrays of a layer's pass to its order and type, and its results back.

    Args:
        graph, node: the layer and its values; `bottoms` and `tops` are then the indices of those that are copied.
    """

    def __init__(self, graph: Graph, node: Node):
        self.bottoms = [i for i, v in enumerate(node.bottoms) if differs(graph, node, v)]
        self.tops = [j for j, v in enumerate(node.tops) if differs(graph, node, v)]
        self._to_last = node.channels_last
        self._sizes: dict[
            tuple[str, int], Shape
        ] = {}  # (kind, index) of those that change their order -> (N, C, product of the other axes)
        for kind, ids in (("bottom", node.bottoms), ("top", node.tops)):
            for k, v in enumerate(ids):
                value = graph.values[v]
                if matters(value.shape) and value.channels_last != node.channels_last:
                    self._sizes[kind, k] = value.shape[0], value.shape[1], count(value.shape, 2)

    def __bool__(self) -> bool:
        return bool(self.bottoms or self.tops)

    def _copy(self, io: Pass, kind: str, k: int, source: AnyArray, target: AnyArray, *, inwards: bool) -> None:
        """Queue a copy, to the layer's order and type if `inwards`, else from it."""
        if (kind, k) not in self._sizes:
            io.ops.copy(source, target)
            return
        n, c, s = self._sizes[kind, k]
        to_last = self._to_last if inwards else not self._to_last
        io.ops.transpose(source, target, (n, c, s) if to_last else (n, s, c), (0, 2, 1))

    def _copy_in(self, io: Pass, kind: str, which: str, k: int, arrays: list[AnyArray]) -> None:
        """Replace an input array by a converted copy."""
        if arrays[k] is not None:
            copy = io.scratch[f"copy.{which}{k}"]
            self._copy(io, kind, k, arrays[k], copy, inwards=True)
            arrays[k] = copy

    def _replace(
        self, io: Pass, which: str, k: int, arrays: list[AnyArray], replaced: list[tuple[str, int, AnyArray]]
    ) -> None:
        """Replace an output array by workspace, and note in `replaced` where its content belongs."""
        if arrays[k] is not None:
            replaced.append((which, k, arrays[k]))
            arrays[k] = io.scratch[f"copy.{which}{k}"]

    def forward(self, io: Pass, run: Callable[[Pass], None]) -> None:
        """Run a forward on converted arrays."""
        replaced: list[tuple[str, int, AnyArray]] = []
        for i in self.bottoms:
            self._copy_in(io, "bottom", "bottom", i, io.bottom)
        for j in self.tops:
            self._replace(io, "top", j, io.top, replaced)
        run(io)
        for which, k, array in replaced:
            self._copy(io, "top", k, io.scratch[f"copy.{which}{k}"], array, inwards=False)

    def backward(self, io: Pass, run: Callable[[Pass], None]) -> None:
        """Run a backward on converted arrays."""
        replaced: list[tuple[str, int, AnyArray]] = []
        for i in self.bottoms:
            self._copy_in(io, "bottom", "bottom", i, io.bottom)
            self._replace(io, "bottom_diff", i, io.bottom_diff, replaced)
        for j in self.tops:
            self._copy_in(io, "top", "top", j, io.top)
            self._copy_in(io, "top", "top_diff", j, io.top_diff)
        run(io)
        for which, k, array in replaced:
            self._copy(io, "bottom", k, io.scratch[f"copy.{which}{k}"], array, inwards=False)
