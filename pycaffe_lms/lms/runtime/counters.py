"""Count what Large Model Support does: by program, and in total. Pure numbers; the runtime adds to them.

A `Counters` is filled by each run of a plan and added to `Stats`. Bytes are those that were copied; times are those
that plans predict (`stall_seconds`), or those of a recorded iteration (`measured`). `plan/statistics.py` has the
numbers of a plan alone.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass, field, fields
from typing import TYPE_CHECKING, Any

from ..cost.timing import MeasuredRun
from ..plan.plan import Plan
from ..plan.statistics import plan_statistics

if TYPE_CHECKING:
    from .runtime import Runtime


@dataclass
class Counters:
    """Count runs of plans.

    Attributes:
        runs: finished runs.
        copies_in, copies_out: copies, one in parts counted once.
        steps_rematerialized: steps that ran again for rematerialization.
        seconds, stall_seconds: as the plans predict.
        held_peak: most bytes of managed buffers on the device at once.
    """

    runs: int = 0
    bytes_in: int = 0
    bytes_out: int = 0
    copies_in: int = 0
    copies_out: int = 0
    steps_rematerialized: int = 0
    seconds: float = 0.0
    stall_seconds: float = 0.0
    held_peak: int = 0

    def add(self, other: Counters) -> None:
        """Add another's counts; of `held_peak` take the larger."""
        for f in fields(Counters):
            mine, theirs = getattr(self, f.name), getattr(other, f.name)
            setattr(self, f.name, max(mine, theirs) if f.name == "held_peak" else mine + theirs)

    def finished(self, plan: Plan) -> None:
        """Count a finished run of the plan, with its predicted times."""
        self.runs, self.steps_rematerialized = 1, plan.rematerialized
        self.seconds, self.stall_seconds = plan.seconds, plan.stall

    def described(self) -> dict[str, int | float]:
        """Return the counts under the keys of `statistics`."""
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
    """Count one program ("train", "test"; the test nets of a solver count as one). plan: of its last run."""

    plan: Plan
    total: Counters = field(default_factory=Counters)
    last: Counters = field(default_factory=Counters)
    measured: MeasuredRun | None = None


@dataclass
class Stats(Counters):
    """Count totals since the start or `reset`. held: bytes of managed buffers on the device now."""

    held: int = 0
    programs: dict[str, ProgramCounters] = field(default_factory=dict)

    def held_more(self, nbytes: int) -> None:
        """Count bytes of managed buffers that came onto the device."""
        self.held += nbytes
        self.held_peak = max(self.held_peak, self.held)

    def ran(self, plan: Plan, counted: Counters) -> None:
        """Count a run. A replay of a CUDA graph counts as the run that it captured."""
        program = self.programs.setdefault(plan.program.name, ProgramCounters(plan))
        program.plan, program.last = plan, counted
        program.total.add(counted)
        self.add(counted)

    def measured(self, runs: Iterable[MeasuredRun]) -> None:
        """Keep the last recorded run of each program."""
        for run in runs:
            name = run.plan.program.name
            self.programs.setdefault(name, ProgramCounters(run.plan)).measured = run

    def reset(self) -> None:
        """Set all counts to zero, and the peak to the bytes on the device now."""
        for f in fields(Counters):
            setattr(self, f.name, 0)
        self.held_peak = self.held
        for program in self.programs.values():
            program.total = Counters()

    def described(self) -> dict[str, Any]:
        """Return {"total": ..., "programs": {name: {"total", "last_run", "measured", "plan"}}}; see `statistics`."""
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


def statistics(runtime: Runtime) -> dict[str, Any]:
    """Return what Large Model Support has done and needs, ready for JSON; sizes in bytes, zero without a device.

    Returns:
        enabled: buffers may be managed.
        lossy: format of compressed copies ("fp16", "bf16"), "" for exact copies; saturated: values clamped so far.
        budget_bytes: device memory that may be used; in_use_bytes: allocated of it.
        resident_bytes: of resident buffers; workspace_bytes: call scratch that layers use in turn.
        arena_bytes: what managed buffers use in turn; held_bytes: of managed buffers on the device now.
        host_pinned_bytes, host_pinned_segments: page-locked memory allocated for plans, and the number of its blocks
        (earlier page-locked host copies, such as filled weights, are not counted); host_shared_bytes: the part of it
        that values within a run use in turn.
        total, and for every program total and last_run: runs, bytes_in, bytes_out, copies_in, copies_out and
        steps_rematerialized, counted since the start or `stats.reset()`; held_peak_bytes, observed; seconds_predicted
        and stall_ms_predicted, from the plans.
        programs: by name ("train", "test"; nets with programs of one name count together), beside these: plan, see
        `plan_statistics`; measured: of the last recorded iteration, see `MeasuredRun.described`, or None.
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
