"""One layer as its converter sees it: shapes, parameters, and the operators that it writes.

Covers: writing operators and constants, reshaping without fixing the batch, parameters (a shared one once), refusals.
See also: `convert.py`, which makes the sites and joins what they wrote.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NoReturn, TypeAlias, TypeVar

import numpy as np
from numpy.typing import ArrayLike, DTypeLike

from ..layers.base import Shape
from .sketch import Names, Sketch, SketchNode, Tensor

_TYPES = {"float32": 1, "float64": 11, "int64": 7}  # onnx.TensorProto's numbers


Record: TypeAlias = tuple[Any, ...]
Shapes: TypeAlias = tuple[Sequence[Shape], Sequence[Shape]]
_Content: TypeAlias = tuple[str, tuple[int, ...], bytes]
Result: TypeAlias = "str | list[str] | None"


class NotExportable(Exception):
    """A layer that has no faithful form in ONNX as it is set. args: what is wrong, the fix."""


class Site:
    """layer: the net's layer, set up and with shapes. bottoms: names of tensors. bottom_shapes, top_shapes: as the net
    has them. other_bottoms, other_tops: as they are with another batch size; the same where the batch is fixed.
    """

    def __init__(
        self,
        sketch: Sketch,
        tensors: Names,
        node_names: Names,
        layer: Any,
        params: Sequence[tuple[int, Any]],
        bottoms: list[str],
        shapes: Shapes,
        others: Shapes,
    ):
        self.sketch, self.layer, self.bottoms = sketch, layer, bottoms
        self.param, self.dtype, self.opset = layer.param, sketch.dtype, sketch.opset
        self.bottom_shapes, self.top_shapes = shapes
        self.other_bottoms, self.other_tops = others
        self.nodes: list[SketchNode] = []
        self.record: list[Record] = []  # operators and constants without names, to compare with another batch size
        self.state_outputs: list[Tensor] = []
        self._known: dict[_Content, str] = {}
        self._tensors, self._node_names, self._params = tensors, node_names, params

    # -- operators ----------------------------------------------------------------------------------------------------
    @property
    def x(self) -> str:
        """The first bottom."""
        return self.bottoms[0]

    @property
    def shape(self) -> Shape:
        """Of the first bottom."""
        return self.bottom_shapes[0]

    def op(self, op: str, *inputs: str, **attributes: Any) -> str:
        """Write an operator of one output; returns its name."""
        return self.ops(op, *inputs, outputs=1, **attributes)[0]

    def ops(self, op: str, *inputs: str, outputs: int, **attributes: Any) -> list[str]:
        """Write an operator; returns the names of its outputs."""
        names = [self._tensors.new(f"{self.layer.name}/{op}") for _ in range(outputs)]
        node = SketchNode(op, self._node_names.new(self.layer.name), list(inputs), names, attributes)
        self.nodes.append(node)
        known = {name: content for content, name in self._known.items()}
        self.record.append((op, sorted(attributes.items()), tuple(known.get(name) for name in inputs)))
        return names

    def made(self) -> set[str]:
        """Names of what its operators made so far."""
        return {name for node in self.nodes for name in node.outputs}

    # -- constants ----------------------------------------------------------------------------------------------------
    def const(self, values: ArrayLike, dtype: DTypeLike = np.int64) -> str:
        """A constant, by default of integers; equal ones of a layer are one."""
        array = np.array(values, dtype)
        content = _content(array)
        found = self._known.get(content)
        if found is None:
            found = self._known[content] = self._tensors.new(f"{self.layer.name}/const")
            self.sketch.constants[found] = array
        return found

    def number(self, value: float) -> str:
        """A number of the net's type."""
        return self.const(value, self.dtype)

    # -- parameters ---------------------------------------------------------------------------------------------------
    def values(self, i: int) -> np.ndarray:
        """The values of parameter i."""
        found: np.ndarray = self._params[i][1].read_data()
        return found

    def weight(self, i: int, shape: Shape | None = None, name: str = "") -> str:
        """Parameter i as a constant (of that shape). Layers that share a parameter share the constant."""
        values = self.values(i)
        shape = values.shape if shape is None else tuple(shape)
        names = ("weight", "bias") if len(self._params) <= 2 else ()
        name = name or (names[i] if i < len(names) else f"param{i}")
        return self.folded(f"{shape}", (i,), lambda v: v.reshape(shape), name)

    def folded(self, kind: str, params: Sequence[int], fold: Callable[..., np.ndarray], name: str) -> str:
        """A constant made of parameters; made once for layers that share them. kind: tells foldings apart."""
        key = (kind, tuple(self._params[i][0] for i in params))
        found = self.sketch.folded.get(key)
        if found is None:
            array = np.asarray(fold(*(self.values(i) for i in params)), self.dtype)
            found = self.sketch.folded[key] = self._tensors.new(f"{self.layer.name}/{name}")
            self.sketch.constants[found] = array
        return found

    # -- arithmetic that many need ------------------------------------------------------------------------------------
    def affine(self, x: str, scale: float, shift: float) -> str:
        """scale * x + shift, without what changes nothing."""
        if scale != 1:
            x = self.op("Mul", x, self.number(scale))
        return self.op("Add", x, self.number(shift)) if shift != 0 else x

    def cast(self, x: str, dtype: DTypeLike) -> str:
        return self.op("Cast", x, to=_TYPES[np.dtype(dtype).name])

    def reduce(self, op: str, x: str, axes: Sequence[int], keep: bool) -> str:
        """ReduceSum and its kin over these axes, which became an input later in some than in others."""
        if op == "ReduceSum" or self.opset >= 18:
            return self.op(op, x, self.const(list(axes)), keepdims=int(keep))
        return self.op(op, x, axes=list(axes), keepdims=int(keep))

    # -- shapes -------------------------------------------------------------------------------------------------------
    def reshape(self, x: str, shape: Sequence[int]) -> str:
        """0: the size that x has there, -1: what is left."""
        if list(shape).count(-1) > 1:
            self.refuse("needs two sizes that follow the batch at once", "export it without dynamic_batch")
        return self.op("Reshape", x, self.const(list(shape)))

    def squeeze(self, x: str, axes: Sequence[int]) -> str:
        return self.op("Squeeze", x, self.const(list(axes)))

    def unsqueeze(self, x: str, axes: Sequence[int]) -> str:
        return self.op("Unsqueeze", x, self.const(list(axes)))

    def to_top(self, x: str, top: int = 0, *, first_kept: bool = False) -> str:
        """Reshape x, which has the top's elements, to the top's shape; first_kept: its first axis already is."""
        shape, other = self.top_shapes[top], self.other_tops[top]
        target = [size if size == now else -1 for size, now in zip(shape, other, strict=True)]
        if first_kept and target:
            target[0] = 0
        return self.reshape(x, target)

    def follows_batch(self, bottom: int, axis: int) -> bool:
        """Whether that size is another one with another batch size."""
        return bool(self.bottom_shapes[bottom][axis] != self.other_bottoms[bottom][axis])

    # -- what a runtime keeps from run to run -------------------------------------------------------------------------
    def state_input(self, name: str, shape: Shape) -> str:
        """An optional input of the graph, zeros where it is not given."""
        name = self._tensors.new(f"{self.layer.name}.{name}")
        self.sketch.constants[name] = np.zeros(shape, self.dtype)
        self.sketch.inputs.append(Tensor(name, tuple(shape), self.dtype))
        return name

    def state_output(self, name: str, x: str, shape: Shape) -> None:
        """An output of the graph more than the net has."""
        made = self._tensors.new(f"{self.layer.name}.{name}")
        for node in self.nodes:
            node.rename({x: made})
        self.state_outputs.append(Tensor(made, tuple(shape), self.dtype))

    def refuse(self, message: str, fix: str) -> NoReturn:
        raise NotExportable(message, fix)


def _content(array: np.ndarray) -> _Content:
    return array.dtype.name, array.shape, array.tobytes()


@dataclass(frozen=True)
class Converter:
    """run(site) writes operators and returns the names of the tops' tensors: one, a list, or None for no top.

    family: the heading of its row in docs/onnx.md. ops: every operator that it may write. note: what the exported form
    cannot do, or what a user would not expect; "" where there is nothing to say.
    """

    run: Callable[[Site], Result]
    family: str
    ops: tuple[str, ...]
    note: str


_Run = TypeVar("_Run", bound=Callable[[Site], Result])
CONVERTERS: dict[str, Converter] = {}


def converts(*types: str, family: str, ops: str, note: str = "") -> Callable[[_Run], _Run]:
    """Decorator: the function converts these layer types. ops: names of operators, with spaces between."""

    def add(run: _Run) -> _Run:
        for name in types:
            if name in CONVERTERS:
                raise AssertionError(f"two converters for {name}")
            CONVERTERS[name] = Converter(run, family, tuple(ops.split()), note)
        return run

    return add
