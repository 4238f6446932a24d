"""Convert a wired net to a sketch: layer by layer through the table of converters, then names of tensors.

Blobs keep their names. Where layers work in place, the last version has the blob's name and earlier ones have
"BLOB.LAYER"; but an input always keeps its name, for users feed it.
See also: `export.py`, which builds the net; `model.py`, which writes the file.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ..errors import ExportError, Where
from ..layers.detection.proposal import CountedRowsLayer
from ..layers.shape.filter import FilterLayer
from ..net.build.graph import Graph, Node
from ..net.build.splits import split_layer_name
from . import arrangement, detection, images, normalise, pointwise, pooling, products, recurrent  # noqa: F401  (fill the table)
from .site import CONVERTERS, ONNX_TYPES, Converter, NotExportable, Precision, Record, Shapes, Site
from .sketch import BATCH, Dim, Names, Sketch, Tensor
from .sketch import SketchNode as Operator

_HALF = np.dtype(np.float16)


@dataclass
class Problem:
    """Hold a layer that cannot be exported, why, and a fix."""

    where: Where
    reason: str
    fix: str


COUNTS_ROWS = (CountedRowsLayer, FilterLayer)  # layers that say after forward how many rows their tops have


def convert(
    graph: Graph, *, dtype: np.dtype, opset: int, file: str | None, other: Graph | None = None, half: bool = False
) -> Sketch:
    """Sketch a net, the values of which are in `layer.blobs` of its layers.

    other: the same net with other sizes where they may vary, see `export.with_other_sizes`. half: compute in float16
    where that is safe.
    Raises: ExportError, naming every layer that cannot be exported.
    """
    first = _Conversion(graph, other or graph, graph, dtype, opset, half)
    problems = first.run()
    if other is not None and not problems:
        second = _Conversion(other, graph, graph, dtype, opset, half)
        problems = second.run() or first.differences(second)
    if problems:
        raise _error(problems, file)
    if not graph.outputs:
        fix = "end it with a layer whose top no other layer reads"
        raise ExportError("the net has no outputs, which a model needs", where=Where(file=file), fix=fix)
    return first.finish()


class _Conversion:
    """Walk through a net once, with one batch size.

    source: the graph whose layers hold the values. tensor_of: value -> name of its tensor; values may share one.
    type_of: tensor -> its type; `cast`: (tensor, type) -> the tensor cast to it.
    open: value -> its axes whose sizes are known only after a run, of a layer behind which there can be no other.
    counted: values with as many rows as a run finds, and those made of them.
    records: what each layer wrote, without names. states: outputs that the net itself does not have.
    """

    def __init__(self, graph: Graph, other: Graph, source: Graph, dtype: np.dtype, opset: int, half: bool):
        self.graph, self.other, self.source = graph, other, source
        self.sketch = Sketch(graph.name or "net", opset, np.dtype(dtype))
        self.tensors = Names(v.name for v in graph.values)
        self.node_names = Names()
        self.half = half
        self.tensor_of: dict[int, str] = {}
        self.type_of: dict[str, np.dtype] = {}
        self.cast: dict[tuple[str, np.dtype], str] = {}
        self.open: dict[int, set[int]] = {}
        self.counted: set[int] = set()
        self.records: list[list[Record]] = []
        self.states: list[Tensor] = []

    def run(self) -> list[Problem]:
        """Convert all layers; return the problems."""
        problems = []
        for node, twin in zip(self.graph.nodes, self.other.nodes, strict=True):
            for v in node.tops:
                self.tensor_of[v] = f"\0{v}"  # until `finish` names it
                self.type_of[self.tensor_of[v]] = self.sketch.dtype  # until its layer is converted
            self.records.append([])
            if node.layer.declares.is_net_input:
                problems += self._input(node)
                continue
            if isinstance(node.layer, COUNTS_ROWS) or not self.counted.isdisjoint(node.bottoms):
                self.counted.update(node.tops)
            converter = CONVERTERS.get(node.layer.param.type)
            if converter is None:
                problems.append(Problem(_place(node), *_why_not(node)))
                continue
            if [self.graph.params[p].shape for p in node.params] != [self.other.params[p].shape for p in twin.params]:
                problems.append(self._by_size(node))
                continue
            if any(b in self.open for b in node.bottoms):
                reason = "reads a blob whose size is known only after a run"
                problems.append(Problem(_place(node), reason, "cut the net before this layer"))
                continue
            try:
                self._layer(node, twin, converter)
            except NotExportable as refused:
                problems.append(Problem(_place(node), *refused.args))
        return problems

    def _input(self, node: Node) -> list[Problem]:
        for v in node.tops:
            value = self.graph.values[v]
            if 0 in value.shape:
                fix = "give input_param a shape, or reshape the blob before"
                return [Problem(_place(node), f'blob "{value.name}" has shape {value.shape}, without elements', fix)]
            self.sketch.inputs.append(Tensor(self.tensor_of[v], self._dims(v), self.sketch.dtype))
        return []

    def _layer(self, node: Node, twin: Node, converter: Converter) -> None:
        graph, other = self.graph, self.other
        params = [graph.params[p].owner for p in node.params]
        blobs = self.source.nodes[node.index].layer.blobs
        bottoms = [self.tensor_of[b] for b in node.bottoms]
        dtype = self._dtype(node, converter, bottoms)
        site = Site(
            self.sketch,
            self.tensors,
            self.node_names,
            node.layer,
            dtype,
            list(zip(params, blobs, strict=True)),
            [self._as(tensor, dtype, node.name) for tensor in bottoms],
            _shapes(graph, node),
            _shapes(other, twin),
        )
        result = converter.run(site)
        results = [result] if isinstance(result, str) else list(result or [])
        taken: set[str] = set()
        for v, found in zip(node.tops, results, strict=True):
            if found in site.made() - taken:
                for written in site.nodes:
                    written.rename({found: self.tensor_of[v]})
                taken.add(self.tensor_of[v])
            elif found in self.tensor_of.values() and self._nameless(node, v):
                self.tensor_of[v] = found
            else:
                copy = site.op("Identity", found)
                site.nodes[-1].rename({copy: self.tensor_of[v]})
        self.type_of.update((self.tensor_of[v], dtype) for v in node.tops)
        for top, axis in site.opened:
            self.open.setdefault(node.tops[top], set()).add(axis)
        self.sketch.nodes += site.nodes
        self.states += site.state_outputs
        self.records[node.index] = site.record

    def _dtype(self, node: Node, converter: Converter, bottoms: list[str]) -> np.dtype:
        """Return what a layer computes in."""
        single, precision, layer = self.sketch.dtype, converter.precision, node.layer
        if not self.half or precision is Precision.SINGLE:
            return single
        given = {self.type_of[tensor] for tensor in bottoms}
        if precision is Precision.GIVEN and given == {single}:
            return single
        # Places of maxima are indices; statistics and stochastic pooling are sums of squares.
        if len(node.tops) > 1 and layer.param.type.endswith("Pooling"):
            return single
        return single if getattr(layer, "random", False) or not getattr(layer, "use_global", True) else _HALF

    def _as(self, tensor: str, dtype: np.dtype, layer: str) -> str:
        """Return the tensor in a type; write the Cast where there is none yet."""
        if self.type_of[tensor] == dtype:
            return tensor
        if (tensor, dtype) not in self.cast:
            made = self.tensors.new(f"{layer}/{dtype}")
            to = {"to": ONNX_TYPES[dtype.name]}
            self.sketch.nodes.append(Operator("Cast", self.node_names.new(f"{layer}/Cast"), [tensor], [made], to))
            self.cast[tensor, dtype], self.type_of[made] = made, dtype
        return self.cast[tensor, dtype]

    def _nameless(self, node: Node, v: int) -> bool:
        """Return whether a top needs no tensor of its own: it is in place, or of a Split that Caffe inserts."""
        names = [self.graph.values[b].name for b in node.bottoms]
        if self.graph.values[v].name in names:
            return True
        source = self.graph.values[node.bottoms[0]]
        maker = self.graph.nodes[source.producer]
        return node.name == split_layer_name(source.name, maker.name, source.top)

    def differences(self, second: _Conversion) -> list[Problem]:
        """Return a problem for each layer that is written in another way with another batch size."""
        return [
            self._by_size(node)
            for node, mine, theirs in zip(self.graph.nodes, self.records, second.records, strict=True)
            if mine != theirs
        ]

    def _by_size(self, node: Node) -> Problem:
        """Return the problem of a layer that would be written in another way for another size."""
        if not self.counted.isdisjoint(node.bottoms):
            reason = "is not the same for each number of rows, which is known only after a run"
            return Problem(_place(node), reason, "cut the net before this layer")
        return Problem(_place(node), "depends on the batch size", "export it without dynamic_batch")

    def finish(self) -> Sketch:
        """Add the outputs, name all tensors, and return the sketch."""
        graph, sketch = self.graph, self.sketch
        names: dict[str, str] = {}
        for blob in graph.outputs:
            v = graph.last[blob]
            self.tensor_of[v] = self._as(inner := self.tensor_of[v], sketch.dtype, blob)
            if self.tensor_of[v] != inner:
                names[inner] = self.tensors.new(f"{blob}.{graph.nodes[graph.values[v].producer].name}")
        used = {name for node in sketch.nodes for name in node.inputs} | {
            self.tensor_of[graph.last[b]] for b in graph.outputs
        }
        unused = {made for made in self.cast.values() if made not in used}
        sketch.nodes = [node for node in sketch.nodes if not unused & set(node.outputs)]
        inputs = {tensor.name for tensor in sketch.inputs}
        for value in graph.values:
            tensor = self.tensor_of[value.id]
            if tensor in inputs and tensor not in names:
                names[tensor] = value.name
        given = Names(names.values())
        for blob, v in graph.last.items():
            tensor = self.tensor_of[v]
            if tensor not in names and given.reserve(blob):
                names[tensor] = blob
        for value in graph.values:
            tensor = self.tensor_of[value.id]
            if tensor not in names:
                names[tensor] = self.tensors.new(f"{value.name}.{graph.nodes[value.producer].name}")
        for blob in graph.outputs:
            v = graph.last[blob]
            tensor = self.tensor_of[v]
            if tensor in inputs:  # an output that is an input
                copy = self.tensors.new(f"{blob}.out")
                sketch.nodes.append(Operator("Identity", self.node_names.new(copy), [tensor], [copy], {}))
                tensor = copy
            sketch.outputs.append(Tensor(tensor, self._dims(v), sketch.dtype))
        sketch.outputs += self.states
        sketch.rename(names)
        return sketch

    def _dims(self, v: int) -> tuple[Dim, ...]:
        """Return the sizes of a value: "batch" for an axis of the batch size, None for others that depend on it."""
        shape, other = self.graph.values[v].shape, self.other.values[v].shape
        batches = {self._batch(self.graph), self._batch(self.other)}
        dims: Sequence[Dim] = [
            None
            if i in self.open.get(v, ())
            else mine
            if mine == theirs
            else BATCH
            if {mine, theirs} == batches
            else None
            for i, (mine, theirs) in enumerate(zip(shape, other, strict=True))
        ]
        return tuple(dims)

    @staticmethod
    def _batch(graph: Graph) -> int:
        return next(((graph.values[graph.last[name]].shape or (0,))[0] for name in graph.inputs), 0)


def _shapes(graph: Graph, node: Node) -> Shapes:
    return [graph.values[v].shape for v in node.bottoms], [graph.values[v].shape for v in node.tops]


def _place(node: Node) -> Where:
    return Where(line=node.line, layer=node.name, type=node.layer.param.type)


def _why_not(node: Node) -> tuple[str, str]:
    if not node.bottoms:
        return "reads data by itself", "export the deploy prototxt, whose inputs are Input layers"
    if node.layer.declares.is_loss or node.layer.declares.no_backward is None or not node.tops:
        return "is for training and testing", "export the deploy prototxt, which ends before it"
    return "has no counterpart in ONNX", "cut the net before this layer, or write it with other layers"


def _error(problems: list[Problem], file: str | None) -> ExportError:
    first, n = problems[0], len(problems)
    for problem in problems:
        problem.where = Where(file=file, line=problem.where.line, layer=problem.where.layer, type=problem.where.type)
    if n == 1:
        return ExportError(f"{first.reason}, so the net cannot become ONNX", where=first.where, fix=first.fix)
    lines = [f"    {p.where}: {p.reason}" for p in problems]
    fixes = "; ".join(dict.fromkeys(p.fix for p in problems))
    return ExportError("\n".join([f"{n} layers cannot become ONNX:", *lines]), where=Where(file=file), fix=fixes)
