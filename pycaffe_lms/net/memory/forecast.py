"""Predicts device bytes and seconds of a net without running it. Allocates no arrays.

`in_core` answers for a net without LMS, `fits` for on-demand copies, `least` and `needed` for the smallest budget.
See also: `../../lms/cost/timing.py` (seconds of a plan), `Net.plan_only` (makes a plan).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING

from ...backend.device import ALIGN
from ...errors import OutOfDeviceMemory
from ...lms.layout.inplace_reuse import step_needs
from ...lms.plan.plan import Plan
from ...lms.planner.host_slots import with_host_slots
from ...lms.planner.lookahead import make_plan
from ...lms.program import Buffer, Program, layer_of
from ...lms.remat.candidates import RematCandidates
from ...lms.remat.requested import CannotRemat, remat_order
from ..program.lms_requests import cannot_remat
from ..program.programs import HostedStep, Sequenced
from ..program.split_backward import with_least_memory
from .fit import fitted

if TYPE_CHECKING:
    from ..net import Net

Tail = Callable[[], Sequence[HostedStep]] | None  # makes the updates of an iteration; None: a test forward
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


def in_core(net: Net, tail: Tail) -> InCore:
    """Forecast a net without Large Model Support. Raises OutOfDeviceMemory if it does not fit its device."""
    plan = net.plan_only(tail)
    costs = net.memory.planner.costs_of(net.program_of(tail), {}, {})
    return InCore(device_bytes(net, plan), sum(costs.steps))


def device_bytes(net: Net, plan: Plan | None) -> int:
    """Return the bytes of device memory that a run takes: resident buffers, workspace and the plan's arena."""
    return net.runtime.resident_bytes + net.runtime.workspace_bytes + (plan.arena_bytes if plan is not None else 0)


def fits(net: Net, tail: Tail) -> Plan | None:
    """Plan on-demand copies, with layers in as few micro-batches as fit. Far faster than a search for the best plan.

    Returns None if there is nothing to plan. Raises OutOfDeviceMemory if no plan fits.
    """
    if not net.runtime.active:
        net.plan_only(tail)
        return None
    return fitted(net, lambda: _on_demand(net, tail), updates=tail)


def _on_demand(net: Net, tail: Tail) -> Plan | None:
    if net.runtime.idle:
        return net.plan_only(tail)
    net.runtime.check_resident()
    program, managed, uncopied = _managed(net, tail)
    if not managed:
        return None
    page = net.runtime.page(managed)
    return make_plan(program, managed, limit=net.runtime.limit(), ahead=0, uncopied=uncopied, page=page)


def host_bytes(net: Net, plan: Plan) -> int:
    """Return the bytes of host memory that the host slots of a plan take; the plan has none assigned yet."""
    return with_host_slots(plan, net.runtime.slab.segment).host_bytes


def _managed(net: Net, tail: Tail) -> tuple[Program, Mapping[int, Buffer], frozenset[int]]:
    """Choose the program whose largest step needs less: with whole backward steps, or with split ones.

    Returns:
        The program with the rematerialization that layers request, the managed buffers that it touches, and the ids of
        those that are never copied.
    """
    made = net.program_of(tail)
    whole, other = _with_requests(net, replace(made, split_backward=None)), _with_requests(net, with_least_memory(made))
    return other if max(step_needs(*other[:2]), default=0) < max(step_needs(*whole[:2]), default=0) else whole


def _with_requests(net: Net, sequenced: Sequenced) -> tuple[Program, Mapping[int, Buffer], frozenset[int]]:
    request = net.memory.planner.request_of(sequenced)
    program, requested = request.program, request.requested
    if requested.steps:
        try:
            program = remat_order(program, RematCandidates(program, request.remats, request.scratch), requested).program
        except CannotRemat as failure:
            raise cannot_remat(net.run_graph, sequenced.steps, failure) from None
    return program, request.buffers, requested.buffers


def least(net: Net, tail: Tail) -> Least:
    """Find the least device memory for a plan of the net as built.

    With another budget, `-lms_frac` and automatic mode may make other buffers resident.
    """
    program, managed, uncopied = _managed(net, tail)
    fixed = net.runtime.resident_bytes + net.runtime.workspace_bytes
    if not managed:
        return Least(fixed, fixed, "", ())
    sizes, need = {b: buffer.nbytes for b, buffer in managed.items()}, step_needs(program, managed)
    worst = program.steps[need.index(max(need))]
    parts = sorted({a.buffer for a in worst.accesses if a.buffer in managed}, key=lambda b: -sizes[b])
    plan = partial(make_plan, program, managed, ahead=0, uncopied=uncopied, page=net.runtime.page(managed))
    arena = _least_arena(max(need), lambda limit: plan(limit=limit).arena_bytes)
    return Least(fixed + arena, fixed, worst.name, tuple((managed[b].name, sizes[b]) for b in parts))


def needed(net: Net, tail: Tail) -> int:
    """Return a lower bound of `least` in bytes, much faster: resident buffers, workspace and the largest step."""
    program, managed, _ = _managed(net, tail)
    fixed = net.runtime.resident_bytes + net.runtime.workspace_bytes
    return fixed + max(step_needs(program, managed), default=0)


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
