"""Predict the seconds by which copies delay steps, from the copies that the link has to do already.

Pure. `planner/evict.py` asks for prices while it follows a program; its times are seconds since the program began.
"""

from __future__ import annotations

from bisect import bisect_right, insort
from itertools import accumulate

from .machine import Costs

NEVER = 1 << 60


class LinkQueue:
    """Price copies by the seconds that the link cannot hide behind steps.

    Args:
        costs: seconds of steps, and the machine with the link.
    """

    def __init__(self, costs: Costs):
        self._machine = costs.machine
        self._out_free = 0.0
        self._back: list[tuple[float, float]] = []  # (time wanted, seconds) of copies in to come
        self._wanted: list[float] = []  # their times
        self._busy: list[float] = [0.0]  # seconds of the first k of them
        self.late = 0.0  # seconds by which booked copies out have delayed steps

    def price(self, nbytes: int, clean: bool, made: float, now: float, wanted: float) -> float:
        """Return the seconds of delay if a value of `nbytes` leaves the device now and is copied back in time.

        Args:
            clean: the host has the value already; no copy out is needed.
            made: time at which the value is complete.
            now: time at which its memory is needed.
            wanted: time of its next use.
        """
        m = self._machine
        out = 0.0
        if not clean:
            out = max(0.0, max(self._out_free, made) + m.copy_seconds(nbytes, True) - now - self.late)
        busy = self._busy[bisect_right(self._wanted, wanted)]
        return out + max(0.0, busy + m.copy_seconds(nbytes, False) - max(0.0, wanted - now))

    def book(self, nbytes: int, clean: bool, made: float, now: float, wanted: float) -> None:
        """Add the copies of a value that leaves the device; arguments as in `price`."""
        m = self._machine
        if not clean:
            self._out_free = max(self._out_free, made) + m.copy_seconds(nbytes, True)
            self.late += max(0.0, self._out_free - now - self.late)
        insort(self._back, (wanted, m.copy_seconds(nbytes, False)))
        self._add_up()

    def arrived(self, wanted: float, nbytes: int) -> None:
        """Remove the copy in of a value that is back on the device."""
        at = bisect_right(self._back, (wanted, self._machine.copy_seconds(nbytes, False))) - 1
        if at >= 0:
            self._back.pop(at)
            self._add_up()

    def _add_up(self) -> None:
        self._wanted = [wanted for wanted, _ in self._back]
        self._busy = list(accumulate((seconds for _, seconds in self._back), initial=0.0))
