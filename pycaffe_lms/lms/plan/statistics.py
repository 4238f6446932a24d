"""Compute the statistics of a plan: what it copies, rematerializes and drops, and the memory it needs. Pure.

See also `report/text.py` (a plan as text), `report/page.py` (a plan as a page) and `runtime/counters.py` (what ran).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from ..program import Mode
from .plan import OpKind, Plan


def plan_statistics(plan: Plan) -> dict[str, Any]:
    """Return the statistics of one run of a plan, ready for JSON. Sizes are bytes, aligned as on the device.

    Returns:
        program: its name.
        steps: steps that run, rematerialization included; steps_rematerialized: those that rematerialize.
        copies_in, copies_out: copies, one in parts counted once, carried-over values included.
        copies_in_parts: pieces of the copies that are made in parts.
        bytes_in, bytes_out: bytes copied, without carried-over values.
        seconds_predicted, stall_ms_predicted: time of the run, and how much of it steps wait for copies.
        rules: the rules by which it was made.
        arena_bytes: device memory allocated for managed buffers; used_bytes: how much of it the plan uses.
        live_bytes: most bytes needed at once; packing_loss: used_bytes / live_bytes - 1.
        held_bytes: most bytes of managed buffers on the device at once, in issue order.
        host_bytes: host memory for copies; host_bytes_unshared: the same without shared host slots.
        buffers: {"count", "bytes"} of the buffers that are
            managed: placed by the plan; copied: copied at least once; lossy: copied with compression, in 16 bits;
            dropped: dropped at least once, because they are dead or will be rematerialized; recomputed: rematerialized;
            stay: neither copied nor rematerialized.
    """
    ops = plan.ops
    copied = {op.place.buffer for op in ops if op.place is not None}
    dropped = {b for op in ops for b in op.drops}
    rematerialized = recomputed(plan)
    used = used_bytes(plan)
    return {
        "program": plan.program.name,
        "steps": len(plan.program.steps),
        "steps_rematerialized": plan.rematerialized,
        "copies_in": sum(op.kind is OpKind.IN and op.begins for op in ops),
        "copies_out": sum(op.kind is OpKind.OUT and op.begins for op in ops),
        "copies_in_parts": plan.copy_pieces,
        "bytes_in": plan.bytes_in,
        "bytes_out": plan.bytes_out,
        "seconds_predicted": plan.seconds,
        "stall_ms_predicted": 1e3 * plan.stall,
        "rules": plan.rules,
        "arena_bytes": plan.arena_bytes,
        "live_bytes": plan.live_bytes,
        "used_bytes": used,
        "packing_loss": used / plan.live_bytes - 1 if plan.live_bytes else 0.0,
        "held_bytes": plan.held_bytes,
        "host_bytes": plan.host_bytes,
        "host_bytes_unshared": plan.unshared_host_bytes,
        "buffers": {
            "managed": _counted(plan, plan.buffers),
            "copied": _counted(plan, copied),
            "lossy": _counted(plan, plan.compressed),
            "dropped": _counted(plan, dropped),
            "recomputed": _counted(plan, rematerialized),
            "stay": _counted(plan, plan.buffers.keys() - copied - rematerialized),
        },
    }


def used_bytes(plan: Plan) -> int:
    """Return the bytes of the arena up to the end of the last managed buffer; with paging, of the pages in use."""
    if plan.paging is not None:
        return plan.paging.linear + plan.paging.page * len({p for pages in plan.paging.pages.values() for p in pages})
    places = [op.placed for op in plan.ops if op.kind is OpKind.IN]
    places += [place for op in plan.ops for place in op.births]
    return max((place.offset + plan.buffers[place.buffer].nbytes for place in places), default=0)


def recomputed(plan: Plan) -> set[int]:
    """Return the managed buffers that are rematerialized, scratch of a single layer call excluded."""
    return {
        a.buffer
        for (_, again), step in zip(plan.order, plan.program.steps, strict=True)
        if again
        for a in step.accesses
        if a.mode is not Mode.READ and a.buffer in plan.buffers and not plan.buffers[a.buffer].call_scratch
    }


def _counted(plan: Plan, ids: Iterable[int]) -> dict[str, int]:
    """Return the number of these buffers and their bytes."""
    sizes = [plan.buffers[b].nbytes for b in ids]
    return {"count": len(sizes), "bytes": sum(sizes)}
