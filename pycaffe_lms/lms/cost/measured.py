"""A recorded run of a plan: when each of its operations really ran. Pure: numbers that the recorder noted.

The times of a prediction (`timing.PlanTimes`) are the same thing, so that one can be laid beside the other.
"""

from __future__ import annotations

from dataclasses import dataclass

from ..plan.plan import OpKind, Plan
from .timing import PlanTimes


@dataclass(frozen=True)
class MeasuredRun:
    """iteration: which one it was, as the recording calls it. times: seconds since the run began. simulated: by the
    model clock of a simulated device."""

    plan: Plan
    iteration: str
    times: PlanTimes
    simulated: bool = False

    @property
    def how(self) -> str:
        """What its times are called."""
        return "simulated" if self.simulated else "measured"

    def described(self) -> dict:
        """iteration; simulated: whether the times are those of a model clock; seconds: of the run, step by step and
        with its marks; stall_ms: how long steps waited for copies; busy_in_ms, busy_out_ms: how long copies took."""
        t = self.times
        return {
            "iteration": self.iteration,
            "simulated": self.simulated,
            "seconds": t.seconds,
            "stall_ms": 1e3 * t.stall,
            "busy_in_ms": 1e3 * t.busy_in,
            "busy_out_ms": 1e3 * t.busy_out,
        }


def measured_run(plan: Plan, iteration: str, spans: dict[int, tuple[float, float]],
                 stalls: dict[int, float], simulated: bool) -> MeasuredRun:  # fmt: skip
    """spans: seconds of every operation, by id. stalls: seconds that steps waited for copies, by step."""
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
