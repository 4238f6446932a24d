"""Estimates the device memory that the first run of a program takes. Takes none itself."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from ...lms.plan.plan import Plan
from ...lms.program import Buffer, Program
from ...memory.synced import SyncedMemory


def needed_at_first_run(
    program: Program,
    plan: Plan | None,
    buffers: Mapping[int, Buffer],
    memories: Mapping[int, SyncedMemory],
    shared: Collection[int],
) -> tuple[list[Buffer], int]:
    """Find the buffers for which the first run of a program must take device memory outside the arena.

    A lower bound: buffers that host steps access are left out, because their device memory may be released in between.

    Args:
        plan: its buffers lie in the arena.
        shared: ids of buffers in the shared workspace.

    Returns:
        The buffers, in creation order, and the bytes that planned buffers release first.
    """
    planned = plan.buffers if plan is not None else {}
    on_device = {a.buffer for step in program.steps if not step.host for a in step.accesses}
    on_host = {a.buffer for step in program.steps if step.host for a in step.accesses}
    own = sorted(on_device - on_host - planned.keys() - set(shared))
    missing = {id(memories[b]): buffers[b] for b in own if memories[b].span is None}
    released = {id(memories[b]): memories[b].own_bytes for b in planned}
    return list(missing.values()), sum(released.values())
