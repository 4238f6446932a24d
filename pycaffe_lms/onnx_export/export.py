"""Define `caffe.export_onnx`: convert a net, for a dynamic batch with a second batch size too, and write the file."""

from __future__ import annotations

import os
from functools import partial
from typing import TYPE_CHECKING

from ..errors import CaffeError, ExportError, UsageError, Where
from ..layers.detection.proposal import CountedRowsLayer
from ..layers.shape.filter import FilterLayer
from ..net.build.graph import Graph
from ..net.build.wiring import wire
from ..proto.caffe_pb2 import NetParameter
from . import model
from .convert import COUNTS_ROWS, convert
from .sketch import DEFAULT_OPSET, OPSETS

MATHS = ("fp32", "fp16")

if TYPE_CHECKING:
    from ..net.net import Net


def export_onnx(
    net: Net,
    path: str | os.PathLike[str],
    *,
    opset: int = DEFAULT_OPSET,
    dynamic_batch: bool = False,
    math: str = "fp32",
) -> list[str]:
    """Write a TEST net with its weights as an ONNX model; return the names of the files that were written.

    Inputs and outputs are the net's, in its type (float32) and with its present shapes. Weights over 2 GiB go to a
    second file, beside the first and named after it.

    Args:
        opset: of ONNX's operators, 11 to 23.
        dynamic_batch: let the first axis of the first input, and of every input with as many items, have any size; its
            name is "batch".
        math: "fp16": weights and arithmetic in float16, but inputs, outputs and what needs more range or precision
            (softmax, norms, indices, boxes, recurrent layers) in float32. "fp32": all of it.
    Raises: UsageError for a net of phase TRAIN or an unknown opset; ExportError for layers without an exact counterpart
    (all of them in one message), or a file that cannot be written; MissingDependency without onnx.
    """
    newest = min(OPSETS[-1], model.newest_opset())
    if not OPSETS[0] <= opset <= newest:
        raise UsageError(f"opset {opset} is not one of {OPSETS[0]} to {newest}", fix=f"such as {DEFAULT_OPSET}")
    if math not in MATHS:
        raise UsageError(f"math {math!r} is not one of {', '.join(MATHS)}", fix="leave it out for fp32")
    if net.phase != 1:
        raise UsageError(
            "a net of phase TRAIN is not for use", fix="build it with phase TEST: caffe.Net(.., caffe.TEST)"
        )
    net.refresh_shapes()
    write = partial(convert, net.graph, dtype=net.dtype, opset=opset, file=net.file, half=math == "fp16")
    try:
        other = with_other_sizes(net, int(dynamic_batch)) if dynamic_batch or _counting(net.graph) else None
    except CaffeError:
        write()  # name first what cannot be exported with the present sizes either
        raise
    sketch = write(other=other)
    return model.write_model(sketch, path)


def batch_inputs(net: Net) -> dict[str, tuple[int, ...]]:
    """Return the shapes of the inputs whose first axis is the batch: the first input, and all with as many items."""
    shapes = {name: tuple(net.graph.values[net.graph.last[name]].shape) for name in net.inputs}
    first = next(iter(shapes.values()), ())
    return {name: shape for name, shape in shapes.items() if shape and shape[0] == first[0]} if first else {}


def with_other_sizes(net: Net, items: int = 1) -> Graph:
    """Return the net's graph with so many items more in the batch, and two more rows where a layer counts them.

    Two, so that a number of rows is never taken for the batch.
    """
    graph = net.graph
    shapes = {name: list(graph.values[graph.last[name]].shape) for name in net.inputs}
    first = next(iter(shapes.values()), [])
    if items and not first:
        what = f'input "{net.inputs[0]}" has no axis for a batch' if shapes else "the net has no inputs"
        raise ExportError(what, where=Where(file=net.file), fix="leave out dynamic_batch")
    follow = batch_inputs(net) if items else {}
    message = NetParameter()
    message.CopyFrom(net.message)
    for layer, node in zip(message.layer, graph.nodes, strict=True):
        if not node.layer.declares.is_net_input:
            continue
        del layer.input_param.shape[:]
        for top in layer.top:
            dims = [shapes[top][0] + items, *shapes[top][1:]] if top in follow else shapes[top]
            layer.input_param.shape.add(dim=dims)
    try:
        other = wire(message, [node.line for node in graph.nodes], file=net.file, dtype=net.dtype)
    except CaffeError as error:
        if items:
            error.message += f" (with a batch of {first[0] + items} instead of {first[0]})"
            error.fix = f"{error.fix}; or export it without dynamic_batch" if error.fix else "leave out dynamic_batch"
        raise
    counting = _counting(other)
    for i, counts in counting.items():
        counts.counted = graph.values[graph.nodes[i].tops[0]].shape[0] + 2
    if counting:
        try:
            other.infer_shapes(known=len(other.nodes))
        except CaffeError as error:
            error.message += " (with two rows more than now; their number is known only after a run)"
            error.fix = "cut the net before this layer"
            raise
    return other


def _counting(graph: Graph) -> dict[int, CountedRowsLayer | FilterLayer]:
    """Return the layers of `COUNTS_ROWS`, by their numbers."""
    layers = {node.index: node.layer for node in graph.nodes}
    return {i: layer for i, layer in layers.items() if isinstance(layer, COUNTS_ROWS)}
