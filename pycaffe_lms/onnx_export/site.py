"""Define what a converter gets, a `Site`: a layer's shapes and parameters, and methods that write operators.

`CONVERTERS` is the table of converters by layer type; `converts` adds to it.
See also: `convert.py`, which makes the sites and joins what converters wrote.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any, NoReturn, TypeAlias, TypeVar

import numpy as np
from numpy.typing import ArrayLike, DTypeLike

from ..layers.base import Shape
from .sketch import Names, Sketch, SketchNode, Tensor

ONNX_TYPES = {"float32": 1, "float64": 11, "int64": 7, "float16": 10, "bool": 9}  # onnx.TensorProto's numbers


Record: TypeAlias = tuple[Any, ...]
Shapes: TypeAlias = tuple[Sequence[Shape], Sequence[Shape]]
_Content: TypeAlias = tuple[str, tuple[int, ...], bytes]
Result: TypeAlias = "str | list[str] | None"


class NotExportable(Exception):
    """Signal a layer that, as it is set, has no exact form in ONNX. args: what is wrong, the fix."""


class Site:
    """Give a converter one layer, and collect the operators that it writes.

    Attributes:
        layer: the net's layer, set up and with shapes; its attributes depend on the type.
        dtype: what it computes in; its bottoms have that type too.
        bottoms: names of tensors.
        bottom_shapes, top_shapes: as in the net.
        other_bottoms, other_tops: the shapes with another batch size; the same ones where the batch is fixed.
        nodes: the operators so far.
        record: operators and constants without names, to compare with another batch size.
        state_outputs: outputs of the graph that the net itself does not have.
        opened: pairs (top, axis) of sizes that are known only after a run.
    """

    def __init__(
        self,
        sketch: Sketch,
        tensors: Names,
        node_names: Names,
        layer: Any,
        dtype: np.dtype,
        params: Sequence[tuple[int, Any]],
        bottoms: list[str],
        shapes: Shapes,
        others: Shapes,
    ):
        self.sketch, self.layer, self.bottoms = sketch, layer, bottoms
        self.param, self.dtype, self.opset = layer.param, dtype, sketch.opset
        self.bottom_shapes, self.top_shapes = shapes
        self.other_bottoms, self.other_tops = others
        self.nodes: list[SketchNode] = []
        self.record: list[Record] = []
        self.state_outputs: list[Tensor] = []
        self.opened: set[tuple[int, int]] = set()
        self._known: dict[_Content, str] = {}
        self._tensors, self._node_names, self._params = tensors, node_names, params

    # -- operators ----------------------------------------------------------------------------------------------------
    @property
    def x(self) -> str:
        """Return the first bottom."""
        return self.bottoms[0]

    @property
    def shape(self) -> Shape:
        """Return the shape of the first bottom."""
        return self.bottom_shapes[0]

    def op(self, op: str, *inputs: str, **attributes: Any) -> str:
        """Write an operator with one output; return the output's name."""
        return self.ops(op, *inputs, outputs=1, **attributes)[0]

    def ops(self, op: str, *inputs: str, outputs: int, **attributes: Any) -> list[str]:
        """Write an operator; return the names of its outputs."""
        names = [self._tensors.new(f"{self.layer.name}/{op}") for _ in range(outputs)]
        node = SketchNode(op, self._node_names.new(self.layer.name), list(inputs), names, attributes)
        self.nodes.append(node)
        known = {name: content for content, name in self._known.items()}
        self.record.append((op, sorted(attributes.items()), tuple(known.get(name) for name in inputs)))
        return names

    def made(self) -> set[str]:
        """Return the names of all outputs of operators so far."""
        return {name for node in self.nodes for name in node.outputs}

    # -- constants ----------------------------------------------------------------------------------------------------
    def const(self, values: ArrayLike, dtype: DTypeLike = np.int64) -> str:
        """Return a constant, by default of integers; equal ones of a layer are the same tensor."""
        array = np.array(values, dtype)
        content = _content(array)
        found = self._known.get(content)
        if found is None:
            found = self._known[content] = self._tensors.new(f"{self.layer.name}/const")
            self.sketch.constants[found] = array
        return found

    def number(self, value: float) -> str:
        """Return a constant number of the layer's type, of float16 the one that is nearest."""
        most = float(np.finfo(self.dtype).max)
        return self.const(min(max(value, -most), most) if np.isfinite(value) else value, self.dtype)

    # -- parameters ---------------------------------------------------------------------------------------------------
    def values(self, i: int) -> np.ndarray:
        """Return the values of parameter i."""
        found: np.ndarray = self._params[i][1].read_data()
        return found

    def weight(self, i: int, shape: Shape | None = None, name: str = "") -> str:
        """Return parameter i as a constant (of that shape); layers that share a parameter share the constant."""
        values = self.values(i)
        shape = values.shape if shape is None else tuple(shape)
        names = ("weight", "bias") if len(self._params) <= 2 else ()
        name = name or (names[i] if i < len(names) else f"param{i}")
        return self.folded(f"{shape}", (i,), lambda v: v.reshape(shape), name)

    def folded(self, kind: str, params: Sequence[int], fold: Callable[..., np.ndarray], name: str) -> str:
        """Return a constant computed from parameters, once for layers that share them. kind: names the computation."""
        key = (f"{self.dtype} {kind}", tuple(self._params[i][0] for i in params))
        found = self.sketch.folded.get(key)
        if found is None:
            exact = fold(*(self.values(i) for i in params))
            with np.errstate(over="ignore"):
                array = np.asarray(exact, self.dtype)
            if not np.array_equal(np.isfinite(array), np.isfinite(exact)):
                most = float(np.finfo(self.dtype).max)
                self.refuse(
                    f"has parameters above {most:g}, the largest number of {self.dtype}", "export it in float32"
                )
            found = self.sketch.folded[key] = self._tensors.new(f"{self.layer.name}/{name}")
            self.sketch.constants[found] = array
        return found

    # -- arithmetic ---------------------------------------------------------------------------------------------------
    def affine(self, x: str, scale: float, shift: float) -> str:
        """Write scale * x + shift, without a scale of 1 or a shift of 0."""
        if scale != 1:
            x = self.op("Mul", x, self.number(scale))
        return self.op("Add", x, self.number(shift)) if shift != 0 else x

    def cast(self, x: str, dtype: DTypeLike) -> str:
        return self.op("Cast", x, to=ONNX_TYPES[np.dtype(dtype).name])

    def reduce(self, op: str, x: str, axes: Sequence[int], keep: bool) -> str:
        """Write a reduction. Axes are an input of ReduceSum since opset 13, of others since 18; else an attribute."""
        if self.opset >= (13 if op == "ReduceSum" else 18):
            return self.op(op, x, self.const(list(axes)), keepdims=int(keep))
        return self.op(op, x, axes=list(axes), keepdims=int(keep))

    def softmax(self, x: str, axis: int, ndim: int) -> str:
        """Write a Softmax along one axis. Before opset 13 it took all axes from there on, so the axis goes last."""
        if self.opset >= 13 or axis == ndim - 1:
            return self.op("Softmax", x, axis=axis)
        swapped = list(range(ndim))
        swapped[axis], swapped[-1] = ndim - 1, axis
        y = self.op("Softmax", self.op("Transpose", x, perm=swapped), axis=ndim - 1)
        return self.op("Transpose", y, perm=swapped)

    # -- shapes -------------------------------------------------------------------------------------------------------
    def reshape(self, x: str, shape: Sequence[int]) -> str:
        """Write a reshape; in `shape` 0 is the size of x in that place, and -1 what is left."""
        if list(shape).count(-1) > 1:
            self.refuse("needs two sizes that follow the batch at once", "export it without dynamic_batch")
        return self.op("Reshape", x, self.const(list(shape)))

    def squeeze(self, x: str, axes: Sequence[int]) -> str:
        return self._by_numbers("Squeeze", x, "axes", axes)[0]

    def unsqueeze(self, x: str, axes: Sequence[int]) -> str:
        return self._by_numbers("Unsqueeze", x, "axes", axes)[0]

    def split(self, x: str, sizes: Sequence[int], axis: int) -> list[str]:
        """Cut x along an axis into parts of these sizes."""
        return self._by_numbers("Split", x, "split", sizes, outputs=len(sizes), axis=axis)

    def _by_numbers(
        self, op: str, x: str, name: str, numbers: Sequence[int], outputs: int = 1, **attributes: int
    ) -> list[str]:
        """Write an operator that takes axes or sizes, since opset 13 as an input, before as an attribute."""
        if self.opset >= 13:
            return self.ops(op, x, self.const(list(numbers)), outputs=outputs, **attributes)
        return self.ops(op, x, outputs=outputs, **attributes, **{name: [int(n) for n in numbers]})

    def resize(self, x: str, *, scales: Sequence[float] = (), sizes: str = "", **attributes: str) -> str:
        """Write a Resize by factors, or to the sizes in a tensor. Only since opset 13 other inputs may be missing."""
        none = "" if self.opset >= 13 else self.const([], np.float32)
        factors = self.const(list(scales), np.float32) if scales else none
        return self.op("Resize", x, none, factors, *([sizes] if sizes else []), **attributes)

    def to_top(self, x: str, top: int = 0, *, first_kept: bool = False) -> str:
        """Reshape x, which has the top's elements, to the top's shape. first_kept: the first axis keeps its size."""
        shape, other = self.top_shapes[top], self.other_tops[top]
        target = [size if size == now else -1 for size, now in zip(shape, other, strict=True)]
        if first_kept and target:
            target[0] = 0
        return self.reshape(x, target)

    def follows_batch(self, axis: int) -> bool:
        """Return whether the size of this axis of the first bottom depends on the batch size."""
        return bool(self.shape[axis] != self.other_bottoms[0][axis])

    def open(self, top: int, axis: int) -> None:
        """Say that the size of a top's axis is known only after a run."""
        self.opened.add((top, axis))

    # -- state from run to run ----------------------------------------------------------------------------------------
    def state_input(self, name: str, shape: Shape) -> str:
        """Add an optional input to the graph, zeros where it is not given."""
        name = self._tensors.new(f"{self.layer.name}.{name}")
        self.sketch.constants[name] = np.zeros(shape, self.dtype)
        self.sketch.inputs.append(Tensor(name, tuple(shape), self.dtype))
        return name

    def state_output(self, name: str, x: str, shape: Shape) -> None:
        """Add x as an output of the graph, beside those of the net."""
        made = self._tensors.new(f"{self.layer.name}.{name}")
        for node in self.nodes:
            node.rename({x: made})
        self.state_outputs.append(Tensor(made, tuple(shape), self.dtype))

    def refuse(self, message: str, fix: str) -> NoReturn:
        raise NotExportable(message, fix)


