"""Summarizes every layer of a net (shapes, parameters, floating-point operations, bytes) as plain data. Pure.

See also: `table.py` (what `print(net)` shows), `../program/costs.py` (the costs of a program's steps).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ...errors import human_bytes
from ...formats.types import SPLIT
from ...layers.base import Shape
from ..build.graph import Graph, Node
from . import table

_HEAD = ("layer", "type", "settings", "tops", "parameters", "MFLOP", "bytes")


@dataclass(frozen=True)
class ParamSummary:
    """Describe a parameter of a layer. owner: the layer that owns its memory; None: this layer."""

    shape: Shape
    name: str
    lr_mult: float
    decay_mult: float
    owner: str | None


@dataclass(frozen=True)
class LayerSummary:
    """Describe one layer.

    bottoms, tops: (blob, shape), with the names in the prototxt. parameters: count of numbers that the layer owns.
    flops: floating-point operations of the products of one forward, a multiply-add counting as two (`Layer.flops`).
    nbytes: bytes of tops and parameters that have memory of their own, without gradients.
    """

    name: str
    type: str
    settings: str
    bottoms: tuple[tuple[str, Shape], ...]
    tops: tuple[tuple[str, Shape], ...]
    params: tuple[ParamSummary, ...]
    parameters: int
    flops: int
    nbytes: int


@dataclass(frozen=True)
class NetSummary:
    """Show the layers of a net as a table: aligned text, HTML in a notebook.

    layers: a `LayerSummary` each. parameters, flops, nbytes: sums over them.
    """

    title: str
    layers: tuple[LayerSummary, ...]

    @property
    def parameters(self) -> int:
        """Return how many numbers the net learns or keeps."""
        return totals(self.layers)[0]

    @property
    def flops(self) -> int:
        """Return the floating-point operations of the products of one forward; a multiply-add counts as two."""
        return totals(self.layers)[1]

    @property
    def nbytes(self) -> int:
        """Return the bytes of values and parameters, without gradients."""
        return totals(self.layers)[2]

    def _table(self) -> tuple[str, Sequence[str], list[list[str]], list[str]]:
        total = ["total", f"{len(self.layers)} layers", "", "", *_numbers(self.parameters, self.flops, self.nbytes)]
        return self.title, _HEAD, [_cells(layer) for layer in self.layers], total

    def __str__(self) -> str:
        return table.aligned(*self._table())

    __repr__ = __str__

    def _repr_html_(self) -> str:
        return table.as_html(*self._table())


def summarize(graph: Graph, itemsize: int) -> list[LayerSummary]:
    """Summarize each layer of the prototxt, in order, without inserted Splits, which own and compute nothing.

    Call it after every layer's `declare`, that is, on the graph of a Net. itemsize: bytes of a number.
    """
    inserted = {n.index for n in graph.nodes if n.layer.type == SPLIT and _is_inserted(graph, n)}
    real = {t: graph.values[graph.nodes[i].bottoms[0]].name for i in inserted for t in graph.nodes[i].tops}
    return [
        _layer(graph, node, row, real)
        for node, row in zip(graph.nodes, table.rows(graph, itemsize), strict=True)
        if node.index not in inserted
    ]


def settings(layer: Any, axes: int = 2) -> str:
    """Format the main settings of a layer: "MAX 3x3/2+1", "64 7x7/2+3 g32 d2"; "" for most types.

    These are the number of outputs, kernel, /stride, +pad, g groups and d dilation.
    layer: a LayerParameter. axes: number of spatial axes of its bottom.
    """
    parts: list[str] = []
    for field in ("convolution_param", "inner_product_param", "embed_param", "recurrent_param"):
        if layer.HasField(field) and getattr(layer, field).num_output:
            parts.append(str(getattr(layer, field).num_output))
    if layer.HasField("pooling_param"):
        pooling = layer.pooling_param
        parts.append(pooling.PoolMethod.Name(pooling.pool))
        parts.append("global" if pooling.global_pooling else _window(pooling, axes))
    if layer.HasField("convolution_param"):
        conv = layer.convolution_param
        parts.append(_window(conv, axes))
        parts += [f"g{conv.group}"] * (conv.group != 1)
        parts += [f"d{_times(conv.dilation)}"] * any(d != 1 for d in conv.dilation)
    if layer.HasField("eltwise_param"):
        parts.append(layer.eltwise_param.EltwiseOp.Name(layer.eltwise_param.operation))
    return " ".join(filter(None, parts))


def _cells(layer: LayerSummary) -> list[str]:
    tops = ", ".join(f"{name} ({' '.join(map(str, shape))})" for name, shape in layer.tops) or "-"
    numbers = _numbers(layer.parameters, layer.flops, layer.nbytes)
    owners = ", ".join(sorted({p.owner for p in layer.params if p.owner is not None}))
    if owners:
        numbers[0] = f"of {owners}" + (f", {numbers[0]}" if layer.parameters else "")
    return [layer.name, layer.type, layer.settings or "-", tops, *numbers]


def _numbers(parameters: int, flops: int, nbytes: int) -> list[str]:
    return [
        f"{parameters:,}" if parameters else "-",
        f"{flops / 1e6:,.3f}" if flops else "-",
        human_bytes(nbytes) if nbytes else "-",
    ]


def _layer(graph: Graph, node: Node, row: table.LayerRow, real: dict[int, str]) -> LayerSummary:
    bottoms, tops = ([graph.values[v] for v in ids] for ids in (node.bottoms, node.tops))
    params = [graph.params[p] for p in node.params]
    return LayerSummary(
        name=row.name,
        type=row.type,
        settings=settings(node.layer.param, max(1, len(bottoms[0].shape) - 2) if bottoms else 2),
        bottoms=tuple((real.get(v.id, v.name), tuple(v.shape)) for v in bottoms),
        tops=row.tops,
        params=tuple(
            ParamSummary(
                tuple(p.shape),
                p.name,
                graph.params[p.owner].lr_mult,
                graph.params[p.owner].decay_mult,
                None if p.owner == p.index else graph.nodes[graph.params[p.owner].node].name,
            )
            for p in params
        ),
        parameters=row.parameters,
        flops=node.layer.flops([v.shape for v in bottoms], [v.shape for v in tops]),
        nbytes=row.nbytes,
    )


def _is_inserted(graph: Graph, node: Node) -> bool:
    """Return whether a Split was inserted, judged by its name: blob, producer and top index."""
    blob = graph.values[node.bottoms[0]]
    maker = graph.nodes[blob.producer]
    return node.name == f"{blob.name}_{maker.name}_{blob.top}_split"


def _window(param: Any, axes: int) -> str:
    """Format kernel, stride and pad of a message, each one number for all axes or one per axis, as "3x3/2+1"."""
    kernel, stride, pad = (_sizes(param, name) for name in ("kernel", "stride", "pad"))
    text = "x".join(str(n) for n in (kernel * axes if len(kernel) == 1 else kernel))
    text += f"/{_times(stride)}" if any(n != 1 for n in stride) else ""
    return text + (f"+{_times(pad)}" if any(pad) else "")


def _sizes(param: Any, name: str) -> list[int]:
    if param.HasField(f"{name}_shape"):
        return list(getattr(param, f"{name}_shape").dim)
    if param.HasField(f"{name}_h") or param.HasField(f"{name}_w"):
        return [getattr(param, f"{name}_h"), getattr(param, f"{name}_w")]
    value = getattr(param, "kernel_size" if name == "kernel" else name)
    return list(value) if hasattr(value, "__len__") else [value] * bool(value)


def _times(numbers: Sequence[int]) -> str:
    return "x".join(str(n) for n in (numbers if len(set(numbers)) > 1 else numbers[:1]))


def totals(layers: Sequence[LayerSummary]) -> tuple[int, int, int]:
    """Return (parameters, flops, nbytes) summed over all layers."""
    return sum(x.parameters for x in layers), sum(x.flops for x in layers), sum(x.nbytes for x in layers)
