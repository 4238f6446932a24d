"""Define what a converter gets, a `ImportSite`: an operator's inputs and attributes, and methods that write layers.

`CONVERTERS` is the table of converters by operator; `converts` adds to it.
See also: `convert.py`, which makes the sites and joins what converters wrote.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, NoReturn, TypeAlias

import numpy as np
from numpy.typing import ArrayLike

from ..arrays import HostArray
from ..proto.caffe_pb2 import LayerParameter, NetParameter
from .read import OnnxModel

Shape: TypeAlias = tuple[int, ...]
FIXED = 0.0  # lr_mult of what is no weight, but a number of the model


class NotImportable(Exception):
    """Signal an operator that no layers express with its settings. args: what is wrong, the fix."""


class FreeNames:
    """Give names that are not used yet."""

    def __init__(self) -> None:
        self._used: set[str] = set()

    def new(self, wanted: str) -> str:
        """Return the wanted name, or that with a number behind it."""
        name, i = wanted, 0
        while name in self._used:
            i += 1
            name = f"{wanted}_{i}"
        self._used.add(name)
        return name


class NetDraft:
    """Hold the net as far as it is written.

    Attributes:
        net: its layers, without parameters.
        params: for each layer, its parameters.
        blob_of: tensor -> blob.
        shapes: blob -> shape.
        sources: (layer, parameter, initializer) of parameters that are an initializer as it is.
    """

    def __init__(self, name: str):
        self.net = NetParameter(name=name)
        self.params: list[list[HostArray]] = []
        self.blob_of: dict[str, str] = {}
        self.shapes: dict[str, Shape] = {}
        self.layer_names, self.blob_names = FreeNames(), FreeNames()
        self.sources: list[tuple[int, int, str]] = []
        self.constant_blobs: dict[str, str] = {}


class ImportSite:
    """Give a converter one operator, and write its layers.

    Attributes:
        op, opset: the operator and its version.
        inputs: names of tensors, "" for one that is left out.
        out_shapes: of its outputs, by onnx's inference.
        name: for its layers.
    """

    def __init__(
        self, model: OnnxModel, draft: NetDraft, node: Any, shapes: dict[str, Shape], outputs: Sequence[Shape | None]
    ):
        self.model, self.draft, self.node = model, draft, node
        self.op, self.opset = node.op_type, model.opset
        self.inputs, self._shapes, self._outputs = list(node.input), shapes, outputs
        self._attributes = {a.name: a for a in node.attribute}
        self.name = layer_name(node)
        self.done: set[str] = set()

    # -- the operator -------------------------------------------------------------------------------------------------
    def refuse(self, reason: str, fix: str) -> NoReturn:
        """Raise NotImportable."""
        raise NotImportable(reason, fix)

    def attr(self, name: str, default: Any = None) -> Any:
        """Return an attribute's value; strings as str."""
        if name not in self._attributes:
            return default
        value = self.model.onnx.helper.get_attribute_value(self._attributes[name])
        return value.decode(errors="replace") if isinstance(value, bytes) else value

    def has(self, i: int) -> bool:
        """Return whether input i is given."""
        return i < len(self.inputs) and self.inputs[i] != ""

    def is_const(self, i: int) -> bool:
        """Return whether input i is a constant."""
        return self.has(i) and self.inputs[i] in self.model.constants

    def const(self, i: int, what: str) -> HostArray:
        """Return the values of input i, which must be a constant."""
        if not self.is_const(i):
            self.refuse(f"its {what} is computed from the input", f"export the model with a constant {what}")
        return self.model.constants[self.inputs[i]]

    def numbers(self, i: int, attribute: str) -> list[int] | None:
        """Return integers that are an attribute in old opsets and input i in new ones; None where not given."""
        if attribute in self._attributes:
            return list(self.attr(attribute))
        return [int(n) for n in self.const(i, attribute).reshape(-1)] if self.has(i) else None

    def shape(self, i: int = 0) -> Shape:
        """Return the shape of input i."""
        if self.is_const(i):
            return self.model.constants[self.inputs[i]].shape
        if self.inputs[i] not in self._shapes:
            self.refuse("the shape of its input is not known", "give the shapes of all inputs with -shape")
        return self._shapes[self.inputs[i]]

    def out_shape(self, i: int = 0) -> Shape:
        """Return the shape of output i."""
        found = self._outputs[i]
        if found is None:
            self.refuse("the shape of its output depends on values", "export the model with fixed sizes")
        return found

    def integers(self, i: int) -> bool:
        """Return whether input i is of an integer type."""
        kind = self.model.types.get(self.inputs[i])
        number = kind.tensor_type.elem_type if kind is not None else self.model.onnx.TensorProto.FLOAT
        return number in (self.model.onnx.TensorProto.INT32, self.model.onnx.TensorProto.INT64)

    def axis(self, value: int, ndim: int) -> int:
        """Return an axis counted from the front."""
        if not -ndim <= value < ndim:
            self.refuse(f"it has axis {value} for {ndim} axes", "export the model again")
        return value % ndim

    # -- layers -------------------------------------------------------------------------------------------------------
    def blob(self, i: int = 0) -> str:
        """Return the blob of input i; a constant becomes a Parameter layer that training does not change."""
        name = self.inputs[i]
        if name in self.draft.blob_of:
            return self.draft.blob_of[name]
        if not self.is_const(i):
            self.refuse("its input comes from an operator that is refused", "see there")
        if name not in self.draft.constant_blobs:
            self.draft.constant_blobs[name] = self.parameter(self.model.constants[name], legal(name))
        return self.draft.constant_blobs[name]

    def parameter(self, values: ArrayLike, name: str) -> str:
        """Write a Parameter layer with these numbers, which training does not change; return its blob."""
        array = np.asarray(values, np.float32)
        layer = LayerParameter(type="Parameter")
        layer.parameter_param.shape.dim.extend(array.shape)
        return self.write(layer, [], [array.shape], [array], name=name, fixed=True)[0]

    def layer(
        self,
        type: str,
        bottoms: Sequence[str],
        shape: Sequence[int],
        params: Sequence[HostArray] = (),
        *,
        fixed: bool = False,
        sources: Sequence[str] = (),
        suffix: str = "",
        **fields: dict[str, Any],
    ) -> str:
        """Write a layer with one top of this shape; return the top.

        Args:
            fixed: its parameters are no weights, so training leaves them as they are.
            sources: initializers that its parameters are, unchanged: layers that share one share the parameter.
            fields: messages of the layer, such as relu_param={"negative_slope": 0.1}.
        """
        message = LayerParameter(type=type)
        for name, values in fields.items():
            fill(getattr(message, name), values)
        tops = self.write(
            message, bottoms, [tuple(shape)], params, fixed=fixed, sources=sources, name=self.name + suffix
        )
        return tops[0]

    def write(
        self,
        message: LayerParameter,
        bottoms: Sequence[str],
        shapes: Sequence[Shape],
        params: Sequence[HostArray] = (),
        *,
        name: str,
        fixed: bool = False,
        sources: Sequence[str] = (),
    ) -> list[str]:
        """Write a layer with a top per shape; return the tops."""
        draft = self.draft
        message.name = draft.layer_names.new(name)
        message.bottom.extend(bottoms)
        if fixed:
            for _ in params:
                message.param.add(lr_mult=FIXED, decay_mult=FIXED)
        index = len(draft.net.layer)
        draft.sources += [(index, i, source) for i, source in enumerate(sources) if source]
        for i, shape in enumerate(shapes):
            top = draft.blob_names.new(message.name if len(shapes) == 1 else f"{message.name}/{i}")
            draft.shapes[top] = shape
            message.top.append(top)
        draft.net.layer.append(message)
        draft.params.append([np.asarray(p, np.float32) for p in params])
        return list(message.top)

    def shape_of(self, blob: str) -> Shape:
        """Return the shape of a blob."""
        return self.draft.shapes[blob]

    def put(self, i: int, blob: str) -> None:
        """Let output i be this blob."""
        self.draft.blob_of[self.node.output[i]] = blob
        self.done.add(self.node.output[i])

    # -- layers that several converters need --------------------------------------------------------------------------
    def power(self, x: str, power: float = 1, scale: float = 1, shift: float = 0, suffix: str = "") -> str:
        """Write (shift + scale * x) ^ power."""
        given = {"power": (power, 1), "scale": (scale, 1), "shift": (shift, 0)}
        fields = {name: value for name, (value, usual) in given.items() if value != usual}
        return self.layer("Power", [x], self.shape_of(x), power_param=fields, suffix=suffix)

    def reshape(self, x: str, shape: Sequence[int], suffix: str = "") -> str:
        """Write a Reshape, in which a first axis that stays, the batch, is left open."""
        old, dims = self.shape_of(x), list(shape)
        if tuple(shape) == old:
            return x
        if dims and old and dims[0] == old[0] != 0:
            dims[0] = 0
        return self.layer("Reshape", [x], shape, reshape_param={"shape": {"dim": dims}}, suffix=suffix)

    def permute(self, x: str, order: Sequence[int], suffix: str = "") -> str:
        """Write a Permute, or nothing where the order stays."""
        if list(order) == list(range(len(order))):
            return x
        shape = [self.shape_of(x)[axis] for axis in order]
        return self.layer("Permute", [x], shape, permute_param={"order": list(order)}, suffix=suffix)

    def split(self, x: str, axis: int, sizes: Sequence[int], suffix: str = "") -> list[str]:
        """Write a Slice into parts of these sizes along an axis."""
        if len(sizes) == 1:
            return [x]
        if 0 in sizes:
            self.refuse("it makes a part without elements", "export the model without it")
        full = list(self.shape_of(x))
        message = LayerParameter(type="Slice")
        points = [int(n) for n in np.cumsum(sizes)[:-1]]
        fill(message.slice_param, {"axis": axis, "slice_point": points})
        shapes = [(*full[:axis], size, *full[axis + 1 :]) for size in sizes]
        return self.write(message, [x], shapes, name=self.name + suffix)

    def cut(self, x: str, axis: int, start: int, stop: int) -> str:
        """Write a Slice that keeps places start to stop of an axis."""
        size = self.shape_of(x)[axis]
        sizes = [start, stop - start, size - stop]
        parts = self.split(x, axis, [n for n in sizes if n], suffix="/cut")
        return parts[1 if start else 0]

    def tile(self, x: str, axis: int, tiles: int) -> str:
        """Write a Tile."""
        shape = list(self.shape_of(x))
        shape[axis] *= tiles
        return self.layer("Tile", [x], shape, tile_param={"axis": axis, "tiles": tiles}, suffix="/tile")


