"""Predict the seconds by which copies delay steps, from the copies that the link has to do already.

Pure. `planner/evict.py` asks for prices while it follows a program; its times are seconds since the program began.
"""

from __future__ import annotations

from bisect import bisect_right
from itertools import accumulate

NEVER = 1 << 60


class LinkQueue:
    """Price copies by the seconds that the link cannot hide behind steps.

    Args:
        marginal: a copy in costs at most its own seconds; else it costs all by which it is late, also those of the
            copies that it waits for.
    """

    def __init__(self, marginal: bool = False) -> None:
        self._marginal = marginal
        self._out_free = 0.0
        self._back: list[tuple[float, float]] = []  # (time wanted, seconds) of copies in to come, in order
        self._wanted: list[float] = []  # their times
        self._seconds: list[float] = []  # and their seconds
        self._busy: list[float] = [0.0]  # seconds of the first k of them
        self.late = 0.0  # seconds by which booked copies out have delayed steps

    def price(self, out: float | None, back: float, made: float, now: float, wanted: float) -> float:
        """Return the seconds of delay if a value leaves the device now and is copied back in time.

        Args:
            out: seconds of the copy out; None: the host has the value already.
            back: seconds of the copy in.
            made: time at which the value is complete, as `wanted` without `late`.
            now: time at which its memory is needed.
            wanted: time of its next use.
        """
        price, late, free = 0.0, self.late, self._out_free  # conditions, not max(): planning waits for this most
        if out is not None:
            made += late
            price = (free if free > made else made) + out - now - late
            if price < 0.0:
                price = 0.0
        wanted += late
        left = wanted - now
        delay = self._busy[bisect_right(self._wanted, wanted)] + back - (left if left > 0.0 else 0.0)
        if delay <= 0.0:
            return price
        return price + (back if self._marginal and back < delay else delay)

    def book(self, out: float | None, back: float, made: float, now: float, wanted: float) -> None:
        """Add the copies of a value that leaves the device; arguments as in `price`."""
        if out is not None:
            self._out_free = max(self._out_free, made + self.late) + out
            self.late += max(0.0, self._out_free - now - self.late)
        at = bisect_right(self._back, (wanted, back))
        self._back.insert(at, (wanted, back))
        self._wanted.insert(at, wanted)
        self._seconds.insert(at, back)
        self._add_up(at)

    def arrived(self, wanted: float, back: float) -> None:
        """Remove the copy in of a value that is back on the device."""
        at = bisect_right(self._back, (wanted, back)) - 1
        if at >= 0:
            del self._back[at], self._wanted[at], self._seconds[at]
            self._add_up(at)

    def _add_up(self, at: int) -> None:
        """Count the seconds again from copy `at` on."""
        self._busy[at:] = accumulate(self._seconds[at:], initial=self._busy[at])
