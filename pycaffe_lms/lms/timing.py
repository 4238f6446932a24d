"""How long a plan takes: its operations on three streams, in issue order, with predicted times. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from .machine import Costs
from .plan import COMPUTE, COPY_IN, COPY_OUT, HOST, Kind, Plan


@dataclass(frozen=True)
class Timed:
    """start, end: seconds of every operation, by id. stalls: seconds that every step of the plan's program waits for
    copies, beyond the steps before it. seconds: of the whole run. busy_in, busy_out: of the link."""

    start: tuple[float, ...]
    end: tuple[float, ...]
    stalls: tuple[float, ...]
    seconds: float
    busy_in: float
    busy_out: float

    @property
    def stall(self) -> float:
        """Seconds of a run in which no step runs because of copies, those at the end included."""
        return sum(self.stalls)


def step_seconds(plan: Plan, costs: Costs) -> list[float]:
    """Seconds of every step of the plan's program."""
    return [costs.again[s] if again else costs.steps[s] for s, again in plan.order]


def time_plan(plan: Plan, costs: Costs) -> Timed:
    """Follow a plan. While both directions of the link are busy, each gets half of what they reach together."""
    seconds, machine = step_seconds(plan, costs), costs.machine
    free = {COMPUTE: 0.0, COPY_IN: 0.0, COPY_OUT: 0.0, HOST: 0.0}
    start: list[float] = []
    end: list[float] = []
    stalls = [0.0] * len(plan.program.steps)
    busy = {COPY_IN: 0.0, COPY_OUT: 0.0}
    for op in plan.ops:
        ready = max([free[HOST], *(end[w] for w in op.waits)])
        begin = max(free[op.stream], ready)
        if op.kind in (Kind.IN, Kind.OUT):
            out = op.kind is Kind.OUT
            other = free[COPY_IN if out else COPY_OUT]
            nbytes = plan.buffers[op.place.buffer].copied
            alone, both = (machine.copy_seconds(nbytes, out, b) for b in (False, True))
            shared = min(max(0.0, other - begin), both)  # the other direction is known to be busy that long
            took = shared + (alone * (1 - shared / both) if both else 0.0)
            busy[op.stream] += took
        else:
            took = seconds[op.step]
            stalls[op.step] += max(0.0, begin - max(free[COMPUTE], free[HOST]))
        start.append(begin)
        end.append(begin + took)
        free[op.stream] = begin + took
        if op.stream == HOST:
            free[HOST] = max(begin + took, free[HOST])
    total = max(free.values())
    if stalls:
        stalls[-1] += total - max(free[COMPUTE], free[HOST])
    return Timed(tuple(start), tuple(end), tuple(stalls), total, busy[COPY_IN], busy[COPY_OUT])
