"""Lower bounds of a step's work, floating-point operations and bytes moved, and the seconds predicted from them. Pure.

`step_flops` and `layer_bytes` count the work; `program_costs` turns it into seconds with a machine's rates, or takes
measured times. Every array that a pass declares counts once, one that it updates twice. Workspace does not count, since
another implementation may need none.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ...formats.types import SPLIT
from ...layers.base import Gradients
from ...lms.cost.machine import HALF_GAIN, Costs, Machine
from ...lms.program import PARAM_GRADIENTS, Buffer, Mode, Step
from ..build.graph import Graph
from .buffer_views import remat_with_views
from .programs import HostedStep
from .steps import LayerStep, node_of, remat_step, wants


def step_flops(graph: Graph, step: LayerStep) -> int:
    """Return a step's floating-point operations: in forward those of `Layer.flops`, in backward as many for the
    gradients of all bottoms together, and as many again for those of the weights."""
    node = node_of(graph, step)
    if step.look or step.prepares or step.finishes or step.zero:
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
    """Return the factors of the step's bytes and of its operations in its predicted time (see `Layer.effort`)."""
    node = node_of(graph, step)
    over, times = node.layer.effort(step.forward, step.again)
    if not step.forward and sum(step.top_diffs) == 1 and node.layer.type == SPLIT:
        over, times = 0.0, 1.0  # one gradient needs no sum: nothing is copied
    return over, times / HALF_GAIN if node.half else times


def layer_bytes(graph: Graph, step: LayerStep, buffers: Mapping[int, Buffer], sizes: Mapping[int, int]) -> int:
    """Return the bytes that a layer's pass must move. Of a blob at the border of a micro-batched region only the
    step's images count; of a buffer with views only what the pass accesses.

    Args:
        sizes: buffer id -> bytes of its arrays.
    """
    node, own = node_of(graph, step), step.without_views or step.step
    values = [graph.values[v] for v in (*node.bottoms, *node.tops)]
    shares = {
        b: (v.rows[1] - v.rows[0]) / graph.values[v.whole].shape[0]
        for v in values
        if v.rows is not None and v.whole is not None
        for b in (v.data, v.diff)
    }
    accesses = [a for a in own.accesses if not buffers[a.buffer].call_scratch]
    return int(sum(sizes[a.buffer] * shares.get(a.buffer, 2 if a.mode is Mode.UPDATE else 1) for a in accesses))


def step_bytes(step: Step, buffers: Mapping[int, Buffer], sizes: Mapping[int, int]) -> int:
    """Return the bytes that a step must move. sizes: buffer id -> bytes of its arrays."""
    return sum(
        sizes[a.buffer] * (2 if a.mode is Mode.UPDATE else 1)
        for a in step.accesses
        if not buffers[a.buffer].call_scratch
    )


def program_remats(graph: Graph, steps: Sequence[LayerStep | HostedStep]) -> dict[int, LayerStep]:
    """Return {index of a forward step: its remat step} for the forwards that can run again."""
    found = {}
    for s, step in enumerate(steps):
        if isinstance(step, LayerStep) and step.forward and not step.look and not step.step.host:
            remat = remat_with_views(graph, step, remat_step(graph, step))
            if remat is not None:
                found[s] = remat
    return found


def program_costs(
    graph: Graph,
    steps: Sequence[LayerStep | HostedStep],
    remats: Mapping[int, LayerStep],
    buffers: Mapping[int, Buffer],
    sizes: Mapping[int, int],
    machine: Machine,
    measured: Mapping[str, float],
) -> Costs:
    """Return the seconds of every step and remat step: measured where known, else predicted from bytes and operations.

    A remat step that was not measured is scaled by the measured/predicted ratio of its forward.

    Args:
        remats: remat steps by the index of their forward.
        sizes: buffer id -> bytes of its arrays.
        measured: step name -> seconds.
    """

    def predicted(step: LayerStep | HostedStep) -> float:
        if not isinstance(step, LayerStep):
            return machine.step_seconds(step_bytes(step.step, buffers, sizes), 0)
        over, times = step_effort(graph, step)
        nbytes = int(over * layer_bytes(graph, step, buffers, sizes))
        flops = int(times * step_flops(graph, step))
        return machine.step_seconds(nbytes, flops)

    raw = [predicted(s) for s in steps]
    known = [_step_seconds(s, seconds, measured) for s, seconds in zip(steps, raw, strict=True)]
    again = {
        s: measured.get(step.step.name, predicted(step) * known[s] / raw[s] if raw[s] else 0.0)
        for s, step in remats.items()
    }
    return Costs(known, again, machine)


def _step_seconds(step: LayerStep | HostedStep, predicted: float, measured: Mapping[str, float]) -> float:
    """Return the seconds of a step: measured, else predicted. A backward measured as a split one but run as one step
    takes the sum; one measured whole but run split takes half for each step."""
    name = step.step.name
    if not isinstance(step, LayerStep) or step.forward:
        return measured.get(name, predicted)
    bottoms = name.removesuffix(PARAM_GRADIENTS)
    params = bottoms + PARAM_GRADIENTS
    if step.makes is Gradients.ALL and bottoms in measured:
        return measured[bottoms] + measured.get(params, 0.0)
    if step.makes is not Gradients.ALL and bottoms in measured and params not in measured:
        return measured[bottoms] / 2
    return measured.get(name, predicted)
