"""What the steps of a program cost, and which of its forwards can be replayed. Pure: shapes and sizes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ..layers.base import Makes
from ..lms.machine import Costs, Machine
from ..lms.schedule import PARAMS_HALF, Buffer
from .access import LayerStep, replay_step
from .flops import layer_bytes, step_bytes, step_effort, step_flops
from .graph import Graph
from .laid import replayed
from .programs import HostedStep


def program_replays(graph: Graph, steps: Sequence[LayerStep | HostedStep]) -> dict[int, LayerStep]:
    """Forward steps, by index, that can run once more, and the step that does it."""
    found = {}
    for s, step in enumerate(steps):
        if isinstance(step, LayerStep) and step.forward and not step.look and not step.step.host:
            replay = replayed(graph, step, replay_step(graph, step))
            if replay is not None:
                found[s] = replay
    return found


def program_costs(
    graph: Graph,
    steps: Sequence[LayerStep | HostedStep],
    replays: Mapping[int, LayerStep],
    buffers: Mapping[int, Buffer],
    sizes: Mapping[int, int],
    machine: Machine,
    measured: Mapping[str, float],
) -> Costs:
    """Seconds of every step and replay: as measured (by the step's name), else by bytes and operations. A replay that
    was not measured is off by as much as its forward."""

    def predicted(step: LayerStep | HostedStep) -> float:
        if not isinstance(step, LayerStep):
            return machine.step_seconds(step_bytes(step.step, buffers, sizes), 0)
        over, times = step_effort(graph, step)
        nbytes = int(over * layer_bytes(graph, step, buffers, sizes))
        flops = int(times * step_flops(graph, step))
        return machine.step_seconds(nbytes, flops)

    raw = [predicted(s) for s in steps]
    known = [_known(s, seconds, measured) for s, seconds in zip(steps, raw, strict=True)]
    again = {
        s: measured.get(step.step.name, predicted(step) * known[s] / raw[s] if raw[s] else 0.0)
        for s, step in replays.items()
    }
    return Costs(known, again, machine)


def _known(step: LayerStep | HostedStep, predicted: float, measured: Mapping[str, float]) -> float:
    """Seconds of a step. Of a backward that was measured in two steps and runs as one, the sum; of one that was
    measured whole and runs in two, half of it each."""
    name = step.step.name
    if not isinstance(step, LayerStep) or step.forward:
        return measured.get(name, predicted)
    bottoms = name.removesuffix(PARAMS_HALF)
    params = bottoms + PARAMS_HALF
    if step.makes is Makes.ALL and bottoms in measured:
        return measured[bottoms] + measured.get(params, 0.0)
    if step.makes is not Makes.ALL and bottoms in measured and params not in measured:
        return measured[bottoms] / 2
    return measured.get(name, predicted)
