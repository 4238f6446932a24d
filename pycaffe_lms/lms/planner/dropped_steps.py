"""Keep the steps whose values are dropped during an eviction pass, in groups that depend on each other. Pure.

Values of steps in one group would have to be alive together again, so `evict.py` prices a further step of a group by
the seconds that rematerializing all of it takes. Groups are joined, never cut: a union-find.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping


class DroppedSteps:
    """Hold dropped steps.

    Args:
        seconds: of rematerializing each step.

    Attributes:
        wanted: dropped step -> the step before which it is rematerialized at the latest.
    """

    def __init__(self, seconds: Mapping[int, float]):
        self._seconds = seconds
        self.wanted: dict[int, int] = {}
        self._parent: dict[int, int] = {}  # of every step that was ever dropped; a root is its own
        self._weight: dict[int, float] = {}  # root -> seconds of the dropped steps of its group

    def add(self, step: int, wanted: int) -> None:
        """Add a step that is rematerialized before step `wanted`."""
        self.wanted[step] = min(wanted, self.wanted.get(step, wanted))
        if step not in self._parent:
            self._parent[step], self._weight[step] = step, 0.0
        self._weight[self._root(step)] += self._seconds[step]

    def remove(self, step: int) -> bool:
        """Remove a step that ran again; return whether it was dropped."""
        if self.wanted.pop(step, None) is None:
            return False
        self._weight[self._root(step)] -= self._seconds[step]
        return True

    def join(self, a: int, b: int) -> None:
        """Unite the groups of two steps, both of which were dropped."""
        if a in self._parent and b in self._parent:
            a, b = self._root(a), self._root(b)
            if a != b:
                self._parent[b] = a
                self._weight[a] += self._weight[b]

    def group_seconds(self, steps: Iterable[int]) -> float:
        """Return the seconds of all dropped steps in the groups of `steps`."""
        return sum(self._weight[root] for root in {self._root(s) for s in steps if s in self._parent})

    def _root(self, step: int) -> int:
        """Return the root of a step's group."""
        parent = self._parent
        while parent[step] != step:
            parent[step] = parent[parent[step]]
            step = parent[step]
        return step
