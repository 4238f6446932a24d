"""How long a plan takes: its operations on three streams, in issue order, with predicted times. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, MutableSequence
from dataclasses import dataclass
from typing import NamedTuple

from ..plan.plan import COMPUTE, COPY_IN, COPY_OUT, HOST, OpKind, Plan
from .machine import Costs, Machine


@dataclass(frozen=True)
class PlanTimes:
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


class Task(NamedTuple):
    """An operation as far as time goes. alone: its seconds; both: those of a copy while the other direction of the link
    is busy too, 0 for steps. after: tasks, by key, that it waits for."""

    key: int
    stream: int
    alone: float
    both: float
    after: Iterable[int]


def copy_task(key: int, stream: int, nbytes: int, after: Iterable[int], machine: Machine) -> Task:
    """The task of a copy of so many bytes; of none, where there is nothing to do, it takes no time."""
    if not nbytes:
        return Task(key, stream, 0.0, 0.0, after)
    out = stream == COPY_OUT
    return Task(key, stream, machine.copy_seconds(nbytes, out), machine.copy_seconds(nbytes, out, True), after)


def follow(
    tasks: Iterable[Task], end: MutableSequence[float], free: list[float]
) -> Iterator[tuple[float, tuple[float, ...]]]:
    """Follow tasks in issue order: for each, when it starts, and when every stream had been free before.

    end: by key, when a task ends; it is written. free: when each stream is free, and the issuing thread; it is changed.
    While both directions of the link are busy, each gets half of what they reach together."""
    for key, stream, alone, both, after in tasks:
        before = tuple(free)
        begin = max(free[stream], free[HOST])
        for a in after:
            if end[a] > begin:
                begin = end[a]
        took = alone
        if both:
            other = free[COPY_IN + COPY_OUT - stream]
            shared = min(max(0.0, other - begin), both)  # the other direction is known to be busy that long
            took = shared + alone * (1 - shared / both)
        end[key] = free[stream] = begin + took
        yield begin, before


def time_plan(plan: Plan, costs: Costs) -> PlanTimes:
    """Predict when every operation of a plan runs."""
    seconds, machine = step_seconds(plan, costs), costs.machine
    there = {op.id for op in plan.carried_over}  # from the run before
    tasks = [
        copy_task(op.id, op.stream, 0 if op.id in there else plan.copied(op), op.waits, machine)
        if op.kind in (OpKind.IN, OpKind.OUT)
        else Task(op.id, op.stream, seconds[op.step], 0.0, op.waits)
        for op in plan.ops
    ]
    start: list[float] = []
    end = [0.0] * len(tasks)
    free = [0.0] * 4
    stalls = [0.0] * len(plan.program.steps)
    busy = {COPY_IN: 0.0, COPY_OUT: 0.0}
    for op, (begin, before) in zip(plan.ops, follow(tasks, end, free), strict=True):
        start.append(begin)
        if op.stream in busy:
            busy[op.stream] += end[op.id] - begin
        else:
            stalls[op.step] += max(0.0, begin - max(before[COMPUTE], before[HOST]))
    total = max(free)
    if stalls:
        stalls[-1] += total - max(free[COMPUTE], free[HOST])
    return PlanTimes(tuple(start), tuple(end), tuple(stalls), total, busy[COPY_IN], busy[COPY_OUT])
