"""Assigns a buffer to every value, parameter and scratch of a graph, in creation order. Pure.

Flatten, Reshape and Split share their bottom's data. An in-place layer's top shares data with its bottom only if no
backward and no other layer's forward reads the bottom later. So in-place layers need no copies, and an in-place chain
such as convolution, BatchNorm, Scale, ReLU keeps only the values that gradients need. Diffs of one name share memory,
as in Caffe, if the in-place layer supports it (see `../memory/versions.py`). `assign` is the entry point.
"""

from __future__ import annotations

from ...backend.device import align
from ...formats.types import SPLIT
from ...layers.base import InPlace, Lives, count
from ...lms.program import Buffer
from ..build.gradients import in_one_memory, lowest_gradients
from ..build.graph import Graph, Node, Param
from ..passes.precision import value_bytes


class BufferTable:
    """List buffers by id, and their bytes before alignment. Names are unique: a reshape finds memory by name."""

    def __init__(self) -> None:
        self.buffers: list[Buffer] = []
        self.used_bytes: list[int] = []
        self._names: set[str] = set()
        self._numbers: dict[str, int] = {}  # the last suffix of a name requested several times

    def add(self, name: str, nbytes: int, *, call_scratch: bool = False) -> int:
        """Add a buffer and return its id; a name already in use gets a number."""
        wanted, b = name, len(self.buffers)
        while name in self._names:  # layers with the same name, unnamed tops
            stem, dot, kind = wanted.rpartition(".")
            self._numbers[wanted] = k = self._numbers.get(wanted, 1) + 1
            name = f"{stem}({k}){dot}{kind}"
        self._names.add(name)
        self.buffers.append(Buffer(b, name, align(max(nbytes, 1)), call_scratch))
        self.used_bytes.append(nbytes)
        return b


def assign(graph: Graph, itemsize: int) -> BufferTable:
    """Set the buffer ids of every value, parameter and scratch, and return the table of buffers.

    Creation order: parameters, tops and scratch layer by layer; then diffs from the last layer to the first; then
    diffs of parameters. itemsize: bytes of a number.
    """
    table = BufferTable()
    for value in graph.values:
        value.data = value.diff = -1
    tops = _Tops(graph, table, _needed_by_backward(graph), itemsize)
    groups = {group.index: group for group in graph.groups}
    for node in graph.nodes:
        for p in node.params:
            param = graph.params[p]
            if param.node != node.index:
                continue  # a later micro-batch of the layer, with the same parameters
            if param.owner == p:
                param.data = table.add(f"{_buffer_name(graph, param)}.data", count(param.shape) * itemsize)
            else:
                param.data = graph.params[param.owner].data
        tops.assign(node)
        for owner in (node, groups[node.index]) if node.index in groups else (node,):
            for scratch in owner.layer.scratches.values():
                owner.scratch[scratch.name] = table.add(
                    f"{owner.name}.{scratch.name}", scratch.nbytes, call_scratch=scratch.lives is Lives.CALL
                )
    _assign_diffs(graph, table, itemsize)
    for param in graph.params:
        if param.owner == param.index:
            param.diff = table.add(f"{_buffer_name(graph, param)}.diff", count(param.shape) * itemsize)
        else:
            param.diff = graph.params[param.owner].diff
    return table


def parts_to_manage(graph: Graph, table: BufferTable, least: int) -> dict[int, bool]:
    """Map buffers of layers in parts, blocks or slabs to True if the whole layer's would exceed `least` bytes."""
    found: dict[int, bool] = {}
    for node in graph.everyone():
        parts = node.part or node.block or node.slab
        if parts is None:
            continue
        values = [graph.values[v] for v in node.tops if graph.values[v].whole is None]
        ids = {b for v in values for b in (v.data, v.diff)}
        ids |= {node.scratch[s.name] for s in node.layer.scratches.values() if s.lives is not Lives.CALL}
        if node.block:
            ids |= {b for p in node.params for b in (graph.params[p].data, graph.params[p].diff)}
        found.update((b, True) for b in ids if table.buffers[b].nbytes * parts[1] > least)
    return found


def _buffer_name(graph: Graph, param: Param) -> str:
    node = graph.nodes[param.node]
    block = f" [{node.block[0] + 1}/{node.block[1]}]" if node.block else ""
    return f"{node.layer.param.name}.param{param.position}{block}"


