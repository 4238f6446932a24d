"""What the steps of a program cost, and which of its forwards can be replayed. Pure: shapes and sizes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ..lms.machine import Costs, Machine
from ..lms.schedule import Buffer
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
    known = [measured.get(s.step.name, seconds) for s, seconds in zip(steps, raw, strict=True)]
    again = {
        s: measured.get(step.step.name, predicted(step) * known[s] / raw[s] if raw[s] else 0.0)
        for s, step in replays.items()
    }
    return Costs(known, again, machine)
