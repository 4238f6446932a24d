"""What copies cost that nothing hides: the link's queue out, and what is wanted back when. Pure."""

from __future__ import annotations

from bisect import bisect_right, insort
from itertools import accumulate

from .machine import Costs

NEVER = 1 << 60


class LinkQueue:
    """What copies cost that are not hidden."""

    def __init__(self, costs: Costs, times: list[float], turn: float):
        self._machine, self._times, self._turn = costs.machine, times, turn
        self._out_free = 0.0
        self._back: list[tuple[float, float]] = []  # (when wanted, seconds of its copy in)
        self._busy: list[float] = [0.0]  # seconds of the first k of them
        self.late = 0.0

    def price(self, nbytes: int, clean: bool, made: float, now: float, wanted: float) -> float:
        m = self._machine
        out = 0.0
        if not clean:
            out = max(0.0, max(self._out_free, made) + m.copy_seconds(nbytes, True) - now - self.late)
        busy, start = self._busy[bisect_right(self._back, (wanted, NEVER))], max(now, self._turn)
        return out + max(0.0, busy + m.copy_seconds(nbytes, False) - max(0.0, wanted - start))

    def book(self, nbytes: int, clean: bool, made: float, now: float, wanted: float) -> None:
        m = self._machine
        if not clean:
            self._out_free = max(self._out_free, made) + m.copy_seconds(nbytes, True)
            self.late += max(0.0, self._out_free - now - self.late)
        insort(self._back, (wanted, m.copy_seconds(nbytes, False)))
        self._busy = list(accumulate((seconds for _, seconds in self._back), initial=0.0))

    def arrived(self, wanted: float, nbytes: int) -> None:
        at = bisect_right(self._back, (wanted, self._machine.copy_seconds(nbytes, False))) - 1
        if at >= 0:
            self._back.pop(at)
            self._busy = list(accumulate((seconds for _, seconds in self._back), initial=0.0))
