"""Assign host slots, shared memory used in turn, to values that live within a run. Pure.

A value that is copied out needs a host slot from its making to its last copy in. The slot is held until the step that
first uses that copy. That step waits for the copy, and the next value in the slot is made by that step or a later one,
so the copy out of the next value needs no further wait; `../plan/verify.py` proves it. A buffer keeps host memory of
its own if its value exists before a run or survives it, if the host touches it, or if it is copied compressed.

Slots lie in segments, as a copy must not cross from one block of page-locked memory into the next.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from ..layout.packing import Lifetime, pack_segments
from ..plan.plan import HostSlot, OpKind, Plan
from ..program import Mode, first_modes
from ..rules import SEARCH, SearchBudget


def with_host_slots(plan: Plan, segment: int, search: SearchBudget = SEARCH) -> Plan:
    """Return the plan with host slots for all values that may share them.

    segment: bytes of a segment; the bytes of the largest value if that is more."""
    values = _values(plan, _within(plan))
    if not values:
        return plan
    begins = _begins(plan)
    sizes = [plan.buffers[plan.ops[copies[0]].placed.buffer].nbytes for copies in values]
    lifetimes = [
        Lifetime(begins[copies[0]], _first_use(plan, copies), size) for copies, size in zip(values, sizes, strict=True)
    ]
    places, segments = pack_segments(lifetimes, max(segment, *sizes), search)
    ops = list(plan.ops)
    for copies, place in zip(values, places, strict=True):
        for o in copies:
            ops[o] = replace(ops[o], host_slot=HostSlot(*place, last=o == copies[-1]))
    return replace(plan, ops=tuple(ops), host_segments=tuple(segments))


def _within(plan: Plan) -> set[int]:
    """Return buffers that every run overwrites before reading, and that are needed neither after it nor on the host."""
    steps = plan.program.steps
    hosted = {a.buffer for step in steps if step.host for a in step.accesses}
    excluded = hosted | plan.program.live_out | plan.compressed  # compressed values take other bytes on the host
    return {b for b, mode in first_modes(steps).items() if mode is Mode.OVERWRITE and b not in excluded}


def _values(plan: Plan, within: set[int]) -> list[list[int]]:
    """Return, for each value, the ids of its copies, from the copy out to the last copy in."""
    values: list[list[int]] = []
    current: dict[int, list[int]] = {}
    for op in plan.ops:
        for place in op.births:
            current.pop(place.buffer, None)
        if op.place is not None and op.place.buffer in within:
            if op.place.buffer not in current:
                current[op.place.buffer] = []
                values.append(current[op.place.buffer])
            current[op.place.buffer].append(op.id)
    return values


def _begins(plan: Plan) -> dict[int, int]:
    """Return, by id of a copy out, the id from which its host slot is needed.

    That is right after the step that made the value, even if the copy is issued later: it waits for nothing else."""
    found: dict[int, int] = {}
    wrote: dict[int, int] = {}
    for op in plan.ops:
        if op.kind is OpKind.COMPUTE:
            wrote.update((a.buffer, op.id) for a in plan.program.steps[op.step].accesses if a.mode is not Mode.READ)
        elif op.kind is OpKind.OUT:
            maker = wrote[op.placed.buffer]
            found[op.id] = op.id if plan.ops[maker].step == op.step else maker + 1
    return found


def _first_use(plan: Plan, copies: Sequence[int]) -> int:
    """Return the id of the operation that first uses the last copy in of a value."""
    buffer, steps = plan.ops[copies[-1]].placed.buffer, plan.program.steps
    later = (op for op in plan.ops[copies[-1] :] if op.kind is OpKind.COMPUTE)
    return next(op.id for op in later if any(a.buffer == buffer for a in steps[op.step].accesses))
