"""What the run before left in its place: values that need not be copied in again. See `Plan.carried_over`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING
from weakref import ref

from ...memory.exported_views import alive
from ...memory.states import State
from ..plan.plan import Plan

if TYPE_CHECKING:
    from ...backend.device import Span
    from ...memory.synced import SyncedMemory


class CarryOver:
    """What the last run of a plan left in the arena, of one runtime. Every run of a plan asks, forgets, and notes."""

    def __init__(self) -> None:
        self.forget()

    def forget(self) -> None:
        """Nothing is there any more."""
        self._plan: ref[Plan] | None = None
        self._arena: ref[Span] | None = None
        self._written: dict[int, int] = {}

    def take(self, plan: Plan, arena: Span, memories: Mapping[int, SyncedMemory]) -> frozenset[int]:
        """Return, at the start of a run, the buffers whose values the run before left. Then nothing is known."""
        known = self._written
        same = self._plan is not None and self._plan() is plan and self._arena() is arena
        self.forget()
        if not same:
            return frozenset()
        found = ((op.place.buffer, memories[op.place.buffer]) for op in plan.carried_over)
        return frozenset(b for b, memory in found if _untouched(memory) and known.get(b) == memory.written)

    def note(self, plan: Plan, arena: Span, memories: Mapping[int, SyncedMemory]) -> None:
        """At the end of a run."""
        self._plan, self._arena = ref(plan), ref(arena)
        found = ((op.place.buffer, memories[op.place.buffer]) for op in plan.carried_over)
        self._written = {b: memory.written for b, memory in found if _untouched(memory)}


def _untouched(memory: SyncedMemory) -> bool:
    """Whether the value is at home, and nobody has an array through which it might be written unseen."""
    at_home = memory.state is State.HEAD_AT_CPU and memory.span is None
    return at_home and not alive(memory.host_held) and not memory.touched_outside
