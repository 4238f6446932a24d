"""Raise out-of-memory errors that name the net, the layer and the other memory owners of the device.

A runtime's owners are the memories of its nets (`net/memory/net_memory.py`); a device's other runtimes belong to other
nets and solvers. All references are weak. `refuse_residents` and `refuse_oom` check before the first step, `prepare`
allocates, and `explain` completes errors that the device raised.
"""

from __future__ import annotations

import gc
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Protocol
from weakref import ReferenceType, WeakKeyDictionary, WeakSet, ref

from ...errors import OutOfDeviceMemory, human_bytes
from ..planner.lookahead import IN_PARTS
from ..program import layer_of

if TYPE_CHECKING:
    from ...backend.device import Device
    from ...memory.synced import SyncedMemory
    from ..plan.plan import Plan
    from .runtime import Runtime

_MOST_NAMED = 4  # other owners that a message names
_FREE_OTHERS = "free nets and solvers that are no longer needed (in Python: del net)"
WITH_LMS = (  # `pycaffe-lms train` names settings instead, which it tried
    "use Large Model Support (`pycaffe-lms plan` says which settings fit), lower batch_size, or raise -lms_budget"
)
_RAISE = "raise -lms_budget, or lower batch_size"
_RUNTIMES: WeakKeyDictionary[Device, WeakSet[Runtime]] = WeakKeyDictionary()


class MemoryOwner(Protocol):
    """Describe a net's memory."""

    @property
    def name(self) -> str:
        """Return the net's name."""

    @property
    def memories(self) -> Mapping[int, SyncedMemory]:
        """Return the memory of each buffer."""

    def resident_listing(self, *, own: bool = False) -> list[tuple[str, int]]:
        """Return (layer, bytes) of resident buffers in creation order. own: without those that another net owns."""

    def place(self, error: OutOfDeviceMemory, layer: str) -> OutOfDeviceMemory:
        """Return the error, located at a layer of this net's file."""


class MemoryOwners:
    """Hold the memory owners (nets) of one runtime in the order of their creation."""

    def __init__(self, runtime: Runtime):
        self._runtime, self._known = ref(runtime), list[ReferenceType[MemoryOwner]]()
        _RUNTIMES.setdefault(runtime.device, WeakSet()).add(runtime)

    def join(self, owner: MemoryOwner) -> None:
        """Add a net's memory."""
        self._known = [*(known for known in self._known if known() is not None), ref(owner)]

    def leave(self, owner: MemoryOwner) -> None:
        """Remove a net's memory, which is about to be replaced."""
        self._known = [known for known in self._known if known() is not owner]

    def __iter__(self) -> Iterator[MemoryOwner]:
        return (owner for known in self._known if (owner := known()) is not None)

    def __str__(self) -> str:
        """Return the nets' names, each once."""
        return ", ".join(dict.fromkeys(map(called, self)))

    @property
    def _owner(self) -> Runtime:
        runtime = self._runtime()
        assert runtime is not None, "the runtime holds this object"
        return runtime

    def held(self) -> int:
        """Return the device bytes that the runtime and its nets have now."""
        own = {id(memory): memory.own_bytes for owner in self for memory in owner.memories.values()}
        return self._owner.held + sum(own.values())

    def others(self) -> str:
        """Return "; others hold ..." with the largest by name, or "" if nothing else is in use."""
        runtime = self._owner
        total = runtime.device.in_use() - self.held()
        if total <= 0:
            return ""
        neighbours = [other.memory_owners for other in _RUNTIMES[runtime.device] if other is not runtime]
        named = sorted(((n.held(), str(n)) for n in neighbours), reverse=True)[:_MOST_NAMED]
        listed = ", ".join(f"{names} {human_bytes(held)}" for held, names in named if held and names)
        return f"; others hold {human_bytes(total)}" + (f": {listed}" if listed else "")


def called(owner: MemoryOwner) -> str:
    """Return how messages call a net."""
    return f'net "{owner.name}"' if owner.name else "a net without a name"


