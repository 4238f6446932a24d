"""The numbers of a plan: what it copies, makes again and drops, and what it needs of memory. Pure; text is elsewhere.

See also: `report.py` (a plan as text), `counters.py` (what really ran), `page.py` (a plan as a page).
"""

from __future__ import annotations

from collections.abc import Iterable

from ..program import Mode
from .plan import OpKind, Plan


def plan_statistics(plan: Plan) -> dict:
    """Of one run of a plan; sizes in bytes of device memory (multiples of its alignment), ready for JSON.

    program; steps: those that run, replays included; steps_replayed; copies_in, copies_out (one in parts counts once),
    bytes_in, bytes_out; copies_in_parts: pieces of those that are made in several. A copy of what the run before left
    counts in copies_in, and not in bytes_in.
    seconds_predicted, stall_ms_predicted: of the run, and how much of it no step runs because of copies.
    rules: by which rules it was made. arena_bytes: device memory taken for managed buffers; used_bytes: up to where
    they lie in it; live_bytes: most that they need at once; packing_loss: used_bytes / live_bytes - 1; held_bytes: most
    of them on the device at once, in the order of issue. host_bytes: homes on the host; host_bytes_unshared: what they
    would take if no two values used one in turn.
    buffers: {"count", "bytes"} of managed: all that the plan places; copied: whose value is copied at least once;
    lossy: of those, which travel in 16 bits; dropped: whose value is given up once at least, because it is dead or will
    be made again; recomputed: whose value is made again; stay: that are on the device from their making to their end,
    neither copied nor made again.
    """
    ops = plan.ops
    copied = {op.place.buffer for op in ops if op.place is not None}
    dropped = {b for op in ops for b in op.drops}
    again = recomputed(plan)
    used = used_bytes(plan)
    return {
        "program": plan.program.name,
        "steps": len(plan.program.steps),
        "steps_replayed": plan.replayed,
        "copies_in": sum(op.kind is OpKind.IN and op.begins for op in ops),
        "copies_out": sum(op.kind is OpKind.OUT and op.begins for op in ops),
        "copies_in_parts": plan.parts,
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
            "lossy": _counted(plan, plan.halved),
            "dropped": _counted(plan, dropped),
            "recomputed": _counted(plan, again),
            "stay": _counted(plan, plan.buffers.keys() - copied - again),
        },
    }


def used_bytes(plan: Plan) -> int:
    """Where the last of the managed buffers ends in the arena; with pages: those that stand behind some."""
    if plan.paging is not None:
        return plan.paging.linear + plan.paging.page * len({p for pages in plan.paging.pages.values() for p in pages})
    places = [op.place for op in plan.ops if op.kind is OpKind.IN]
    places += [place for op in plan.ops for place in op.births]
    return max((place.offset + plan.buffers[place.buffer].nbytes for place in places), default=0)


def recomputed(plan: Plan) -> set[int]:
    """Managed buffers whose value a replay makes again; what layers use within a call is not counted."""
    return {
        a.buffer
        for (_, again), step in zip(plan.order, plan.program.steps, strict=True)
        if again
        for a in step.accesses
        if a.mode is not Mode.READ and a.buffer in plan.buffers and not plan.buffers[a.buffer].call_scratch
    }


def _bytes(plan: Plan, ids: Iterable[int]) -> int:
    return sum(plan.buffers[b].nbytes for b in ids)


def _counted(plan: Plan, ids: Iterable[int]) -> dict[str, int]:
    ids = list(ids)
    return {"count": len(ids), "bytes": _bytes(plan, ids)}
