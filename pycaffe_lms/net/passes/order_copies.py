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


def differs(graph: Graph, node: Node, v: int, bottom: int | None = None) -> bool:
    """Return whether a layer accesses a value in another order or type than it is stored in.

    bottom: which it is; None: it is a top. Tops of losses and statistics are always of the net's type."""
    value, own = graph.values[v], node.layer.declares
    if value.channels_last != node.channels_last and matters(value.shape):
        return True
    if bottom is None and (own.is_loss or own.full_precision_tops):
        return False
    return value.half != node.half and own.runs_on is Runs.DEVICE and bottom not in own.full_precision


def request_copies(graph: Graph, node: Node) -> None:
    """Request the workspace for a layer's copies. To be called after `layer.declare`."""
    layer = node.layer
    if layer.declares.runs_on is not Runs.DEVICE or layer.shares_data():
        return
    reads = layer.forward_needs().bottoms
    needs = layer.backward_needs(node.propagate, node.param_propagate) if node.need_backward else None
    for i, v in enumerate(node.bottoms):
        if differs(graph, node, v, i):
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
        self.bottoms = [i for i, v in enumerate(node.bottoms) if differs(graph, node, v, i)]
        self.tops = [j for j, v in enumerate(node.tops) if differs(graph, node, v)]
        self._to_last = node.channels_last
        # ("bottom" or "top", index) of those that change their order -> (N, C, product of the other axes)
        self._sizes: dict[tuple[str, int], Shape] = {}
        for kind, ids in (("bottom", node.bottoms), ("top", node.tops)):
            for k, v in enumerate(ids):
                value = graph.values[v]
                if value.channels_last != node.channels_last and matters(value.shape):
                    self._sizes[kind, k] = value.shape[0], value.shape[1], count(value.shape, 2)

    def __bool__(self) -> bool:
        return bool(self.bottoms or self.tops)

    def forward(self, io: Pass, run: Callable[[Pass], None]) -> None:
        """Run a forward on converted arrays."""
        self._run(io, run, [("bottom", i) for i in self.bottoms], [("top", j) for j in self.tops])

    def backward(self, io: Pass, run: Callable[[Pass], None]) -> None:
        """Run a backward on converted arrays."""
        reads = [("bottom", i) for i in self.bottoms]
        reads += [(which, j) for j in self.tops for which in ("top", "top_diff")]
        self._run(io, run, reads, [("bottom_diff", i) for i in self.bottoms])

    def _run(
        self, io: Pass, run: Callable[[Pass], None], reads: list[tuple[str, int]], writes: list[tuple[str, int]]
    ) -> None:
        """Run a pass on converted copies of the arrays that it reads, then convert what it wrote to workspace."""
        arrays = {"bottom": io.bottom, "top": io.top, "bottom_diff": io.bottom_diff, "top_diff": io.top_diff}
        for which, k in reads:
            if arrays[which][k] is not None:
                copy = io.scratch[f"copy.{which}{k}"]
                self._copy(io, which, k, arrays[which][k], copy, inwards=True)
                arrays[which][k] = copy
        written = [(which, k, arrays[which][k]) for which, k in writes if arrays[which][k] is not None]
        for which, k, array in written:
            arrays[which][k] = copy = io.scratch[f"copy.{which}{k}"]
            if which == "bottom_diff" and io.bottom_adds and io.bottom_adds[k]:
                self._copy(io, which, k, array, copy, inwards=True)
        run(io)
        for which, k, array in written:
            self._copy(io, which, k, io.scratch[f"copy.{which}{k}"], array, inwards=False)

    def _copy(self, io: Pass, which: str, k: int, source: AnyArray, target: AnyArray, *, inwards: bool) -> None:
        """Queue a copy, to the layer's order and type if `inwards`, else from it."""
        sizes = self._sizes.get((which.removesuffix("_diff"), k))
        if sizes is None:
            io.ops.copy(source, target)
            return
        n, c, s = sizes
        io.ops.transpose(source, target, (n, c, s) if self._to_last == inwards else (n, s, c), (0, 2, 1))
