"""Bytes held by step, places in the order of their offsets, and gaps between them, counted with arrays: planners ask
for many. Pure."""

from __future__ import annotations

import numpy as np

NEVER = 1 << 62


class Load:
    """Bytes that are held, by step."""

    def __init__(self, steps: int):
        self._held = np.zeros(steps, np.int64)

    def add(self, nbytes: int, first: int, last: int) -> None:
        """Hold so much from step `first` to step `last`, both included."""
        self._held[first : last + 1] += nbytes

    def most(self, first: int, last: int) -> int:
        """The most that is held at any of these steps, 0 where there are none."""
        return int(self._held[first : last + 1].max(initial=0))


class Placed:
    """What is placed, by offset."""

    def __init__(self, most: int):
        self._rows = np.zeros((4, most), np.int64)  # from, to, first step, last step
        self._count = 0

    def add(self, lo: int, hi: int, start: int, last: int) -> None:
        n, rows = self._count, self._rows
        at = int(np.searchsorted(rows[0, :n], lo, side="right"))
        rows[:, at + 1 : n + 1] = rows[:, at:n].copy()
        rows[:, at] = lo, hi, start, last
        self._count += 1

    def gap(
        self, start: int, last: int, size: int, limit: int = NEVER, also: tuple[int, int] | None = None
    ) -> int | None:
        """The tightest gap below `limit` that is free from step `start` to `last`; None: there is none. also: first and
        last step of another time that it must be free."""
        lo, hi, first, end = self._rows[:, : self._count]
        there = (end >= start) & (first <= last)
        if also is not None:
            there |= (end >= also[0]) & (first <= also[1])
        lo, hi = lo[there], hi[there]
        ends = np.maximum.accumulate(np.concatenate(([0], hi)))
        gaps = lo - ends[:-1]
        gaps[gaps < size] = NEVER
        at = int(gaps.argmin()) if len(gaps) else 0
        if len(gaps) and gaps[at] < NEVER:
            return int(ends[at])
        return int(ends[-1]) if ends[-1] + size <= limit else None