def refuse_residents(runtime: Runtime) -> None:
    """Raise OutOfDeviceMemory if resident buffers and the workspace do not fit, at the first layer that does not."""
    workspace, capacity = runtime.workspace_bytes, runtime.device.capacity()
    needed = runtime.resident_bytes + workspace
    if needed <= capacity:
        return
    listing = [(owner, *entry) for owner in runtime.memory_owners for entry in owner.resident_listing(own=True)]
    ends = _where_it_ends([nbytes for *_, nbytes in listing], capacity - workspace)
    owner, layer, size = listing[ends] if ends is not None else (None, "", workspace)
    name, beside, mine = "the net", "", needed
    if owner is not None and any(other is not owner for other in runtime.memory_owners):
        mine = workspace + sum(nbytes for other, _, nbytes in listing if other is owner)
        name, beside = called(owner), f", the solver's other nets {human_bytes(needed - mine)}"
    fix = WITH_LMS
    if runtime.config.auto:
        fix = "raise -lms_budget; or try -lms 1, which manages the small buffers too that auto leaves on the device"
    elif runtime.config.enabled:
        fix = "lower -lms (the threshold in KB) or -lms_frac so that fewer buffers stay, or raise -lms_budget"
    error = OutOfDeviceMemory(
        f"{name} needs {human_bytes(mine)} of device memory all the time"
        f"{'' if runtime.config.enabled else ' without Large Model Support'} (workspace {human_bytes(workspace)})"
        f"{beside}, {human_bytes(capacity)} are there; memory ends at "
        f"{'this layer' if layer else 'the workspace'}'s {human_bytes(size)}{runtime.memory_owners.others()}",
        needed=needed,
        free=capacity,
        fix=fix,
    )
    raise owner.place(error, layer) if owner is not None else error


def refuse_oom(runtime: Runtime, owner: MemoryOwner, wanted: Sequence[tuple[str, int]], back: int) -> None:
    """Check before a program's first step that the device has enough free memory for it.

    Args:
        wanted: (layer, bytes) to allocate, in the order of creation; layer "": of no layer.
        back: bytes that are freed first.

    Raises:
        OutOfDeviceMemory: other owners leave too little; located at the first layer that does not fit.
    """
    device, more = runtime.device, sum(nbytes for _, nbytes in wanted)
    if not more or more <= device.capacity() - device.in_use() + back:
        return
    collect(device)
    free = device.capacity() - device.in_use()
    ends = _where_it_ends([nbytes for _, nbytes in wanted], free + back)
    if ends is None:
        return
    layer, size = wanted[ends]
    error = OutOfDeviceMemory(
        f"{called(owner)} needs {human_bytes(more)} more of device memory, {human_bytes(max(0, free))} of "
        f"{human_bytes(device.capacity())} are free; memory ends at "
        f"{'this layer' if layer else 'the workspace'}'s {human_bytes(size)}{_shares(runtime)}",
        needed=more,
        free=free,
        fix=_fix(runtime),
    )
    raise owner.place(error, layer) if layer else error


def collect(device: Device) -> None:
    """Free the memory of deleted nets that are in reference cycles."""
    gc.collect()
    device.synchronize()  # queued work may still use it
    device.reclaim()


def prepare(runtime: Runtime, owner: MemoryOwner, plan: Plan) -> None:
    """Allocate the memory of a net's plan. Raise OutOfDeviceMemory, located at the plan's largest step."""
    try:
        runtime.prepare(plan, owner.memories)
        return
    except OutOfDeviceMemory:
        collect(runtime.device)
    try:
        runtime.prepare(plan, owner.memories)
    except OutOfDeviceMemory as error:
        error.message = (
            f"{called(owner)} needs {human_bytes(plan.arena_bytes)} of device memory for buffers that use it in turn, "
            f"most of it at this layer: {error.message}"
        )
        raise owner.place(error, layer_of(plan.largest_step.name)) from None


def explain(runtime: Runtime, error: OutOfDeviceMemory) -> None:
    """Add the owners' shares and a fix to an out-of-memory error that has no fix yet."""
    if error.fix is None:
        error.message += _shares(runtime)
        error.fix = _fix(runtime)


def _shares(runtime: Runtime) -> str:
    return (
        f"; {runtime.memory_owners} holds {human_bytes(runtime.memory_owners.held())}{runtime.memory_owners.others()}"
    )


def _fix(runtime: Runtime) -> str:
    ways = [_FREE_OTHERS] if runtime.memory_owners.others() else []
    ways += [] if runtime.asked.enabled else ["use Large Model Support, if `pycaffe-lms plan` says that it fits"]
    return "; or ".join([*ways, _RAISE, *([IN_PARTS] if runtime.idle else [])])


def _where_it_ends(sizes: Iterable[int], left: int) -> int | None:
    """Return the index of the first size at which the running sum exceeds `left` bytes; None if all fit."""
    for k, size in enumerate(sizes):
        left -= size
        if left < 0:
            return k
    return None
