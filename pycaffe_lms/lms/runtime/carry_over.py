"""Track carry-over: values that the last run of a plan left on the device, so that the next need not copy them in.

`Plan.carried_over` lists the candidates; `CarryOver.take` returns those that are still valid at the start of a run, and
`CarryOver.note` remembers them at its end. `planner/carry_over.py` plans for them.
"""

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
    """Remember the values that a runtime's last run left in the arena. Each run calls `take`, then `note`."""

    def __init__(self) -> None:
        self.forget()

    def forget(self) -> None:
        """Forget all values: the next run copies everything in."""
        self._plan: ref[Plan] | None = None
        self._arena: ref[Span] | None = None
        self._written: dict[int, int] = {}

    def take(self, plan: Plan, arena: Span, memories: Mapping[int, SyncedMemory]) -> frozenset[int]:
        """Return the buffers that are carried over into a run that starts now, and forget them."""
        known = self._written
        known_plan, known_arena = self._plan and self._plan(), self._arena and self._arena()
        same = known_plan is plan and known_arena is arena
        self.forget()
        if not same:
            return frozenset()
        found = ((op.placed.buffer, memories[op.placed.buffer]) for op in plan.carried_over)
        return frozenset(b for b, memory in found if _untouched(memory) and known.get(b) == memory.written)

    def note(self, plan: Plan, arena: Span, memories: Mapping[int, SyncedMemory]) -> None:
        """Remember, at the end of a run, the candidates that nothing can have changed."""
        self._plan, self._arena = ref(plan), ref(arena)
        found = ((op.placed.buffer, memories[op.placed.buffer]) for op in plan.carried_over)
        self._written = {b: memory.written for b, memory in found if _untouched(memory)}


def _untouched(memory: SyncedMemory) -> bool:
    """Return whether the value is on the host, and no exported view can change it unseen."""
    on_host = memory.state is State.HEAD_AT_CPU and memory.span is None
    return on_host and not alive(memory.host_held) and not memory.touched_outside
