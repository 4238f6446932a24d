"""What a step must do at least: floating-point operations, and bytes to and from memory. Pure: shapes and sizes.

Bytes are those of every array that the pass declares, once; one that is updated is read and written. Workspace does
not count, for another way of computing the same may do without it.
"""

from __future__ import annotations

from collections.abc import Mapping

from ..formats.types import SPLIT
from ..lms.machine import HALF_GAIN
from ..lms.schedule import Buffer, Mode, Step
from .access import LayerStep, node_of, wants
from .graph import Graph


def step_flops(graph: Graph, step: LayerStep) -> int:
    """Operations that the layer counts for its forward (`Layer.flops`); a backward takes as many for the gradients of
    its bottoms together, and as many for those of its weights."""
    node = node_of(graph, step)
    if step.look or step.zero:
        return 0
    bottoms, tops = ([graph.values[v].shape for v in ids] for ids in (node.bottoms, node.tops))
    forward = node.layer.flops(bottoms, tops)
    if step.forward:
        return forward
    propagate, param_propagate = wants(node, step.makes)
    weights = any(
        wanted and len(graph.params[p].shape) > 1  # a bias is summed: no products
        for p, wanted in zip(node.params, param_propagate, strict=True)
    )
    return forward * (any(propagate) + weights)


def step_effort(graph: Graph, step: LayerStep) -> tuple[float, float]:
    """By how much the step's bytes and operations count in its time, see `Layer.effort`."""
    over, times = _effort(graph, step)
    return over, times / HALF_GAIN if node_of(graph, step).half else times


def _effort(graph: Graph, step: LayerStep) -> tuple[float, float]:
    if not step.forward and sum(step.top_diffs) == 1 and node_of(graph, step).layer.type == SPLIT:
        return 0.0, 1.0  # the sum of one gradient is where that is
    return node_of(graph, step).layer.effort(step.forward, step.again)


def layer_bytes(graph: Graph, step: LayerStep, buffers: Mapping[int, Buffer], sizes: Mapping[int, int]) -> int:
    """`step_bytes` of a layer's pass; of a blob at the border of a region in parts, only its own images count, and of
    one that holds others, only what the pass touches."""
    node, own = node_of(graph, step), step.apart or step.step
    values = [graph.values[v] for v in (*node.bottoms, *node.tops)]
    rows = {v.id: (v.rows[1] - v.rows[0]) / graph.values[v.whole].shape[0] for v in values if v.rows}
    shares = {b: rows[v.id] for v in values if v.rows for b in (v.data, v.diff)}
    if not shares:
        return step_bytes(own, buffers, sizes)
    accesses = [a for a in own.accesses if not buffers[a.buffer].call_scratch]
    return int(sum(sizes[a.buffer] * shares.get(a.buffer, 2 if a.mode is Mode.UPDATE else 1) for a in accesses))


def step_bytes(step: Step, buffers: Mapping[int, Buffer], sizes: Mapping[int, int]) -> int:
    """Bytes that the step must move. sizes: buffer id -> bytes of its arrays."""
    return sum(
        sizes[a.buffer] * (2 if a.mode is Mode.UPDATE else 1)
        for a in step.accesses
        if not buffers[a.buffer].call_scratch
    )
