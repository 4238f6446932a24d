"""Logs what a net is made of, in Caffe's words, and bad values that device code found while it ran.

People and parsers know these words. Left out is what Caffe prints besides, so that an error is easy to find: the whole
prototxt, the memory after each layer, and a line about backward for every layer.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator

from ...layers.base import Shape, count
from ...proto.caffe_pb2 import NetParameter
from ..build.graph import Graph, Node

_log = logging.getLogger(__name__)


def log_net(graph: Graph, message: NetParameter, itemsize: int, half: bool) -> None:
    """Log the bottoms, tops and backward of every layer, and the outputs. half: log how many values are bfloat16."""
    if not _log.isEnabledFor(logging.INFO):
        return
    _log.info("Initializing net from parameters: name %r, %d layers", message.name, len(message.layer))
    total = 0
    for node in graph.nodes:
        _log.info("Creating Layer %s", node.name)
        for line in _wires(graph, node):
            _log.info("%s %s", node.name, line)
        for t in node.tops:
            value = graph.values[t]
            _log.info("Top shape: %s", shape_text(value.shape))
            if value.loss_weight:
                _log.info("    with loss weight %.6g", value.loss_weight)
            total += count(value.shape)
    _log.info("Memory required for data: %d", total * itemsize)
    without = [node.name for node in graph.nodes if not node.need_backward]
    _log.info("Layers that do not need backward computation: %s", ", ".join(without) or "none")
    for name in graph.outputs:
        _log.info("This network produces output %s", name)
    if half:
        stored = sum(value.half for value in graph.values)
        _log.info("Stored as bfloat16: %d of %d values, and their gradients.", stored, len(graph.values))
    _log.info("Network initialization done.")


def shape_text(shape: Shape) -> str:
    """Format a shape: (2, 3, 4) as "2 3 4 (24)", a scalar as "(1)"."""
    return " ".join([*(str(d) for d in shape), f"({count(shape)})"])


def _wires(graph: Graph, node: Node) -> Iterator[str]:
    bottoms = [graph.values[b].name for b in node.bottoms]
    for name in bottoms:
        yield f"<- {name}"
    for j, t in enumerate(node.tops):
        name = graph.values[t].name
        in_place = j < len(bottoms) and bottoms[j] == name
        yield f"-> {name}{' (in-place)' if in_place else ''}"


class DeviceErrors:
    """Log errors that queued work found, once for each layer whose kernels check values (see `Layer.device_error`).

    Args:
        names: the user's blob names by the generated ones.
    """

    def __init__(self, graph: Graph, file: str | None, names: dict[str, str]):
        self._file, self._names = file, names
        self._unreported = [node for node in graph.nodes if node.layer.declares.reports_device_errors]

    def log(self) -> None:
        """Log a warning for each layer with an error found since the last call. Does not wait for the device."""
        for node in list(self._unreported):
            error = node.layer.device_error()
            if error is not None:
                self._unreported.remove(node)
                error.message += ": what it should name is NaN (reported once)"
                error.rename(self._names)
                _log.warning("%s", error.at(file=self._file, line=node.line))
