"""Device memory that a program takes when it runs for the first time. Takes none itself."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from ...lms.plan.plan import Plan
from ...lms.program import Buffer, Program
from ...memory.synced import SyncedMemory


def lacking(
    program: Program, plan: Plan | None, buffers: Mapping[int, Buffer], memories: Mapping[int, SyncedMemory],
    shared: Collection[int],
) -> tuple[list[Buffer], int]:  # fmt: skip
    """Buffers that will take memory of their own, in the order of their creation, and bytes that others of the program
    give back before. shared: buffers in the common workspace. Never more than it is: what steps on the host read in
    between, and so may give back, is left out."""
    lent = plan.buffers if plan is not None else {}
    here = {a.buffer for step in program.steps if not step.host for a in step.accesses}
    there = {a.buffer for step in program.steps if step.host for a in step.accesses}
    own = sorted(here - there - lent.keys() - set(shared))
    missing = {id(memories[b]): buffers[b] for b in own if memories[b].span is None}
    back = {id(memories[b]): memories[b].own_bytes for b in lent}
    return list(missing.values()), sum(back.values())
