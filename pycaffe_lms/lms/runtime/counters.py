"""What Large Model Support did, counted as it runs: by program, and in all. Pure numbers; the runtime adds to them.

Counted are whole runs of plans. Bytes are those that were copied; times are those that plans predict (`stall_seconds`),
or those of an iteration that was recorded (`measured`). See also: `stats.py`, for what a plan alone says.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass, field, fields
from typing import TYPE_CHECKING

from ..cost.measured import MeasuredRun
from ..plan.plan import Plan
from ..plan.statistics import plan_statistics

if TYPE_CHECKING:
    from .runtime import Runtime


@dataclass
class Counters:
    """runs: of plans, finished ones. steps_replayed: steps that ran a second time. seconds, stall_seconds: as the plans
    predict. held_peak: most bytes of managed buffers on the device at once."""

    runs: int = 0
    bytes_in: int = 0
    bytes_out: int = 0
    copies_in: int = 0
    copies_out: int = 0
    steps_replayed: int = 0
    seconds: float = 0.0
    stall_seconds: float = 0.0
    held_peak: int = 0

    def add(self, other: Counters) -> None:
        for f in fields(Counters):
            mine, theirs = getattr(self, f.name), getattr(other, f.name)
            setattr(self, f.name, max(mine, theirs) if f.name == "held_peak" else mine + theirs)

    def copied_in(self, nbytes: int, begins: bool = True) -> None:
        """Count a copy, or a part of one: it counts as one with the first."""
        self.copies_in += begins
        self.bytes_in += nbytes

    def copied_out(self, nbytes: int, begins: bool = True) -> None:
        self.copies_out += begins
        self.bytes_out += nbytes

    def finished(self, plan: Plan) -> None:
        """The run came to its end."""
        self.runs, self.steps_replayed = 1, plan.replayed
        self.seconds, self.stall_seconds = plan.seconds, plan.stall

    def described(self) -> dict[str, int | float]:
        """The keys of `statistics`, see `Stats.described`."""
        found = asdict(self)
        seconds, stall, peak = (found.pop(name) for name in ("seconds", "stall_seconds", "held_peak"))
        return {
            **found,
            "seconds_predicted": seconds,
            "stall_ms_predicted": 1e3 * stall,
            "held_peak_bytes": peak,
        }


@dataclass
class ProgramCounters:
    """Of one program ("train", "test"; the test nets of a solver count as one). plan: of its last run."""

    plan: Plan
    total: Counters = field(default_factory=Counters)
    last: Counters = field(default_factory=Counters)
    measured: MeasuredRun | None = None


@dataclass
class Stats(Counters):
    """Totals since the start, or since `reset`. held: bytes of managed buffers that are on the device now."""

    held: int = 0
    programs: dict[str, ProgramCounters] = field(default_factory=dict)

    def held_more(self, nbytes: int) -> None:
        self.held += nbytes
        self.held_peak = max(self.held_peak, self.held)

    def ran(self, plan: Plan, counted: Counters) -> None:
        """Count a run. A run from a recording counts what the run step by step did that the recording repeats."""
        program = self.programs.setdefault(plan.program.name, ProgramCounters(plan))
        program.plan, program.last = plan, counted
        program.total.add(counted)
        self.add(counted)

    def measured(self, runs: Iterable[MeasuredRun]) -> None:
        """Take note of recorded runs; of each program the last counts."""
        for run in runs:
            name = run.plan.program.name
            self.programs.setdefault(name, ProgramCounters(run.plan)).measured = run

    def reset(self) -> None:
        """Count from zero. What is on the device now is the peak so far."""
        for f in fields(Counters):
            setattr(self, f.name, 0)
        self.held_peak = self.held
        for program in self.programs.values():
            program.total = Counters()

    def described(self) -> dict:
        """{"total": ..., "programs": {name: {"total", "last_run", "measured", "plan"}}}; see `Runtime.statistics`."""
        totals = Counters()
        totals.add(self)
        return {
            "total": totals.described(),
            "programs": {
                name: {
                    "total": program.total.described(),
                    "last_run": program.last.described(),
                    "measured": program.measured.described() if program.measured else None,
                    "plan": plan_statistics(program.plan),
                }
                for name, program in self.programs.items()
            },
        }


def statistics(runtime: Runtime) -> dict:
    """What Large Model Support has done so far and needs, ready for JSON; sizes in bytes, zero without a device:

    enabled; lossy: in which form copies lose digits ("fp16", "bf16", or "" for exact ones); saturated: values cut to
    the largest of that form so far; budget_bytes: what may be used of the device; in_use_bytes: what is taken of it;
    resident_bytes: what stays there for good; workspace_bytes: what layers use in turn; arena_bytes: what managed
    buffers use in turn; held_bytes: what they hold of it now; host_pinned_bytes, host_pinned_segments: page-locked
    memory taken for plans, and in how many blocks (a buffer that had a home on the host before, such as a filled
    weight, keeps that); host_shared_bytes: of these, what values use in turn that live within a run.
        total, and for every program total and last_run: runs, bytes_in, bytes_out, copies_in, copies_out and
        steps_replayed as they were counted since the start or `stats.reset()`, held_peak_bytes as it was seen, and
        seconds_predicted and stall_ms_predicted, which come from the plans.
        programs: by name ("train", "test"; nets with programs of one name count together), beside these: plan, see
        `plan_statistics`; measured: of the last iteration that was recorded, see `MeasuredRun.described`, or None.
    """
    device, on_host = runtime.device, runtime.device.is_host
    return {
        "enabled": runtime.active,
        "lossy": "" if runtime.compression is None else runtime.config.compress,
        "saturated": 0 if runtime.compression is None else runtime.compression.saturated(),
        "device": device.describe(),
        "budget_bytes": 0 if on_host else device.capacity(),
        "in_use_bytes": 0 if on_host else device.in_use(),
        "resident_bytes": runtime.resident_bytes,
        "workspace_bytes": runtime.workspace_bytes,
        "arena_bytes": runtime.arena.nbytes,
        "held_bytes": runtime.stats.held,
        "host_pinned_bytes": 0 if on_host else runtime.slab.nbytes,
        "host_pinned_segments": 0 if on_host else runtime.slab.segments,
        "host_shared_bytes": 0 if on_host else runtime.slab.shared_bytes,
        **runtime.stats.described(),
    }
