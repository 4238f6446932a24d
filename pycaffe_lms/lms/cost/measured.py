"""Hold the measured times of a plan's operations, in the form of predicted ones (`cost/timing.py`), to compare them.

Pure. `runtime/recorder.py` measures them; `report/page.py` shows both.
"""

from __future__ import annotations

from dataclasses import dataclass

from ..plan.plan import OpKind, Plan
from .timing import PlanTimes


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
