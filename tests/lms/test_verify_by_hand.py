"""Plans written by hand: right as they stand, and refused for the one reason that a change gives."""

from __future__ import annotations

import dataclasses
import re

import pytest

from pycaffe_lms.errors import PlanError
from pycaffe_lms.lms.plan.plan import COMPUTE, COPY_IN, COPY_OUT, HostSlot, Op, OpKind, Placement, Plan
from pycaffe_lms.lms.plan.verify import verify
from pycaffe_lms.lms.program import Access, Buffer, Mode, Program, Step

pytestmark = pytest.mark.pure

READ, WRITE = Mode.READ, Mode.OVERWRITE
STREAM = {OpKind.COMPUTE: COMPUTE, OpKind.IN: COPY_IN, OpKind.OUT: COPY_OUT}
A, B = (Placement(b, 1024 * b) for b in (0, 1))


def plan_of(steps: list[Step], ops: list[Op], held: int, host_segments=()) -> Plan:
    """A plan for buffers a and b of 1 KB, side by side; operations are numbered here."""
    ops = tuple(dataclasses.replace(op, id=i, stream=STREAM[op.kind]) for i, op in enumerate(ops))
    buffers = {b: Buffer(b, "ab"[b], 1024) for b in (0, 1)}
    order = tuple((s, False) for s in range(len(steps)))
    return Plan(
        Program("hand", tuple(steps), frozenset()),
        buffers,
        ops,
        2048,
        held,
        held,
        0,
        0,
        order,
        host_segments=host_segments,
    )


def compute(step: int, *waits: int, **more) -> Op:
    return Op(0, OpKind.COMPUTE, 0, step, waits, **more)


def copy(kind: OpKind, place: Placement, *waits: int, **more) -> Op:
    return Op(0, kind, 0, 0, waits, place, **more)


def refused(plan: Plan, why: str) -> None:
    with pytest.raises(PlanError, match=re.escape(why)):
        verify(plan)


def test_a_buffer_does_not_leave_while_a_part_of_it_is_copied():
    """The host has the newest value, so nothing else is wrong about a step that frees it after half a copy."""
    steps = [Step("make b", (Access(1, WRITE),)), Step("use b", (Access(1, READ),))]
    parts = [copy(OpKind.IN, A, part=(start, 512)) for start in (0, 512)]
    make, use = compute(0, births=(B,)), compute(1, 2, drops=(1,), frees=(0,))
    verify(plan_of(steps, [make, *parts, use], 2048))
    refused(plan_of(steps, [make, parts[0], dataclasses.replace(use, waits=(1,))], 2048), 'only a part of "a"')


@pytest.mark.parametrize("kind", [OpKind.IN, OpKind.OUT])
def test_a_copy_in_parts_is_completed(kind):
    """A copy in of what a step uses, and a copy out of what a step made: without the second part, the plan is refused
    for that, not only because the buffer stays on the device."""
    steps = [Step("make a", (Access(0, WRITE),))] if kind is OpKind.OUT else []
    make, at = [compute(0, births=(A,))][: len(steps)], len(steps)  # at: the index of the first part
    parts = [copy(kind, A, *range(at), part=(start, 512)) for start in (0, 512)]
    use = compute(at, at + 1, drops=(0,))
    verify(plan_of([*steps, Step("use a", (Access(0, READ),))], [*make, *parts, use], 1024))
    refused(plan_of(steps, [*make, parts[0]], 1024), "parts of copies are missing at the end: a")


def test_host_slots_do_not_overlap():
    """By half: no two begin at one byte, and events order all that touch those bytes."""
    steps = [Step("make", (Access(0, WRITE), Access(1, WRITE))), Step("use", (Access(0, READ), Access(1, READ)))]

    def plan(second: int) -> Plan:
        out = [
            copy(OpKind.OUT, place, 0, release=True, host_slot=HostSlot(0, at)) for place, at in ((A, 0), (B, second))
        ]
        back = [copy(OpKind.IN, place, 1, 2, host_slot=HostSlot(0, at, True)) for place, at in ((A, 0), (B, second))]
        make, use = compute(0, births=(A, B)), compute(1, 3, 4, drops=(0, 1))
        return plan_of(steps, [make, *out, *back, use], 2048, (2048,))

    verify(plan(1024))
    refused(plan(512), 'the host slot is still that of "a"')


def test_a_host_copy_that_is_old_is_not_fetched():
    """Not even where the step behind it overwrites what was fetched."""
    steps = [Step(name, (Access(0, WRITE),)) for name in ("make", "make again")]
    make = compute(0, births=(A,), drops=(0,))
    again = compute(1, births=(A,), drops=(0,))
    verify(plan_of(steps, [make, again], 1024))
    fetched = [make, copy(OpKind.IN, A, 0), dataclasses.replace(again, births=(), waits=(1,))]
    refused(plan_of(steps, fetched, 1024), "the host copy is not the newest value")
