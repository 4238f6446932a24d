"""Values that are worth keeping when most are made again: where the forward is narrow. Pure.

What is alive between two forward steps is all that later ones need. Where that is little, keeping it, on the device or
by a copy, cuts the chains of replays in two: nothing before it runs again for what comes behind it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

from ..cost.machine import Costs
from .candidates import RematCandidates


@dataclass(frozen=True)
class CheckpointCandidates:
    """can, costs: of a program. sizes: bytes of its managed buffers."""

    can: RematCandidates
    costs: Costs
    sizes: Mapping[int, int]

    @cached_property
    def _cuts(self) -> list[tuple[float, int, tuple[int, ...]]]:
        """Behind every step that can be replayed: (seconds of them so far, bytes alive, whose)."""
        steps = sorted(self.can.valid_until)
        maker: dict[int, int] = {}
        last: dict[int, int] = {}  # the last of the steps that reads it
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
        """What is alive at the narrowest place, the latest of them, of each of so many parts of equal time."""
        cuts = [cut for cut in self._cuts if cut[2]]
        total = self._cuts[-1][0] if self._cuts else 0.0
        chosen: set[int] = set()
        for i in range(parts):
            part = [cut for cut in cuts if total * i / parts < cut[0] <= total * (i + 1) / parts]
            if part:
                chosen.update(min(reversed(part), key=lambda cut: cut[1])[2])
        return frozenset(chosen)
