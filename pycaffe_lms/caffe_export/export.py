"""Define `export_caffe`: fold a net, write it in the words of a chip's toolchain, or refuse what that lacks.

The prototxt holds the structure. The caffemodel holds names, types, blobs' names and weights: that is what Caffe, and
who reads its files, takes from it, so no number of a field beyond BVLC's can differ.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, NamedTuple

from google.protobuf import text_format

from ..errors import ExportError, UsageError, Where
from ..formats.atomic import atomic_write
from ..formats.prototxt.plainest import write_plainly
from ..formats.types import SPLIT
from ..formats.weights.blobproto import blobproto_to_array
from ..formats.weights.caffemodel import write_weights
from ..layers.base import Shape
from ..layers.conv.convolution import ConvolutionLayer
from ..layers.pooling.pooling import PoolingLayer
from ..net.fold_norms import fold_norms
from ..net.net import Net
from ..proto.caffe_pb2 import LayerParameter, NetParameter
from .chips import CHIPS, Chip, StatedRange, chip_of, spelled
from .facts import Seen, fact
from .fields import drop_neutral, drop_training, refused

if TYPE_CHECKING:
    from ..net.build.graph import Graph, Node

_log = logging.getLogger(__name__)
_INPUT = "Input"
_CUT = "cut the net before it, and compute it on the host"
_TEST = 1


class _Refusal(NamedTuple):
    where: Where
    what: str
    fix: str


def export_caffe(net: Net, stem: str | os.PathLike[str], chip: str) -> tuple[str, str]:
    """Write a TEST net with its weights as STEM.prototxt and STEM.caffemodel for a chip; return both names.

    Normalisation is folded as with `optimise=True`. Outputs keep their names; they equal the net's to rounding.

    Args:
        chip: one of `CHIPS`.
    Raises: UsageError for a net of phase TRAIN or an unknown chip; ExportError that names all that the chip's toolchain
    does not take, or a file that cannot be written; WeightsError for more than 2 GiB.
    """
    if chip not in CHIPS:
        raise UsageError(f"chip {chip!r} is not one of {', '.join(CHIPS)}", fix=f"such as {CHIPS[0]!r}")
    if net.phase != _TEST:
        raise UsageError(
            "a net of phase TRAIN is not for use", fix="build it with phase TEST: caffe.Net(.., caffe.TEST)"
        )
    net.refresh_shapes()
    table = chip_of(chip)
    folded = fold_norms(net)
    lines = {node.name: node.line for node in reversed(net.graph.nodes)}
    with_facts = Net(folded, _TEST, forward_only=True)
    try:
        written, problems = _written(with_facts.graph, folded, table, lines)
    finally:
        with_facts.close()
    if problems:
        raise _error(problems, table, net.file)
    return _write(written, os.fspath(stem))


def _written(
    graph: Graph, folded: NetParameter, chip: Chip, lines: Mapping[str, int | None]
) -> tuple[NetParameter, list[_Refusal]]:
    """Return the net in the chip's words, with blobs, and all that is wrong with it."""
    result, problems = NetParameter(name=folded.name), []
    makers = {value: node.message.type for node in graph.nodes for value in node.tops}
    nodes = [node for node in graph.nodes if node.message.type != SPLIT]  # of which `folded` has none
    for message, node in zip(folded.layer, nodes, strict=True):
        layer = result.layer.add()
        layer.CopyFrom(message)
        where = Where(line=lines.get(layer.name), layer=layer.name or None, type=layer.type or None)
        drop_training(layer)
        write_plainly(layer)
        for path in drop_neutral(layer):
            _log.warning("%s: %s is left out: no other Caffe knows it, and outputs are the same", where, path)
        if layer.type == _INPUT:
            continue
        if layer.type in chip.same_in_use and _passes_on(node):
            del result.layer[-1]
            continue
        problems += [_Refusal(where, what, fix) for what, fix in _judge(graph, node, layer, chip, where, makers)]
    return result, problems


def _passes_on(node: Node) -> bool:
    """Tell whether a layer leaves its bottom as it is, in place: Dropout in TEST without a fork's fields."""
    param = node.message.dropout_param
    return list(node.message.bottom) == list(node.message.top) and param.scale_train and not param.sample_weights_test


