"""Choose checkpoints: values to keep or copy when most others are rematerialized. Pure.

Later forward steps need only the values that are alive between two steps. Where these take few bytes, keeping them
splits a chain of rematerialized steps in two: no step before the checkpoint runs again for a value after it.
`planner/evict.py` then prefers to keep or copy checkpoints.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

from ..cost.machine import Costs
from .candidates import RematCandidates


@dataclass(frozen=True)
class CheckpointCandidates:
    """Find checkpoints of one program. sizes: bytes of its managed buffers."""

    can: RematCandidates
    costs: Costs
    sizes: Mapping[int, int]

    @cached_property
    def _cuts(self) -> list[tuple[float, int, tuple[int, ...]]]:
        """Return, after every rematerializable step: (seconds of these steps so far, bytes alive, buffers alive)."""
        steps = sorted(self.can.valid_until)
        maker: dict[int, int] = {}
        last: dict[int, int] = {}  # buffer -> the last of these steps that reads it
        for s in steps:
            last.update((b, s) for b in self.can.reads[s] if b in maker)
            for b in self.can.makes[s]:
                if b in self.sizes:
                    maker.setdefault(b, s)
        found, alive, seconds = [], set(), 0.0
        for s in steps:
            seconds += self.costs.again[s]
            alive |= {b for b in self.can.makes[s] if maker.get(b) == s}
            alive = {b for b in alive if last.get(b, -1) > s}
            found.append((seconds, sum(self.sizes[b] for b in alive), tuple(sorted(alive))))
        return found

    def checkpoints(self, parts: int) -> frozenset[int]:
        """Return the values alive at the narrowest point, the last if equal, of each of `parts` parts of equal time."""
        cuts = [cut for cut in self._cuts if cut[2]]
        total = self._cuts[-1][0] if self._cuts else 0.0
        chosen: set[int] = set()
        for i in range(parts):
            part = [cut for cut in cuts if total * i / parts < cut[0] <= total * (i + 1) / parts]
            if part:
                chosen.update(min(reversed(part), key=lambda cut: cut[1])[2])
        return frozenset(chosen)
