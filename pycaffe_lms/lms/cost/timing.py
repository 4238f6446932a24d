"""Predict when the operations of a plan run, by simulating its three streams in issue order. Pure.

`time_plan` times a whole plan; `follow` is the simulation itself, which `planner/copy_reordering.py` uses too.
`MeasuredRun` holds the times that `runtime/recorder.py` measured, in the same form: `report/page.py` shows both.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, MutableSequence
from dataclasses import dataclass
from typing import NamedTuple

from ..plan.plan import COMPUTE, COPY_IN, COPY_OUT, HOST, OpKind, Plan
from .machine import Costs, Machine


@dataclass(frozen=True)
class PlanTimes:
    """Hold times of one run of a plan, all in seconds.

    Attributes:
        start, end: times of every operation, by id.
        stalls: how long every step of the plan's program waits for copies after the step before it has ended.
        seconds: of the whole run.
        busy_in, busy_out: how long each direction of the link is busy.
    """

    start: tuple[float, ...]
    end: tuple[float, ...]
    stalls: tuple[float, ...]
    seconds: float
    busy_in: float
    busy_out: float

    @property
    def stall(self) -> float:
        """Return the seconds in which no step runs because of copies, those at the end included."""
        return sum(self.stalls)


def step_seconds(plan: Plan, costs: Costs) -> list[float]:
    """Return the seconds of every step of the plan's program."""
    return [costs.again[s] if again else costs.steps[s] for s, again in plan.order]


class Task(NamedTuple):
    """Describe an operation to the simulation.

    Attributes:
        key: index of its end time.
        alone: its seconds.
        both: seconds of a copy while the other direction of the link is busy too; 0 for steps.
        after: keys of the tasks that it waits for.
    """

    key: int
    stream: int
    alone: float
    both: float
    after: Iterable[int]


def copy_task(key: int, stream: int, nbytes: int, after: Iterable[int], machine: Machine) -> Task:
    """Return the task of a copy of `nbytes`; without bytes it takes no time."""
    if not nbytes:
        return Task(key, stream, 0.0, 0.0, after)
    out = stream == COPY_OUT
    return Task(key, stream, machine.copy_seconds(nbytes, out), machine.copy_seconds(nbytes, out, True), after)


def follow(
    tasks: Iterable[Task], end: MutableSequence[float], free: list[float]
) -> Iterator[tuple[float, tuple[float, ...]]]:
    """Simulate tasks in issue order; while both directions of the link are busy, each gets half of `link_both`.

    Args:
        end: end time of every task by key; written here.
        free: time at which each stream, and the issuing thread, is free; updated here.

    Yields:
        For every task: its start time, and `free` as it was before.
    """
    for key, stream, alone, both, after in tasks:
        before = tuple(free)
        begin = max(free[stream], free[HOST])
        for a in after:
            if end[a] > begin:
                begin = end[a]
        took = alone
        if both:
            other = free[COPY_IN + COPY_OUT - stream]
            shared = min(max(0.0, other - begin), both)  # seconds that the other direction is known to be busy
            took = shared + alone * (1 - shared / both)
        end[key] = free[stream] = begin + took
        yield begin, before


def time_plan(plan: Plan, costs: Costs) -> PlanTimes:
    """Predict when every operation of a plan runs."""
    seconds, machine = step_seconds(plan, costs), costs.machine
    carried_over = {op.id for op in plan.carried_over}
    tasks = [
        copy_task(op.id, op.stream, 0 if op.id in carried_over else plan.copied(op), op.waits, machine)
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


@dataclass(frozen=True)
class MeasuredRun:
    """Hold one recorded run of a plan.

    Attributes:
        iteration: its name in the recording.
        times: measured times, in seconds since the run began.
        simulated: the times are those of a simulated device's clock.
    """

    plan: Plan
    iteration: str
    times: PlanTimes
    simulated: bool = False

    @property
    def how(self) -> str:
        """Return the word for its times."""
        return "simulated" if self.simulated else "measured"

    def described(self) -> dict[str, str | bool | float]:
        """Return its numbers, ready for JSON.

        Returns:
            iteration, simulated: see `MeasuredRun`.
            seconds: of the run, issued step by step and with the events of the recording.
            stall_ms: how long steps waited for copies.
            busy_in_ms, busy_out_ms: how long copies took.
        """
        t = self.times
        return {
            "iteration": self.iteration,
            "simulated": self.simulated,
            "seconds": t.seconds,
            "stall_ms": 1e3 * t.stall,
            "busy_in_ms": 1e3 * t.busy_in,
            "busy_out_ms": 1e3 * t.busy_out,
        }


def measured_run(
    plan: Plan, iteration: str, spans: dict[int, tuple[float, float]], stalls: dict[int, float], simulated: bool
) -> MeasuredRun:
    """Return a recorded run from its times.

    Args:
        spans: operation id -> (start, end) in seconds.
        stalls: step -> seconds that it waited for copies.
    """
    begun = min((start for start, _ in spans.values()), default=0.0)
    start, end = (tuple(spans[op.id][i] - begun for op in plan.ops) for i in (0, 1))
    busy = {kind: 0.0 for kind in OpKind}
    for op in plan.ops:
        busy[op.kind] += end[op.id] - start[op.id]
    waited = tuple(stalls.get(s, 0.0) for s in range(len(plan.program.steps)))
    total = max(end, default=0.0)
    return MeasuredRun(
        plan, iteration, PlanTimes(start, end, waited, total, busy[OpKind.IN], busy[OpKind.OUT]), simulated
    )