def _content(array: np.ndarray) -> _Content:
    return array.dtype.name, array.shape, array.tobytes()


class Precision(Enum):
    """Say what a layer computes in where the model is in float16."""

    HALF = "float16"
    SINGLE = "float32"  # numbers that are indices or coordinates, squares, exponentials
    GIVEN = "its bottoms' type"  # it moves values only


@dataclass(frozen=True)
class Converter:
    """Hold the converter of a layer type, and its row in docs/onnx.md.

    Attributes:
        run: writes operators and returns the names of the tops' tensors: one, a list, or None for no top.
        family: the heading above the row.
        ops: all operators that it may write.
        note: what the exported form cannot do, or what a user may not expect; "" for none.
        precision: of a model in float16.
    """

    run: Callable[[Site], Result]
    family: str
    ops: tuple[str, ...]
    note: str
    precision: Precision


_Run = TypeVar("_Run", bound=Callable[[Site], Result])
CONVERTERS: dict[str, Converter] = {}


def converts(
    *types: str, family: str, ops: str, note: str = "", precision: Precision = Precision.HALF
) -> Callable[[_Run], _Run]:
    """Decorate the function that converts these layer types. ops: names of operators, with spaces between."""

    def add(run: _Run) -> _Run:
        for name in types:
            if name in CONVERTERS:
                raise AssertionError(f"two converters for {name}")
            CONVERTERS[name] = Converter(run, family, tuple(ops.split()), note, precision)
        return run

    return add
