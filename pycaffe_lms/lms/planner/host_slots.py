"""Homes on the host for values that live within a run: shared memory, used in turn. Pure.

A value that is copied out needs a home from its making to its last copy in. The home is held until the step that
first uses that copy: the step waits for it, and whose home begins later was made by that step or one behind it, so the
next value may have the home without waiting for anybody. `verify.py` proves it. What is there before a run, what
survives it, what the host touches, and what is copied in 16 bits keep homes of their own.

The memory comes in segments, as a copy must not cross from one block of page-locked memory into the next.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from ..layout.packing import Lifetime, pack_segments
from ..plan.plan import HostSlot, Op, OpKind, Plan
from ..program import Mode


def with_host_slots(plan: Plan, segment: int) -> Plan:
    """The plan with shared homes for the values that may have one, in segments of `segment` bytes, or as large as the
    largest of them."""
    lives = _lives(plan, _within(plan))
    if not lives:
        return plan
    begins = _begins(plan)
    stays = [Lifetime(begins[life[0]], _first_use(plan, life), plan.buffers[plan.ops[life[0]].place.buffer].nbytes)
             for life in lives]  # fmt: skip
    places, sizes = pack_segments(stays, max(segment, max(stay.size for stay in stays)))
    ops = list(plan.ops)
    for life, place in zip(lives, places, strict=True):
        for o in life:
            ops[o] = replace(ops[o], home=HostSlot(*place, last=o == life[-1]))
    return replace(plan, ops=tuple(ops), homes=tuple(sizes))


def _within(plan: Plan) -> set[int]:
    """Buffers that every run overwrites before it reads them, and nobody needs after it or on the host."""
    first: dict[int, Mode] = {}
    hosted: set[int] = set()
    for step in plan.program.steps:
        for a in step.accesses:
            first.setdefault(a.buffer, a.mode)
            if step.host:
                hosted.add(a.buffer)
    apart = hosted | plan.program.live_out | plan.halved  # those in 16 bits have homes of another size
    return {b for b, mode in first.items() if mode is Mode.OVERWRITE and b not in apart}


def _lives(plan: Plan, within: set[int]) -> list[list[int]]:
    """Copies of one value each, from the first out to the last in, by their ids."""
    lives: list[list[int]] = []
    current: dict[int, list[int]] = {}
    for op in plan.ops:
        for place in op.births:
            current.pop(place.buffer, None)
        if op.place is not None and op.place.buffer in within:
            if op.place.buffer not in current:
                current[op.place.buffer] = []
                lives.append(current[op.place.buffer])
            current[op.place.buffer].append(op.id)
    return lives


def _begins(plan: Plan) -> dict[int, int]:
    """Copy out -> from when on it may run, by ids: behind the step that made its value, also where it is issued later,
    for it waits for no more."""
    found: dict[int, int] = {}
    wrote: dict[int, int] = {}
    for op in plan.ops:
        if op.kind is OpKind.COMPUTE:
            wrote.update((a.buffer, op.id) for a in plan.program.steps[op.step].accesses if a.mode is not Mode.READ)
        elif op.kind is OpKind.OUT:
            maker = wrote[op.place.buffer]
            found[op.id] = op.id if plan.ops[maker].step == op.step else maker + 1
    return found


def _first_use(plan: Plan, life: Sequence[int]) -> int:
    """The id of the step that uses the last copy in."""
    buffer = plan.ops[life[-1]].place.buffer
    return next(op.id for op in plan.ops[life[-1] :] if op.kind is OpKind.COMPUTE and _uses(plan, op, buffer))


def _uses(plan: Plan, op: Op, buffer: int) -> bool:
    return any(a.buffer == buffer for a in plan.program.steps[op.step].accesses)
