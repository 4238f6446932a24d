"""Who has memory of a device: for errors where there is not enough, which name the net, the layer and the others.

A runtime's tenants are the memories of its nets (`net.memory.NetMemory`); the other runtimes of a device are other nets
and solvers. Nothing lives longer for being known here.
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
    from ..plan.plan import Plan
    from .runtime import Runtime

_MOST = 4  # others that a message names
_LET_GO = "let go of nets and solvers that are done with (in Python: del net)"
_RAISE = "raise -lms_budget, or lower batch_size"
_RUNTIMES: WeakKeyDictionary[Device, WeakSet[Runtime]] = WeakKeyDictionary()


class Memory(Protocol):
    """A buffer. own_bytes: of device memory that it took from the pool."""

    own_bytes: int


class MemoryOwner(Protocol):
    """A net's memory. name: the net's."""

    name: str
    memories: Mapping[int, Memory]

    def resident_listing(self, *, own: bool = False) -> list[tuple[str, int]]:
        """(layer, bytes) of what stays on the device for good, in creation order. own: not what is another net's."""

    def place(self, error: OutOfDeviceMemory, layer: str) -> OutOfDeviceMemory:
        """The error, at a layer of this net's file."""


class MemoryOwners:
    """The nets of one runtime, in the order of their creation."""

    def __init__(self, runtime: Runtime):
        self._runtime, self._known = ref(runtime), list[ReferenceType[MemoryOwner]]()
        _RUNTIMES.setdefault(runtime.device, WeakSet()).add(runtime)

    def join(self, tenant: MemoryOwner) -> None:
        """A net's memory was made."""
        self._known = [*(known for known in self._known if known() is not None), ref(tenant)]

    def leave(self, tenant: MemoryOwner) -> None:
        """A net's memory is replaced."""
        self._known = [known for known in self._known if known() is not tenant]

    def __iter__(self) -> Iterator[MemoryOwner]:
        return (tenant for known in self._known if (tenant := known()) is not None)

    def __str__(self) -> str:
        """Their names, each once."""
        return ", ".join(dict.fromkeys(map(called, self)))

    def held(self) -> int:
        """Bytes of the device that they have now."""
        own = {id(memory): memory.own_bytes for tenant in self for memory in tenant.memories.values()}
        return self._runtime().held + sum(own.values())

    def others(self) -> str:
        """ "; others hold ...", the largest by name; nothing where nobody else holds anything."""
        runtime = self._runtime()
        total = runtime.device.in_use() - self.held()
        if total <= 0:
            return ""
        neighbours = [other.memory_owners for other in _RUNTIMES[runtime.device] if other is not runtime]
        named = sorted(((n.held(), str(n)) for n in neighbours), reverse=True)[:_MOST]
        listed = ", ".join(f"{names} {human_bytes(held)}" for held, names in named if held and names)
        return f"; others hold {human_bytes(total)}" + (f": {listed}" if listed else "")


def called(tenant: MemoryOwner) -> str:
    """A net, in a message."""
    return f'net "{tenant.name}"' if tenant.name else "a net without a name"


def refuse_residents(runtime: Runtime) -> None:
    """Refuse before the first iteration what cannot fit because of what stays for good. Raises OutOfDeviceMemory, at
    the layer where memory ends."""
    workspace, capacity = runtime.workspace_bytes, runtime.device.capacity()
    needed = runtime.resident_bytes + workspace
    if needed <= capacity:
        return
    listing = [(tenant, *entry) for tenant in runtime.memory_owners for entry in tenant.resident_listing(own=True)]
    ends = _where_it_ends([nbytes for *_, nbytes in listing], capacity - workspace)
    tenant, layer, size = listing[ends] if ends is not None else (None, "", workspace)
    who, beside, mine = "the net", "", needed
    if tenant is not None and any(other is not tenant for other in runtime.memory_owners):
        mine = workspace + sum(nbytes for owner, _, nbytes in listing if owner is tenant)
        who, beside = called(tenant), f", the solver's other nets {human_bytes(needed - mine)}"
    fix = "train it with Large Model Support: -lms 1000; or lower batch_size, or raise -lms_budget"
    if runtime.config.enabled:
        fix = "lower -lms (the threshold in KB) or -lms_frac so that fewer buffers stay, or raise -lms_budget"
    error = OutOfDeviceMemory(
        f"{who} needs {human_bytes(mine)} of device memory for good"
        f"{'' if runtime.config.enabled else ' without Large Model Support'} (workspace {human_bytes(workspace)})"
        f"{beside}, {human_bytes(capacity)} are there; memory ends at "
        f"{'this layer' if layer else 'the workspace'}'s {human_bytes(size)}{runtime.memory_owners.others()}",
        needed=needed,
        free=capacity,
        fix=fix,
    )
    raise tenant.place(error, layer) if tenant is not None else error


def refuse_oom(runtime: Runtime, tenant: MemoryOwner, wanted: Sequence[tuple[str, int]], back: int) -> None:
    """Refuse a program before its first step, where what others hold leaves too little for what it is to take.

    wanted: (layer, bytes) in the order of creation; "": of no layer. back: bytes that it gives back
    first. Raises OutOfDeviceMemory, at the layer where memory ends."""
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
        f"{called(tenant)} needs {human_bytes(more)} more of device memory, {human_bytes(max(0, free))} of "
        f"{human_bytes(device.capacity())} are free; memory ends at "
        f"{'this layer' if layer else 'the workspace'}'s {human_bytes(size)}{_shares(runtime)}",
        needed=more,
        free=free,
        fix=_fix(runtime),
    )
    raise tenant.place(error, layer) if layer else error


def collect(device: Device) -> None:
    """Nets that are gone, but lie in a cycle of references, give their memory back."""
    gc.collect()
    device.synchronize()  # what is queued may be the last that uses it
    device.reclaim()


def prepare(runtime: Runtime, tenant: MemoryOwner, plan: Plan) -> None:
    """Take the memory of a plan of this net. Raises OutOfDeviceMemory, at the plan's largest step."""
    try:
        runtime.prepare(plan, tenant.memories)
        return
    except OutOfDeviceMemory:
        collect(runtime.device)
    try:
        runtime.prepare(plan, tenant.memories)
    except OutOfDeviceMemory as error:
        error.message = (
            f"{called(tenant)} needs {human_bytes(plan.arena_bytes)} of device memory for what comes and goes, most of "
            f"it at this layer: {error.message}"
        )
        raise tenant.place(error, layer_of(plan.largest_step.name)) from None


def explain(runtime: Runtime, error: OutOfDeviceMemory) -> None:
    """Add who holds what, and what to do, where the device said just that it has no more."""
    if error.fix is None:
        error.message += _shares(runtime)
        error.fix = _fix(runtime)


def _shares(runtime: Runtime) -> str:
    return (
        f"; {runtime.memory_owners} holds {human_bytes(runtime.memory_owners.held())}{runtime.memory_owners.others()}"
    )


def _fix(runtime: Runtime) -> str:
    ways = [_LET_GO] if runtime.memory_owners.others() else []
    ways += [] if runtime.asked.enabled else ["use Large Model Support: -lms 1000"]
    return "; or ".join([*ways, _RAISE, *([IN_PARTS] if runtime.rests else [])])


def _where_it_ends(sizes: Iterable[int], room: int) -> int | None:
    """Index of the first size with which they are more than `room`; None: they fit."""
    for k, size in enumerate(sizes):
        room -= size
        if room < 0:
            return k
    return None
