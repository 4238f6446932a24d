"""What a net would need and take on a device, without running it: bytes and predicted seconds. No array is made.

See also: `lms/cost/timing.py`, which says how long a plan takes; `Net.plan_only`, which makes one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from ...backend.device import ALIGN
from ...errors import OutOfDeviceMemory
from ...lms.layout.inplace_reuse import inplace_reuses, needed_bytes
from ...lms.plan.plan import Plan
from ...lms.planner.host_slots import with_host_slots
from ...lms.planner.lookahead import make_plan
from ...lms.program import Buffer, Program, layer_of
from ...lms.remat.candidates import RematCandidates
from ...lms.remat.requested import CannotRemat, remat_order
from ..program.costs import program_costs
from ..program.lms_requests import cannot_remat, remat_requests_of
from ..program.programs import HostedStep, Sequenced
from ..program.split_backward import tightest
from .fit import fitted

if TYPE_CHECKING:
    from ..net import Net

Tail = Callable[[], Sequence[HostedStep]] | None  # makes the updates of an iteration; None: a test forward
CLOSE = 0.01  # of the least memory: how exactly it is found


@dataclass(frozen=True)
class InCore:
    """Without Large Model Support. nbytes: of device memory, all in all. seconds: predicted, of one run."""

    nbytes: int
    seconds: float


@dataclass(frozen=True)
class Least:
    """The least device memory for which there is a plan. nbytes: all in all. fixed: of these, what stays for good and
    the workspace. step: the one that needs most at once, or "" where nothing is managed. blobs: (name, bytes) of what
    it touches, largest first."""

    nbytes: int
    fixed: int
    step: str
    blobs: tuple[tuple[str, int], ...]

    @property
    def layer(self) -> str:
        """Whose step it is."""
        return layer_of(self.step)


def in_core(net: Net, tail: Tail) -> InCore:
    """Of a net without Large Model Support on a device with enough memory. Raises OutOfDeviceMemory without enough."""
    plan = net.plan_only(tail)
    memory, runtime = net.memory, net.runtime
    sizes = {b: m.nbytes for b, m in memory.memories.items()}
    costs = program_costs(net.run_graph, net.program_of(tail).steps, {}, memory.buffers, sizes, runtime.machine, {})
    return InCore(device_bytes(net, plan), sum(costs.steps))


def device_bytes(net: Net, plan: Plan | None) -> int:
    """What a run takes from the device, all in all."""
    return net.runtime.resident_bytes + net.runtime.workspace_bytes + (plan.arena_bytes if plan is not None else 0)


def fits(net: Net, tail: Tail) -> Plan | None:
    """A plan that fetches on demand, with layers in as few parts as fit; None where there is nothing to plan. Raises
    OutOfDeviceMemory where no plan fits; takes far less time than to find the best."""
    if not net.runtime.active:
        net.plan_only(tail)
        return None
    return fitted(net, lambda: _on_demand(net, tail), updates=tail)


def _on_demand(net: Net, tail: Tail) -> Plan | None:
    if net.runtime.rests:
        return net.plan_only(tail)
    net.runtime.check_resident()
    program, managed, uncopied = _managed(net, tail)
    if not managed:
        return None
    page = net.runtime.page(managed)
    return make_plan(program, managed, limit=net.runtime.limit(), ahead=0, uncopied=uncopied, page=page)


def host_bytes(net: Net, plan: Plan) -> int:
    """What a plan without homes takes of the host's memory."""
    return with_host_slots(plan, net.runtime.slab.segment).host_bytes


def _managed(net: Net, tail: Tail) -> tuple[Program, dict[int, Buffer], frozenset[int]]:
    """What is to be planned, with what layers ask to be made again in it; the buffers that it touches and LMS manages;
    those that are never copied. Of the programs that may be planned, the one whose largest step needs less."""
    made = net.program_of(tail)
    whole, other = _asked(net, replace(made, separate=None)), _asked(net, tightest(made))
    return other if max(_needs(*other[:2]), default=0) < max(_needs(*whole[:2]), default=0) else whole


def _asked(net: Net, sequenced: Sequenced) -> tuple[Program, dict[int, Buffer], frozenset[int]]:
    memory = net.memory
    program, replays = sequenced.program, memory.replays_of(sequenced)
    remat_requests = remat_requests_of(net.run_graph, sequenced, replays, memory.call_scratch)
    if remat_requests.steps:
        can = RematCandidates(program, {s: step.step for s, step in replays.items()}, memory.call_scratch)
        try:
            program = remat_order(program, can, remat_requests).program
        except CannotRemat as failure:
            raise cannot_remat(net.run_graph, sequenced.steps, failure) from None
    ids = {a.buffer for step in program.steps for a in step.accesses}
    managed = {b: memory.buffers[b] for b in sorted(ids) if memory.memories[b].managed}
    return program, memory.halved(sequenced, managed), remat_requests.buffers


def least(net: Net, tail: Tail) -> Least:
    """Of the net as it was built: with another budget, `-lms_frac` and the automatic mode may let others stay."""
    program, managed, uncopied = _managed(net, tail)
    fixed = net.runtime.resident_bytes + net.runtime.workspace_bytes
    if not managed:
        return Least(fixed, fixed, "", ())
    sizes, need = {b: buffer.nbytes for b, buffer in managed.items()}, _needs(program, managed)
    worst = program.steps[need.index(max(need))]
    parts = sorted({a.buffer for a in worst.accesses if a.buffer in managed}, key=lambda b: -sizes[b])
    arena = _least_arena(program, managed, max(need), {"uncopied": uncopied, "page": net.runtime.page(managed)})
    return Least(fixed + arena, fixed, worst.name, tuple((managed[b].name, sizes[b]) for b in parts))


def needed(net: Net, tail: Tail) -> int:
    """Bytes of device memory without which there is no plan: what stays for good, and the largest step. Takes far less
    time than `least`, which is never less."""
    program, managed, _ = _managed(net, tail)
    fixed = net.runtime.resident_bytes + net.runtime.workspace_bytes
    return fixed + max(_needs(program, managed), default=0)


def _needs(program: Program, managed: Mapping[int, Buffer]) -> list[int]:
    sizes, pairs = {b: buffer.nbytes for b, buffer in managed.items()}, inplace_reuses(program, managed)
    return [needed_bytes(program, s, sizes, pairs) for s in range(len(program.steps))]


def _least_arena(program: Program, buffers: Mapping[int, Buffer], need: int, options: dict) -> int:
    """The smallest limit, but for `CLOSE`, that on-demand fetching can be packed in. need: of the largest step."""
    low, high = need, make_plan(program, buffers, limit=None, ahead=0, **options).arena_bytes
    while high - low > CLOSE * need:
        middle = (low + high) // 2 // ALIGN * ALIGN
        if middle <= low:
            break
        try:
            high = make_plan(program, buffers, limit=middle, ahead=0, **options).arena_bytes
        except OutOfDeviceMemory:
            low = middle
    return high
