"""Define the input and output records of an eviction pass: its rules, its constraints and the evictions it chose.

Pure. `planner/evict.py` runs the pass, `planner/search.py` varies the rules.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field


class DoesNotFit(Exception):
    """Signal that the program cannot run within the memory limit under these rules."""


@dataclass(frozen=True)
class Rules:
    """Set how an eviction pass chooses what leaves the device and how it comes back.

    Attributes:
        copies: allow copying values that could also be rematerialized.
        remats: allow rematerialization.
        chain: weight, in the price of a rematerialized step, of the seconds of the rematerialized steps linked to it.
        density: forward segments per hundred rematerializable steps; the values alive at the narrowest point of each
            segment are checkpoints, preferably kept or copied: see `remat/checkpoints.py`.
        room: share of the memory limit that the pass may fill; the rest is left for early prefetches.
        excess: weight of bytes freed beyond the shortfall.
        dear: (buffer, True to rematerialize or False to copy) -> seconds added to its price.
    """

    copies: bool = True
    remats: bool = True
    chain: float = 0.5
    density: float = 0.0
    room: float = 1.0
    excess: float = 1.0
    dear: Mapping[tuple[int, bool], float] = field(default_factory=dict)

    def __str__(self) -> str:
        """Return the rules in words, as plan files and reports have them."""
        if not self.remats:
            return "copies"
        more = f", checkpoints {self.density:g}" if self.density else ""
        more += ", prices found by trying" if self.dear else ""
        return f"{'copies and remats' if self.copies else 'remats where they can be'}, chain {self.chain:g}{more}"


@dataclass(frozen=True)
class Constraints:
    """Fix what an eviction pass may not change.

    Attributes:
        uncopied: buffers that are never copied.
        again: steps of the program that rematerialize values -> the forward step that they repeat.
    """

    uncopied: Collection[int] = ()
    again: Mapping[int, int] = field(default_factory=dict)


@dataclass
class Evictions:
    """Collect the result of an eviction pass.

    Attributes:
        order: (step, whether it rematerializes) in the order of execution.
        left: (buffer, position in `order` of its last use) of live ranges that end before the value's next use.
        stall: predicted seconds by which copies are late.
        evicted: number of evictions.
    """

    order: list[tuple[int, bool]] = field(default_factory=list)
    left: set[tuple[int, int]] = field(default_factory=set)
    stall: float = 0.0
    evicted: int = 0
