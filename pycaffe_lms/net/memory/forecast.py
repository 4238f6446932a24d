"""Predicts device bytes and seconds of a program without running it. Allocates no arrays.

`in_core` answers for a net without LMS, `on_demand` plans copies when they are needed, `least` and `needed` give the
smallest budget. Each takes the net's planner and the program.
See also: `../../lms/cost/timing.py` (seconds of a plan), `Net.plan_only` (makes a plan).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from ...backend.device import ALIGN
from ...errors import OutOfDeviceMemory
from ...lms.layout.inplace_reuse import step_needs
from ...lms.plan.plan import Plan
from ...lms.planner.lookahead import make_plan
from ...lms.program import layer_of
from ...lms.request import PlanRequest
from ...lms.runtime.runtime import Runtime
from ..program.programs import Sequenced
from ..program.split_backward import with_least_memory

if TYPE_CHECKING:
    from .program_planner import ProgramPlanner

CLOSE = 0.01  # tolerance of the search for the smallest arena, as a fraction of the largest step's bytes


@dataclass(frozen=True)
class InCore:
    """Hold a forecast without Large Model Support: bytes of device memory in all, predicted seconds of one run."""

    nbytes: int
    seconds: float


@dataclass(frozen=True)
class Least:
    """Hold the least device memory for which there is a plan.

    nbytes: the total. fixed: the part of it that is resident or workspace. step: name of the step that needs most at
    once, "" if nothing is managed. blobs: (name, bytes) of the managed buffers of that step, largest first.
    """

    nbytes: int
    fixed: int
    step: str
    blobs: tuple[tuple[str, int], ...]

    @property
    def layer(self) -> str:
        """Return the layer of the step."""
        return layer_of(self.step)


def in_core(planner: ProgramPlanner, sequenced: Sequenced, plan: Plan | None) -> InCore:
    """Forecast a net without Large Model Support. plan: of the program; it only packs buffers."""
    return InCore(device_bytes(planner.runtime, plan), sum(planner.costs_of(sequenced, {}, {}).steps))


def device_bytes(runtime: Runtime, plan: Plan | None) -> int:
    """Return the bytes of device memory that a run takes: resident buffers, workspace and the plan's arena."""
    return _fixed(runtime) + (plan.arena_bytes if plan is not None else 0)


def _fixed(runtime: Runtime) -> int:
    return runtime.resident_bytes + runtime.workspace_bytes


def on_demand(planner: ProgramPlanner, sequenced: Sequenced) -> Plan | None:
    """Plan on-demand copies: far faster than a search for the best plan, and fits where any plan does.

    Returns None if there is nothing to plan. Raises OutOfDeviceMemory if no plan fits.
    """
    chosen = _smaller_form(planner, sequenced)
    return _plan(planner.runtime, chosen, planner.runtime.limit()) if chosen.buffers else None


def _plan(runtime: Runtime, chosen: PlanRequest, limit: int | None) -> Plan:
    buffers, uncopied = chosen.buffers, chosen.requested.buffers
    page = runtime.page(buffers)
    return make_plan(chosen.program, buffers, limit=limit, ahead=0, uncopied=uncopied, page=page)


def _smaller_form(planner: ProgramPlanner, sequenced: Sequenced) -> PlanRequest:
    """Return the form of a program whose largest step needs less: with whole backward steps, or with split ones."""
    forms = replace(sequenced, split_backward=None), with_least_memory(sequenced)
    return min(map(planner.as_requested, forms), key=_largest_step)


def _largest_step(form: PlanRequest) -> int:
    return max(step_needs(form.program, form.buffers), default=0)


def least(planner: ProgramPlanner, sequenced: Sequenced) -> Least:
    """Find the least device memory for a plan of the program, its net as built.

    With another budget, `-lms_frac` and automatic mode may make other buffers resident.
    """
    chosen, fixed = _smaller_form(planner, sequenced), _fixed(planner.runtime)
    managed = chosen.buffers
    if not managed:
        return Least(fixed, fixed, "", ())
    need = step_needs(chosen.program, managed)
    worst = chosen.program.steps[need.index(max(need))]
    parts = sorted({a.buffer for a in worst.accesses if a.buffer in managed}, key=lambda b: -managed[b].nbytes)
    arena = _least_arena(max(need), lambda limit: _plan(planner.runtime, chosen, limit).arena_bytes)
    return Least(fixed + arena, fixed, worst.name, tuple((managed[b].name, managed[b].nbytes) for b in parts))


def needed(planner: ProgramPlanner, sequenced: Sequenced) -> int:
    """Return a lower bound of `least` in bytes, much faster: resident buffers, workspace and the largest step."""
    return _fixed(planner.runtime) + _largest_step(_smaller_form(planner, sequenced))


def _least_arena(need: int, arena_of: Callable[[int | None], int]) -> int:
    """Return the smallest arena, within `CLOSE`, into which on-demand copies can be packed.

    Args:
        need: bytes that the largest step needs.
        arena_of: returns the bytes of the arena of a plan under a limit; raises OutOfDeviceMemory if there is none.
    """
    low, high = need, arena_of(None)
    while high - low > CLOSE * need:
        middle = (low + high) // 2 // ALIGN * ALIGN
        if middle <= low:
            break
        try:
            high = arena_of(middle)
        except OutOfDeviceMemory:
            low = middle
    return high