def _judge(
    graph: Graph, node: Node, layer: LayerParameter, chip: Chip, where: Where, makers: Mapping[int, str]
) -> Iterator[tuple[str, str]]:
    """Write a layer in the chip's words, in place; yield what is wrong with it, and the fix.

    makers: the type of the layer that computes each value.
    """
    row = chip.rows.get(layer.type)
    if row is None:
        fix = chip.instead.get(layer.type, _CUT)
        if layer.type in chip.same_in_use:
            fix = "write it in place (top as bottom), without fields of forks; then it is left out"
        yield f'the list of {chip.toolchain} has no layer type "{layer.type}"', fix
        return
    if layer.type != row.type and row.type == "Convolution" and isinstance(node.layer, ConvolutionLayer):
        layer.convolution_param.group = node.layer.group  # which depthwise types may leave out
    layer.type = row.type
    if row.cpu:
        _log.warning("%s: the layer runs on the processor, not on the chip", where)
    for name in row.without:
        for _, param in layer.ListFields():
            if name in getattr(getattr(param, "DESCRIPTOR", None), "fields_by_name", ()):
                param.ClearField(name)
    for path in row.explicit:
        name, _, inner = path.partition(".")
        param = getattr(layer, name)
        setattr(param, inner, getattr(param, inner))
    for path, value in row.given.items():
        name, _, inner = path.partition(".")
        setattr(getattr(layer, name), inner, value)
    for path in refused(layer, row.params):
        yield f"no other Caffe knows its {path}, and the list of {chip.toolchain} does not name it", _CUT
    if isinstance(node.layer, PoolingLayer):
        _round_as_caffe(node.layer, layer, [graph.values[v].shape for v in node.bottoms])
    bottoms, tops = ([graph.values[v].shape for v in values] for values in (node.bottoms, node.tops))
    seen = Seen(node.layer, layer, bottoms, tops, [makers[value] for value in node.bottoms])
    for limit in (*chip.every, *row.limits):
        wrong = [value for value in fact(seen, limit.of) if not limit.holds(value)]
        if not wrong or not all(_applies(seen, one) for one in limit.when):
            continue
        name = limit.demand.partition(":")[0] or limit.of.removeprefix("field ")
        said = f"{name} is {spelled(wrong[0])}, and {chip.toolchain} takes {limit.range}"
        if limit.demand:
            said = f"{chip.toolchain} takes {name} only so: {limit.demand.partition(': ')[2]}"
        if limit.warns:
            _log.warning("%s: %s: the layer runs on the processor instead", where, said)
        else:
            yield said, f"choose another {name}, or {_CUT}"


def _round_as_caffe(pooling: PoolingLayer, layer: LayerParameter, bottoms: list[Shape]) -> None:
    """Leave round_mode out, which Caffe 1.0 lacks, where rounding up makes no other windows."""
    ceil, sizes = pooling.ceil, pooling.infer_shapes(bottoms)
    pooling.ceil = True
    if pooling.infer_shapes(bottoms) == sizes:
        layer.pooling_param.ClearField("round_mode")
    pooling.ceil = ceil


def _applies(seen: Seen, condition: StatedRange) -> bool:
    values = fact(seen, condition.of)
    return bool(values) and all(map(condition.holds, values))


def _error(problems: list[_Refusal], chip: Chip, file: str | None) -> ExportError:
    """Return one error that lists all problems, with their lines."""
    if len(problems) == 1:
        where, what, fix = problems[0]
        return ExportError(what, where=where, fix=fix).at(file=file)
    lines = [f"{len(problems)} things that {chip.toolchain} does not take:"]
    lines += [f"  {where}: {what}; {fix}" for where, what, fix in problems]
    fix = f"change every line above; the list is {chip.title}, {chip.version} ({chip.address})"
    return ExportError("\n".join(lines), where=Where(file=file), fix=fix)


def _write(net: NetParameter, stem: str) -> tuple[str, str]:
    """Write both files."""
    arrays = [[(blobproto_to_array(blob), None) for blob in layer.blobs] for layer in net.layer]
    names = NetParameter(name=net.name)
    for layer in net.layer:
        del layer.blobs[:]
        names.layer.add(name=layer.name, type=layer.type, bottom=layer.bottom, top=layer.top)
    prototxt, weights = f"{stem}.prototxt", f"{stem}.caffemodel"
    write_weights(weights, names, arrays)
    atomic_write(prototxt, text_format.MessageToString(net).encode(), error=ExportError)
    return prototxt, weights
