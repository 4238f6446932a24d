"""Bytes held by step, places in the order of their offsets, and gaps between them, counted with arrays: planners ask
for many. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from .paging import Paging

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


@dataclass(frozen=True, slots=True)
class Lifetime:
    """`size` bytes (already aligned) from step `start` to step `end`, both included."""

    start: int
    end: int
    size: int


@dataclass(frozen=True)
class Packing:
    offsets: tuple[int, ...]
    peak: int  # bytes the arena needs
    max_live: int  # most bytes alive at once: no packing can do better
    paging: Paging | None = None  # offsets are those of addresses with pages behind them: see `paging.py`

    @property
    def loss(self) -> float:
        """Share of the peak that packing wastes."""
        return 0.0 if self.max_live == 0 else self.peak / self.max_live - 1.0


def max_live_bytes(lifetimes: Sequence[Lifetime]) -> int:
    """Most bytes alive in any one step."""
    change: dict[int, int] = {}
    for life in lifetimes:
        change[life.start] = change.get(life.start, 0) + life.size
        change[life.end + 1] = change.get(life.end + 1, 0) - life.size
    live = peak = 0
    for step in sorted(change):
        live += change[step]
        peak = max(peak, live)
    return peak


@dataclass(frozen=True, slots=True)
class Stretch:
    """A lifetime that must be, within one that is wished for: memory a little earlier, and a little longer."""

    must: Lifetime
    start: int
    end: int


_ORDERS = (
    lambda life: (-life.size, life.start),
    lambda life: (life.start, -life.size),
    lambda life: (life.start - life.end, -life.size),
    lambda life: (-life.size * (life.end - life.start + 1), life.start),
    lambda life: (-life.size, life.start - life.end),
    lambda life: (-life.end, life.start),
)


def pack(lifetimes: Sequence[Lifetime], limit: int | None = None) -> Packing:
    """Choose offsets so that no two residences that are alive together overlap. limit: a peak that is good enough."""
    live = max_live_bytes(lifetimes)
    best: tuple[list[int], int] | None = None
    for key in _ORDERS:
        order = sorted(range(len(lifetimes)), key=lambda i, k=key: (k(lifetimes[i]), i))
        tried = _place(lifetimes, order)
        if best is None or tried[1] < best[1]:
            best = tried
        if best[1] <= (live if limit is None else max(live, limit)):
            break
    return Packing(tuple(best[0]), best[1], live)


def _place(lifetimes: Sequence[Lifetime], order: Sequence[int]) -> tuple[list[int], int]:
    offsets, placed, peak = [0] * len(lifetimes), Placed(len(lifetimes)), 0
    for i in order:
        life = lifetimes[i]
        offsets[i] = placed.gap(life.start, life.end, life.size)
        peak = max(peak, offsets[i] + life.size)
        placed.add(offsets[i], offsets[i] + life.size, life.start, life.end)
    return offsets, peak


MANY = 2000  # lifetimes: with more, one order is tried


def pack_segments(lifetimes: Sequence[Lifetime], segment: int) -> tuple[list[tuple[int, int]], list[int]]:
    """(segment, offset) of every lifetime, none across the end of a segment, and the bytes that the segments need: at
    most `segment` each, which is no less than the largest lifetime."""
    live, best = max_live_bytes(lifetimes), None
    for key in _ORDERS if len(lifetimes) <= MANY else _ORDERS[:1]:
        order = sorted(range(len(lifetimes)), key=lambda i, k=key: (k(lifetimes[i]), i))
        tried = _place_in_segments(lifetimes, order, segment)
        if best is None or sum(tried[1]) < sum(best[1]):
            best = tried
        if sum(best[1]) == live:
            break
    return best


def _place_in_segments(lifetimes: Sequence[Lifetime], order: Sequence[int], segment: int):
    places: list[tuple[int, int]] = [(0, 0)] * len(lifetimes)
    placed: list[Placed] = []
    peaks: list[int] = []
    for i in order:
        life, found = lifetimes[i], None
        for k, there in enumerate(placed):  # where the segment grows least, the first of them
            offset = there.gap(life.start, life.end, life.size, segment)
            if offset is not None:
                grows = max(0, offset + life.size - peaks[k])
                if found is None or grows < found[0]:
                    found = grows, k, offset
                if grows == 0:
                    break
        if found is None:
            placed.append(Placed(len(lifetimes)))
            peaks.append(0)
            found = life.size, len(placed) - 1, 0
        _, k, offset = found
        places[i] = k, offset
        peaks[k] = max(peaks[k], offset + life.size)
        placed[k].add(offset, offset + life.size, life.start, life.end)
    return places, peaks


SHARES = (1.0, 0.6, 0.3, 0.0)  # of what is wished for beyond what must be
TRIES = 5
LARGE = 40  # pieces of a memory


def pack_within(
    stretches: Sequence[Stretch], limit: int, ties: Mapping[int, int] | None = None
) -> tuple[list[Lifetime], Packing] | None:
    """Lifetimes as near to the wished ones as fit below `limit`, and their offsets; None: not found. ties: of stretches
    that must have one offset, each to the other.

    Two orders are tried: by bytes and time together; and the large ones by size first, for those that are alike then
    lie above each other without gaps. Those that found no place go first in the next try."""
    if max_live_bytes([s.must for s in stretches]) > limit:
        return None  # in any order
    area = [-s.must.size * (s.end - s.start + 1) for s in stretches]
    large = [-s.must.size if s.must.size * LARGE >= limit else 0 for s in stretches]
    for first in ([0] * len(stretches), large):
        order = sorted(range(len(stretches)), key=lambda i, f=first: (f[i], area[i], stretches[i].must.start, i))
        found = _tries(stretches, order, limit, ties or {})
        if found is not None:
            return found
    return None


def _tries(
    stretches: Sequence[Stretch], order: list[int], limit: int, ties: Mapping[int, int]
) -> tuple[list[Lifetime], Packing] | None:
    for _ in range(TRIES):
        lives, offsets, homeless = _place_within(stretches, order, limit, ties)
        if not homeless:
            peak = max((o + life.size for o, life in zip(offsets, lives, strict=True)), default=0)
            return lives, Packing(tuple(offsets), peak, max_live_bytes(lives))
        first = set(homeless)
        order = homeless + [i for i in order if i not in first]
    return None


def _place_within(stretches: Sequence[Stretch], order: Sequence[int], limit: int, ties: Mapping[int, int]):
    """(lifetimes, offsets, indices that found no place)."""
    lives = [s.must for s in stretches]
    offsets = [0] * len(stretches)
    homeless: list[int] = []
    placed = Placed(len(stretches))
    settled: set[int] = set()
    for i in order:
        if i in settled:
            continue
        must, other = stretches[i].must, ties.get(i)
        for share in SHARES if any(_slack(stretches[k]) for k in (i, other) if k is not None) else (0.0,):
            start, last = _part(stretches[i], share)
            also = None if other is None else _part(stretches[other], share)
            offset = placed.gap(start, last, must.size, limit, also)
            if offset is not None:
                for k, span in ((i, (start, last)), (other, also)):
                    if span is not None:
                        offsets[k], lives[k] = offset, Lifetime(*span, must.size)
                        placed.add(offset, offset + must.size, *span)
                break
        else:
            homeless += [i] if other is None else [i, other]
        settled.add(other)
    return lives, offsets, homeless


def _slack(stretch: Stretch) -> int:
    return stretch.must.start - stretch.start + stretch.end - stretch.must.end


def _part(stretch: Stretch, share: float) -> tuple[int, int]:
    """First and last step, with a share of what is wished for."""
    must = stretch.must
    return must.start - int((must.start - stretch.start) * share), must.end + int((stretch.end - must.end) * share)
