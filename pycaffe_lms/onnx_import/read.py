"""Read a model file, check it, give its inputs their shapes, and evaluate what is constant.

Covers: whatever may be wrong with a file from a stranger.
Does not cover: what an operator becomes (`convert.py`).
"""

from __future__ import annotations

import contextlib
import importlib
import os
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ..arrays import HostArray
from ..blob import MOST_AXIS
from ..errors import MissingDependency, OnnxError, UsageError, Where
from ..onnx_export.model import require

OLDEST_OPSET = 7  # before, operators broadcast by another rule
_KNOWN_ELEMENTS = 4096  # of constants that shape inference gets to see: shapes and scales
_FOLDED_BYTES = 64 << 20  # of what is computed from less


def require_onnx() -> Any:
    """Import onnx. Raises: MissingDependency with the pip line."""
    try:
        onnx = require()
        for part in ("checker", "inliner", "numpy_helper", "reference", "shape_inference"):
            importlib.import_module(f"onnx.{part}")
        return onnx
    except MissingDependency:
        raise MissingDependency("onnx", "reading ONNX models", "'pycaffe-lms[onnx]'") from None


class OnnxModel:
    """Hold a checked model.

    Attributes:
        file: for errors.
        opset: version of ONNX's own operators.
        nodes: of the main graph, in the order in which they run, only those that an output needs.
        inputs: name -> shape.
        outputs: names.
        constants: name -> array; grows by what `fold` finds.
        needed: names of tensors on which outputs depend.
    """

    def __init__(self, path: str | os.PathLike[str], shapes: Mapping[str, Sequence[int]]):
        self.onnx, self.file = require_onnx(), os.fspath(path)
        self.proto = self._load()
        graph = self.proto.graph
        self.opset = next((o.version for o in self.proto.opset_import if o.domain in ("", "ai.onnx")), 0)
        newest = self.onnx.defs.onnx_opset_version()
        if not OLDEST_OPSET <= self.opset <= newest:
            raise self.error(
                f"is of opset {self.opset}, and {OLDEST_OPSET} to {newest} can be read",
                "export it with a newer opset" if self.opset < OLDEST_OPSET else "update onnx: pip install -U onnx",
            )
        self.constants = {t.name: self._array(t) for t in graph.initializer}
        if graph.sparse_initializer:
            raise self.error("has sparse weights", "export it with dense ones")
        self.types: dict[str, Any] = {i.name: i.type for i in graph.input}
        self.inputs = self._inputs(shapes)
        self.outputs = [o.name for o in graph.output]
        self.nodes = list(graph.node)
        self.keep_needed()

    def error(self, message: str, fix: str) -> OnnxError:
        """Return an error of this file."""
        return OnnxError(message, where=Where(file=self.file), fix=fix)

    def _load(self) -> Any:
        if not Path(self.file).is_file():
            raise self.error("no such file", "give the path of an ONNX model")
        fix = "export the model again; weights in files of their own must lie beside it"
        try:
            model = self.onnx.load(self.file)
            self.onnx.checker.check_model(self.file)
            if model.functions:
                model = self.onnx.inliner.inline_local_functions(model)
        except Exception as error:  # protobuf, onnx's checker and NumPy have types of their own
            raise self.error(f"is not a model that onnx can read: {first_line(error)}", fix) from error
        if not model.graph.output:
            raise self.error("has no outputs, so it is no ONNX model", fix)
        return model

    def _array(self, tensor: Any) -> HostArray:
        try:
            array: HostArray = self.onnx.numpy_helper.to_array(tensor, base_dir=str(Path(self.file).parent))
        except Exception as error:
            raise self.error(
                f'constant "{tensor.name}" cannot be read: {first_line(error)}', "export the model again"
            ) from error
        return array

    def _inputs(self, given: Mapping[str, Sequence[int]]) -> dict[str, tuple[int, ...]]:
        """Return the shape of each input, the given ones first."""
        infos = {i.name: i.type.tensor_type for i in self.proto.graph.input if i.name not in self.constants}
        for name in given:
            if name not in infos:
                raise UsageError(f"the model has no input {name!r}", fix=f"its inputs are {', '.join(infos) or 'none'}")
        shapes, open_ = {}, []
        for name, info in infos.items():
            declared = [d.dim_value if d.HasField("dim_value") else None for d in info.shape.dim]
            shape = tuple(given[name]) if name in given else declared
            known = info.HasField("shape")
            if known and (
                len(shape) != len(declared) or any(d not in (None, s) for s, d in zip(shape, declared, strict=True))
            ):
                sizes = ",".join("?" if d is None else str(d) for d in declared)
                raise UsageError(
                    f"-shape {name}={','.join(map(str, shape))} does not fit the model, which has {sizes} there",
                    fix="give numbers for the ? only, or export the model with other sizes",
                )
            if None in shape or not (known or name in given):
                open_.append(f"{name}={','.join('?' if d is None else str(d) for d in shape)}")
            elif not all(0 < s <= MOST_AXIS for s in shape if s is not None):
                raise self.error(f'input "{name}" has shape {list(shape)}', "give sizes from 1 on with -shape")
            shapes[name] = tuple(s or 0 for s in shape)
        if open_:
            raise UsageError(
                f"{self.file}: sizes of inputs are not known: {'; '.join(open_)}",
                fix=" ".join(f"-shape {text.replace('?', '1')}" for text in open_) + ", or other sizes",
            )
        return shapes

    def keep_needed(self) -> None:
        """Drop the nodes on which no output depends. `needed`: the tensors that are left."""
        self.needed, kept = set(self.outputs), []
        for node in reversed(self.nodes):
            if self.needed & set(node.output):
                kept.append(node)
                self.needed |= set(node.input) | set(_captured(node))
        self.nodes = kept[::-1]

    # -- one node at a time -------------------------------------------------------------------------------------------
    def infer(self, node: Any, shapes: Mapping[str, tuple[int, ...]]) -> list[tuple[int, ...] | None]:
        """Return the shape of each output of a node, by onnx's own inference; None where that does not tell."""
        helper = self.onnx.helper
        graph = self.onnx.GraphProto(name="one", node=[node])
        for name in dict.fromkeys(node.input):
            values = self.constants.get(name)
            if values is not None and values.size <= _KNOWN_ELEMENTS:
                graph.initializer.append(self.onnx.numpy_helper.from_array(values, name))
            elif values is not None:
                kind = helper.np_dtype_to_tensor_dtype(values.dtype)
                graph.input.append(helper.make_tensor_value_info(name, kind, values.shape))
            elif name in shapes:
                kind = self.types[name].tensor_type.elem_type if name in self.types else 1
                graph.input.append(helper.make_tensor_value_info(name, kind, shapes[name]))
        graph.output.extend(self.onnx.ValueInfoProto(name=name) for name in node.output if name)
        model = helper.make_model(graph, opset_imports=self.proto.opset_import)
        inferred = self.onnx.shape_inference.infer_shapes(model, strict_mode=True, data_prop=True)
        infos = {o.name: o.type for o in inferred.graph.output}
        found: list[tuple[int, ...] | None] = []
        for name in node.output:
            info = infos[name].tensor_type if name else None
            if info is None or not info.HasField("shape") or any(not d.HasField("dim_value") for d in info.shape.dim):
                found.append(None)
                continue
            self.types[name] = infos[name]
            found.append(tuple(d.dim_value for d in info.shape.dim))
        return found

    def fold(self, node: Any, shapes: Mapping[str, tuple[int, ...]], outputs: Sequence[tuple[int, ...] | None]) -> bool:
        """Evaluate a node of constants, or one that asks for a shape; return whether it was."""
        if node.op_type in ("Shape", "Size") and node.input[0] in shapes and not node.domain:
            shape = shapes[node.input[0]]
            if node.op_type == "Size":
                self.constants[node.output[0]] = np.array(np.prod(shape, dtype=np.int64))
                return True
            ends = {a.name: a.i for a in node.attribute}
            self.constants[node.output[0]] = np.array(shape[slice(ends.get("start", 0), ends.get("end"))], np.int64)
            return True
        if any(name and name not in self.constants for name in node.input) or _captured(node):
            return False
        if node.op_type.startswith("Random") or node.op_type in ("Bernoulli", "Multinomial"):
            return False
        given = sum(self.constants[name].nbytes for name in node.input if name)
        if any(s is None or 8 * np.prod(s, dtype=float) > max(_FOLDED_BYTES, 4 * given) for s in outputs):
            return False
        helper = self.onnx.helper
        graph = self.onnx.GraphProto(name="one", node=[node])
        graph.input.extend(self.onnx.ValueInfoProto(name=name) for name in dict.fromkeys(node.input) if name)
        graph.output.extend(self.onnx.ValueInfoProto(name=name) for name in node.output if name)
        model = helper.make_model(graph, opset_imports=self.proto.opset_import)
        with warnings.catch_warnings(), np.errstate(all="ignore"):
            warnings.simplefilter("ignore")
            run = self.onnx.reference.ReferenceEvaluator(model)
            values = run.run(None, {name: self.constants[name] for name in node.input if name})
        names = [name for name in node.output if name]
        self.constants.update((name, np.asarray(v)) for name, v in zip(names, values, strict=True))
        return True


def _captured(node: Any) -> list[str]:
    """Return names that graphs inside a node (If, Loop) read."""
    graphs = [g for a in node.attribute for g in (*([a.g] if a.HasField("g") else []), *a.graphs)]
    return [name for g in graphs for inner in g.node for name in (*inner.input, *_captured(inner))]


def first_line(error: Exception) -> str:
    """Return the first line of what an error says, or its type where it says nothing."""
    text = ""
    with contextlib.suppress(Exception):
        text = str(error).strip()
    return text.splitlines()[0][:300] if text else type(error).__name__
