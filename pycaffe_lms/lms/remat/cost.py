"""Price the copies that rematerializing a large value causes when it does not fit beside the gradients. Pure.

Gradients cannot be rematerialized. Where the gradients alive at one step and the chain that rematerializes a value do
not fit together, a gradient is copied out and back in, and steps wait for both copies. `RematCost.price` adds these
seconds to the price of dropping the value; `planner/evict.py` asks for it.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from ..cost.machine import Costs
from ..layout.inplace_reuse import possible
from ..program import Buffer, Mode
from ..rules import SEARCH, SearchBudget
from .candidates import RematCandidates

KEPT = 20_000  # entries of the cache of prices before it is emptied


@dataclass(frozen=True)
class RematCost:
    """Price rematerialization in a program (`can.program`). sizes: bytes of device memory of its managed buffers."""

    can: RematCandidates
    buffers: Mapping[int, Buffer]
    sizes: Mapping[int, int]
    costs: Costs
    search: SearchBudget = SEARCH
    _needs: dict[tuple[int, int, tuple[int, ...]], int] = field(default_factory=dict, repr=False)

    def large(self, b: int, limit: int) -> bool:
        """Tell whether buffer `b` is so large that `price` may not be zero. limit: bytes of the memory."""
        return self.sizes[b] * self.search.large_parts > limit

    def dwarfed(self, b: int, r: int, limit: int) -> bool:
        """Tell whether rematerializing step `r` needs a large value to recover the small buffer `b`."""
        most = self._largest[r]
        return self.sizes[b] * self.search.dwarf_factor < most and most * self.search.large_parts > limit

    def price(self, b: int, chain: Sequence[int], wanted: int, limit: int) -> float:
        """Return the seconds that steps wait for copies of a gradient that has to make room.

        Args:
            b: buffer to rematerialize.
            chain: steps that run again for it, in order.
            wanted: step before which they run.
            limit: bytes of the memory.
        """
        key = b, wanted, tuple(chain)
        if key not in self._needs:
            if len(self._needs) >= KEPT:
                self._needs.clear()
            self._needs[key] = self._need(b, chain, self._alive[wanted])
        short = self._needs[key] - limit
        if short <= 0:
            return 0.0
        evicted = min((self.sizes[x] for x in self._alive[wanted] if self.sizes[x] >= short), default=short)
        machine = self.costs.machine
        return machine.copy_seconds(evicted, True) + machine.copy_seconds(evicted, False)

    @cached_property
    def _largest(self) -> dict[int, int]:
        """Return rematerializable step -> bytes of the largest managed buffer that its rematerialization touches."""
        remats = self.can.remats.items()
        return {r: max((self.sizes.get(a.buffer, 0) for a in step.accesses), default=0) for r, step in remats}

    @cached_property
    def _alive(self) -> list[set[int]]:
        """Return, before every step, the managed buffers whose value is computed, read later, and cannot be
        rematerialized."""
        steps = self.can.program.steps
        found: list[set[int]] = [set() for _ in steps]
        since: dict[int, int] = {}
        last: dict[int, int] = {}

        def end(b: int) -> None:
            if b in since and b in last and since[b] not in self.can.valid_until:
                for alive in found[since[b] + 1 : last[b] + 1]:
                    alive.add(b)

        for s, step in enumerate(steps):
            for a in step.accesses:
                if a.buffer not in self.sizes:
                    continue
                if a.mode is not Mode.OVERWRITE:
                    last[a.buffer] = s
                if a.mode is not Mode.READ:
                    end(a.buffer)
                    last.pop(a.buffer, None)
                    since.pop(a.buffer, None)
                    if not step.host:
                        since[a.buffer] = s
        for b in list(since):
            end(b)
        return found

    def _need(self, b: int, chain: Sequence[int], beside: Collection[int]) -> int:
        """Return the most bytes on the device at once while `chain` rematerializes `b` beside the buffers `beside`.

        Inputs from outside the chain count from its start to their last reader."""
        steps = [self.can.remats[r] for r in chain]
        last = {a.buffer: i for i, step in enumerate(steps) for a in step.accesses if a.buffer in self.sizes}
        last |= dict.fromkeys([b, *(x for x in beside if x in last)], len(steps))
        written = {a.buffer for step in steps for a in step.accesses if a.mode is not Mode.READ}
        on_device = {x for x in last if x not in written} | set(beside)
        used = most = sum(self.sizes[x] for x in on_device)
        for i, step in enumerate(steps):
            new_buffers = {a.buffer for a in step.accesses if a.buffer in self.sizes} - on_device
            used += sum(self.sizes[x] for x in new_buffers)
            reused, pairs = 0, set[int]()
            for old, new in possible(step, self.buffers):
                if new in new_buffers and last[old] == i and not pairs & {old, new}:
                    reused += self.sizes[old]
                    pairs |= {old, new}
            most = max(most, used - reused)
            on_device |= new_buffers
            ended = {x for x in on_device if last.get(x) == i}
            used -= sum(self.sizes[x] for x in ended)
            on_device -= ended
        return most
