"""Logs for `debug_info` mean magnitudes layer by layer, and where the first NaN of a NaN loss came from.

The passes of an iteration run as programs of their own which keep every value, so that it can be read; in displayed
iterations each layer is a program. They are the passes that the iteration would run, so no number changes.
Source: BVLC/caffe, net.cpp, ForwardDebugInfo, BackwardDebugInfo, Backward (lines).
"""

from __future__ import annotations

import logging
import math
from collections.abc import Sequence

import numpy as np

from ..blob import Blob
from ..net.build.graph import Node, Value
from ..net.net import Net
from ..net.program.programs import HostedStep, sequence
from ..net.program.steps import layer_of

_log = logging.getLogger(__name__)


def iteration(
    net: Net, first: bool, tail: Sequence[HostedStep], *, key: str, show: bool, find_nan: bool, reduce: bool
) -> bool:
    """Run what Net.iteration runs, part by part, and return what it returns.

    Args:
        key: the name of that program.
        show: log the magnitudes; those of gradients are this rank's own.
        find_nan: log where the NaN of a NaN loss came from, before the update spreads it.
        reduce: average gradients over the ranks.
    """
    net.refresh_shapes()
    memory = net.memory
    if math.isnan(forward(net, show=show)) and find_nan:
        _log.warning("The loss is nan: %s", first_nan(net))
    steps = net.arrangement.whole_backward(accumulate=not first)
    name = f"debug backward {first}"
    if not show:
        net.backward_by_hand(len(net.graph.nodes) - 1, 0, steps, name)
    else:
        for node in reversed(net.graph.nodes):
            mine = [s for s in steps if layer_of(net.run_graph, s) == node.index]
            net.backward_by_hand(node.index, node.index, mine, f"{name} {node.index}")
            if node.need_backward:
                _show_backward(net, node)
        _show_norms(net)
    if reduce:
        net.reduce_by_hand(steps, name)
    if net.memory is not memory:
        return False
    if tail:
        net.memory.run(f"debug update of {key}", lambda: sequence("debug update", tail, None))
    return True


def forward(net: Net, *, show: bool) -> float:
    """Run a whole forward after which every value can be read; return the loss. show: log the magnitudes."""
    net.refresh_shapes()
    if not show:
        return net.forward_range()
    for node in net.graph.nodes:
        net.forward_range(node.index, node.index)
        _show_forward(net, node)
    return net.loss()


def first_nan(net: Net) -> str:
    """Return words on which layer's top holds the first NaN of a forward after which every value can be read."""
    for node in net.graph.nodes:
        for t in node.tops:
            value = net.graph.values[t]
            if np.isnan(_blob(net, value).read_data()).any():
                return f'the first is in top blob "{value.name}" of layer "{node.name}"{_suspects(net, node, value)}'
    return "no layer's top holds one, so the weighted losses do not add up"


def _suspects(net: Net, node: Node, value: Value) -> str:
    """Return words on other causes: parameters, or layers that overwrote the value in place."""
    bad = [str(i) for i, b in enumerate(node.layer.blobs) if np.isnan(b.read_data()).any()]
    if bad:
        return f", whose parameter {', '.join(bad)} already holds one"
    same = {v.id for v in net.graph.values if (v.name, v.data) == (value.name, value.data)}
    over = [n for n in net.graph.nodes[node.index + 1 :] for t in n.tops if t in same]
    return f", or came in place from {', '.join(n.name for n in over)}" if over else ""


def _blob(net: Net, value: Value) -> Blob:
    pair = net.memory.store.shown(value.data), net.memory.store.shown(value.diff)
    return Blob(value.name, value.shape, net.dtype, pair, channels_last=value.channels_last)


def _show_forward(net: Net, node: Node) -> None:
    said = f"    [Forward] Layer {node.name}"
    for t in node.tops:
        blob = _blob(net, net.graph.values[t])
        _log.info("%s, top blob %s data: %s", said, blob.name, _mean(blob.read_data()))
    for blob, p in zip(node.layer.blobs, node.params, strict=True):
        param = net.graph.params[p]
        _log.info("%s, param blob %s data: %s", said, param.name or param.position, _mean(blob.read_data()))


def _show_backward(net: Net, node: Node) -> None:
    said = f"    [Backward] Layer {node.name}"
    for b, wanted in zip(node.bottoms, node.propagate, strict=True):
        if wanted:
            blob = _blob(net, net.graph.values[b])
            _log.info("%s, bottom blob %s diff: %s", said, blob.name, _mean(blob.read_diff()))
    for i, (blob, wanted) in enumerate(zip(node.layer.blobs, node.param_propagate, strict=True)):
        if wanted:
            _log.info("%s, param blob %d diff: %s", said, i, _mean(blob.read_diff()))


def _show_norms(net: Net) -> None:
    data, diff = ([getattr(b, read)().ravel() for b in net.learnable_params] for read in ("read_data", "read_diff"))
    sums = [sum(float(np.abs(a).sum(dtype=np.float64)) for a in arrays) for arrays in (data, diff)]
    roots = [math.sqrt(sum(float(np.square(a, dtype=np.float64).sum()) for a in arrays)) for arrays in (data, diff)]
    _log.error(
        "    [Backward] All net params (data, diff): L1 norm = (%.6g, %.6g); L2 norm = (%.6g, %.6g)", *sums, *roots
    )


def _mean(values: np.ndarray) -> str:
    mean = float(np.abs(values).mean(dtype=np.float64)) if values.size else math.nan
    return f"{mean:.6g}"