class _Tops:
    """Assign data buffers to tops, layer by layer, in layer order. keep: ids of values that must not be overwritten."""

    def __init__(self, graph: Graph, table: BufferTable, keep: set[int], itemsize: int):
        self._graph, self._table, self._keep, self._itemsize = graph, table, keep, itemsize
        self._last_read = {graph.stored(b): node.index for node in graph.nodes for b in node.bottoms}
        self._stored: dict[int, list[int]] = {}  # by buffer: values stored there; some that no layer reads are dropped

    def assign(self, node: Node) -> None:
        graph, shared = self._graph, node.layer.shares_data()
        for b in node.bottoms:
            self._put(b, graph.values[graph.stored(b)].data)
        for j, t in enumerate(node.tops):
            value = graph.values[t]
            if value.whole is not None:
                whole = graph.values[value.whole]
                if whole.data < 0:
                    self._put(whole.id, self._table.add(f"{whole.name}.data", value_bytes(whole, self._itemsize)))
                self._put(t, whole.data)
            elif j in shared:
                self._put(t, graph.values[node.bottoms[shared[j]]].data)
            elif _in_place(graph, node, j) and self._may_overwrite(node, j):
                self._put(t, graph.values[node.bottoms[j]].data)
            else:
                version = f"({node.name})" if _in_place(graph, node, j) else ""  # another value of the same blob
                self._put(t, self._table.add(f"{value.name}{version}.data", value_bytes(value, self._itemsize)))

    def _put(self, v: int, buffer: int) -> None:
        self._graph.values[v].data = buffer
        self._stored.setdefault(buffer, []).append(v)

    def _may_overwrite(self, node: Node, j: int) -> bool:
        graph, mode = self._graph, node.layer.declares.in_place
        old, new = graph.values[node.bottoms[j]], graph.values[node.tops[j]]
        if mode is InPlace.MUST:
            return True
        if mode is not InPlace.ALLOWED or count(old.shape) != count(new.shape):
            return False
        stored = self._stored[old.data]
        while stored and not self._needed_after(node, stored[-1]):
            stored.pop()  # keeps the time for long in-place chains linear
        return not any(v < node.tops[0] and self._needed_after(node, v) for v in reversed(stored))

    def _needed_after(self, node: Node, v: int) -> bool:
        """Return whether a value is read after the node's forward."""
        return v in self._keep or self._last_read.get(self._graph.stored(v), -1) > node.index


def _in_place(graph: Graph, node: Node, j: int) -> bool:
    return j < len(node.bottoms) and graph.values[node.bottoms[j]].name == graph.values[node.tops[j]].name


def _needed_by_backward(graph: Graph) -> set[int]:
    """Return the ids of values whose data some layer's backward reads."""
    needed: set[int] = set()
    for node in graph.everyone():
        if node.need_backward:
            needs = node.layer.backward_needs(node.propagate, node.param_propagate)
            needed |= {node.bottoms[i] for i in needs.bottoms} | {node.tops[i] for i in needs.tops}
            needed |= {v for v, which in node.later if which == "data"}
    return needed | {graph.stored(v) for v in needed}


def _assign_diffs(graph: Graph, table: BufferTable, itemsize: int) -> None:
    parent = list(range(len(graph.values)))  # values whose diffs are one buffer: union by name and by sharing

    def root(v: int) -> int:
        while parent[v] != v:
            v = parent[v]
        return v

    unmade = _unmade_gradients(graph)
    for node in graph.nodes:
        for t, b in node.layer.shares().items():
            parent[root(node.tops[t])] = root(node.bottoms[b])
        for j, t in enumerate(node.tops):
            if j < len(node.bottoms) and node.bottoms[j] in unmade and t not in unmade:
                continue
            if _in_place(graph, node, j) and node.layer.declares.in_place in (InPlace.ALLOWED, InPlace.MUST):
                parent[root(t)] = root(node.bottoms[j])
    made: dict[int, int] = {}
    for value in reversed(graph.values):
        if value.whole is not None:
            continue
        r = root(value.id)
        if r not in made:
            made[r] = table.add(f"{value.name}.diff", value_bytes(value, itemsize))
        value.diff = made[r]
    for value in graph.values:
        value.diff = graph.values[graph.stored(value.id)].diff


def _unmade_gradients(graph: Graph) -> set[int]:
    """Return values inside fused chains whose gradient a blob would show, although the chain does not compute it.

    They share no diff with the chain's top, so that the blob does not show the top's gradient instead.
    """
    # groups that overwrite their top's diff compute that gradient there
    inside = graph.inside_groups(g for g in graph.groups if not g.layer.declares.overwrites_top_diffs)
    alike = in_one_memory(graph)
    lowest = lowest_gradients(graph, alike)
    return {v for v in inside if lowest.get(alike[v]) in inside}


def makers(graph: Graph) -> dict[int, str]:
    """Map each buffer to the name of the layer in the prototxt that makes it first."""
    layers: dict[int, str] = {}
    for value in graph.values:
        maker = graph.nodes[value.producer]
        if maker.layer.type == SPLIT:  # inserted: name the user's layer instead
            maker = graph.nodes[graph.values[maker.bottoms[0]].producer]
        for b in (value.data, value.diff):
            layers.setdefault(b, maker.name)
    for param in graph.params:
        for b in (param.data, param.diff):
            layers.setdefault(b, graph.nodes[param.node].layer.param.name)
    for node in graph.everyone():
        layers.update((b, node.name) for b in node.scratch.values())
    return layers


def inside_groups(graph: Graph) -> set[int]:
    """Return the buffers of values inside fused chains."""
    return {b for v in graph.inside_groups() for b in (graph.values[v].data, graph.values[v].diff)}
