"""Convert an ONNX graph to a net: every operator to layers, all that cannot be in one error.

See also: `site.py`, which writes the layers; `patterns.py`, which comes first.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..arrays import HostArray
from ..errors import CaffeError, OnnxError, Where
from ..net.build.source import load_source
from ..net.build.wiring import wire
from ..proto.caffe_pb2 import LayerParameter, NetParameter
from . import arrangement, attention, elementwise, normalise, pointwise, pooling, products  # noqa: F401  they fill CONVERTERS
from .patterns import rewrite
from .read import OnnxModel, first_line
from .site import CONVERTERS, FreeNames, ImportSite, NetDraft, NotImportable, Shape, fill, layer_name, legal

_AGAIN = "export the model again"


@dataclass(frozen=True)
class _Misfit:
    where: Where
    reason: str
    fix: str


class ImportConversion:
    """Convert one model.

    Attributes:
        net: the net, without parameters, after `run`.
        params: for each layer, its parameters.
    """

    def __init__(self, model: OnnxModel):
        self.model = model
        self.draft = NetDraft(legal(model.proto.graph.name or "onnx"))
        self.problems: list[_Misfit] = []
        self.shapes: dict[str, Shape] = dict(model.inputs)
        self.refused: set[str] = set()  # tensors
        self.wanted: dict[str, str] = {}  # blob -> the name of its tensor
        self.outputs: dict[int, list[Shape | None]] = {}  # of nodes, by identity

    def run(self) -> tuple[NetParameter, list[list[HostArray]]]:
        """Return the net and, for each layer, its parameters. Raises: OnnxError, with all that has no layer."""
        self._evaluate()
        rewrite(self.model, self.shapes)
        self.model.keep_needed()
        for name, shape in self.model.inputs.items():
            layer = LayerParameter(type="Input", name=self.draft.layer_names.new(legal(name)), top=[name])
            fill(layer.input_param, {})
            layer.input_param.shape.add(dim=shape)
            self.draft.net.layer.append(layer)
            self.draft.params.append([])
            self.draft.blob_of[name] = self.draft.blob_names.new(name)
            self.draft.shapes[name] = shape
        for node in self.model.nodes:
            self._convert(node)
        if self.problems:
            raise self._error()
        self._finish()
        self._verify()
        return self.draft.net, self.draft.params

    def _evaluate(self) -> None:
        """Find the shapes of all tensors, and evaluate what is constant."""
        kept = []
        for node in self.model.nodes:
            if any(name and name not in self.shapes and name not in self.model.constants for name in node.input):
                outputs: list[Shape | None] = [None] * len(node.output)  # what is wrong stands before
            else:
                try:
                    outputs = self.model.infer(node, self.shapes)
                    if self.model.fold(node, self.shapes, outputs):
                        continue
                except Exception as error:  # onnx's inference and its operators raise whatever they like
                    outputs = [None] * len(node.output)
                    if node.op_type in CONVERTERS or not node.input:
                        self._problem(node, f"onnx cannot tell its shape: {first_line(error)}", _AGAIN)
            self.outputs[id(node)] = outputs
            self.shapes.update(
                (name, shape) for name, shape in zip(node.output, outputs, strict=True) if shape is not None
            )
            kept.append(node)
        self.model.nodes = kept

    def _problem(self, node: Any, reason: str, fix: str) -> None:
        self.problems.append(_Misfit(Where(layer=layer_name(node), type=node.op_type), reason, fix))
        self.refused.update(node.output)

    def _convert(self, node: Any) -> None:
        if node.output[0] in self.refused:
            return
        site = ImportSite(self.model, self.draft, node, self.shapes, self.outputs[id(node)])
        own = node.domain in ("", "ai.onnx")
        converter = CONVERTERS.get(node.op_type) if own else None
        if converter is None:
            what = node.op_type if own else f"{node.domain}.{node.op_type}"
            self._problem(node, f"no layer does what {what} does", "write it with other operators, or cut it off")
            return
        if any(name in self.refused for name in node.input):  # the cause is named already
            self.refused.update(node.output)
            return
        try:
            blob = converter(site)
            if blob is not None:
                site.put(0, blob)
        except NotImportable as refusal:
            self._problem(node, *refusal.args)
            return
        except (ValueError, TypeError, IndexError, KeyError, OverflowError, ArithmeticError) as error:
            self._problem(node, f"its attributes and inputs do not fit each other: {first_line(error)}", _AGAIN)
            return
        missing = [name for name in node.output if name in self.model.needed and name not in site.done]
        if missing:
            self._problem(node, f"no layer makes its output {', '.join(missing)}", "export the model without it")
        for tensor in site.done:
            if not tensor.endswith("_output_0") or "/" not in tensor:  # PyTorch's, made from the name of the node
                self.wanted.setdefault(self.draft.blob_of[tensor], legal(tensor))

    def _finish(self) -> None:
        """Name blobs, add outputs, read what nobody reads, and share parameters."""
        draft, outputs = self.draft, self.model.outputs
        net = draft.net
        read = {blob for layer in net.layer for blob in layer.bottom}
        for name in dict.fromkeys(outputs):
            if name not in draft.blob_of:  # a constant
                node = self.model.onnx.helper.make_node("Identity", [name], [name], name=name)
                draft.blob_of[name] = ImportSite(self.model, draft, node, {}, []).blob()
        names, given = FreeNames(), {name: name for name in self.model.inputs}
        for name in dict.fromkeys((*self.model.inputs, *outputs)):
            names.new(name)
        taken = Counter(draft.blob_of[name] for name in dict.fromkeys(outputs))
        copies = []
        for name in dict.fromkeys(outputs):
            blob = draft.blob_of[name]
            if blob in read or taken[blob] > 1 or blob in self.model.inputs:
                copies.append((blob, name))
            else:
                given[blob] = name
        for layer in net.layer:
            for top in layer.top:
                if top not in given:
                    given[top] = names.new(self.wanted.get(top, top))
        for layer in net.layer:
            for field in (layer.bottom, layer.top):
                field[:] = [given[blob] for blob in field]
        for blob, name in copies:
            layer_of = LayerParameter(type="Split", name=draft.layer_names.new(legal(name)))
            layer_of.bottom.append(given[blob])
            layer_of.top.append(name)
            self._append(layer_of)
        read = {blob for layer in net.layer for blob in layer.bottom}
        unread = [top for layer in net.layer for top in layer.top if top not in read and top not in outputs]
        if unread:
            self._append(LayerParameter(type="Silence", name=draft.layer_names.new("silence"), bottom=unread))
        self._share()

    def _append(self, layer: LayerParameter) -> None:
        self.draft.net.layer.append(layer)
        self.draft.params.append([])

    def _share(self) -> None:
        """Give parameters that are one initializer one name, so that training keeps them equal."""
        draft = self.draft
        users: dict[tuple[str, tuple[int, ...]], list[tuple[int, int]]] = {}
        for layer, i, source in draft.sources:
            users.setdefault((source, draft.params[layer][i].shape), []).append((layer, i))
        for (source, _), places in users.items():
            for layer, i in places if len(places) > 1 else ():
                params = draft.net.layer[layer].param
                while len(params) <= i:
                    params.add()
                params[i].name = legal(source)

    def _verify(self) -> None:
        """Wire the net, which checks all of its layers, and compare its shapes with onnx's."""
        try:
            source = load_source(self.draft.net, phase=1)
            graph = wire(source.message, source.lines, file=None, dtype=np.dtype(np.float32))
        except CaffeError as error:
            raise error.at(file=self.model.file) from None
        for name in self.model.outputs:
            found, expected = tuple(graph.values[graph.last[name]].shape), self.shapes.get(name)
            if expected is not None and found != expected:
                raise OnnxError(
                    f'output "{name}" has shape {found}, and {expected} in the model',
                    where=Where(file=self.model.file),
                    fix="please report this model",
                )

    def _error(self) -> OnnxError:
        first, n = self.problems[0], len(self.problems)
        if n == 1:
            where = Where(file=self.model.file, layer=first.where.layer, type=first.where.type)
            return OnnxError(f"{first.reason}, so the model cannot be imported", where=where, fix=first.fix)
        lines = [f"    {p.where}: {p.reason}" for p in self.problems]
        fixes = "; ".join(dict.fromkeys(p.fix for p in self.problems))
        text = "\n".join([f"{n} operators cannot be imported:", *lines])
        return OnnxError(text, where=Where(file=self.model.file), fix=fixes)
