"""The statistics of a runtime, as a dict that JSON can hold."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .runtime import Runtime


def statistics(runtime: Runtime) -> dict:
    """What Large Model Support has done so far and needs, ready for JSON; sizes in bytes, zero without a device:

    enabled; lossy: in which form copies lose digits ("fp16", "bf16", or "" for exact ones); saturated: values cut to
    the largest of that form so far; budget_bytes: what may be used of the device; in_use_bytes: what is taken of it;
    resident_bytes: what stays there for good; workspace_bytes: what layers use in turn; arena_bytes: what managed
    buffers use in turn; held_bytes: what they hold of it now; host_pinned_bytes, host_pinned_segments: page-locked
    memory taken for plans, and in how many blocks (a buffer that had a home on the host before, such as a filled
    weight, keeps that); host_shared_bytes: of these, what values use in turn that live within a run.
        total, and for every program total and last_run: runs, bytes_in, bytes_out, copies_in, copies_out and
        steps_replayed as they were counted since the start or `stats.reset()`, held_peak_bytes as it was seen, and
        seconds_predicted and stall_ms_predicted, which come from the plans.
        programs: by name ("train", "test"; nets with programs of one name count together), beside these: plan, see
        `plan_statistics`; measured: of the last iteration that was recorded, see `MeasuredRun.described`, or None.
    """
    device, on_host = runtime.device, runtime.device.is_host
    return {
        "enabled": runtime.active,
        "lossy": "" if runtime.halves is None else runtime.config.compress,
        "saturated": 0 if runtime.halves is None else runtime.halves.saturated(),
        "device": device.describe(),
        "budget_bytes": 0 if on_host else device.capacity(),
        "in_use_bytes": 0 if on_host else device.in_use(),
        "resident_bytes": runtime.resident_bytes,
        "workspace_bytes": runtime.workspace_bytes,
        "arena_bytes": runtime.arena.nbytes,
        "held_bytes": runtime.stats.held,
        "host_pinned_bytes": 0 if on_host else runtime.slab.nbytes,
        "host_pinned_segments": 0 if on_host else runtime.slab.segments,
        "host_shared_bytes": 0 if on_host else runtime.slab.shared_bytes,
        **runtime.stats.described(),
    }