Converter: TypeAlias = Callable[[ImportSite], "str | None"]
CONVERTERS: dict[str, Converter] = {}


def converts(*ops: str) -> Callable[[Converter], Converter]:
    """Add a converter for these operators. It returns the blob of output 0, or calls `put` itself."""

    def add(converter: Converter) -> Converter:
        CONVERTERS.update(dict.fromkeys(ops, converter))
        return converter

    return add


def fill(message: Any, values: dict[str, Any]) -> None:
    """Set fields of a message, also in messages inside it."""
    message.SetInParent()
    for name, value in values.items():
        if isinstance(value, dict):
            fill(getattr(message, name), value)
        elif isinstance(value, (list, tuple)):
            getattr(message, name).extend(value)
        else:
            setattr(message, name, value)


def legal(name: str) -> str:
    """Return a tensor's name as one for a blob or a layer: printable, without PyTorch's decoration."""
    name = "".join(c if c.isprintable() else "_" for c in name).strip().strip("/")
    return name.removesuffix("_output_0") or "unnamed"


def layer_name(node: Any) -> str:
    """Return a name for a node's layers: the node's, or else its first output's.

    PyTorch names nodes "/layer1/layer1.0/conv1/Conv": the operator at the end says what the layer's type says too.
    """
    name = legal(node.name or next((o for o in node.output if o), node.op_type))
    head, _, last = name.rpartition("/")
    kind, _, number = last.partition("_")
    if node.name.startswith("/") and head and kind == node.op_type and (not number or number.isdigit()):
        return head
    return name


def product(values: Sequence[int]) -> int:
    """Return the product of integers."""
    return math.prod(int(v) for v in values)
