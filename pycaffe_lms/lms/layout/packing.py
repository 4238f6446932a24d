"""Pack lifetimes into one contiguous memory: choose offsets so that buffers that are alive together do not overlap.

Pure. `pack` packs fixed lifetimes, `pack_segments` packs them into several segments, `pack_within` packs lifetimes that
may be lengthened. `Load` and `Placed` are the array-based counters that they and the planners share. For memory in
pages see `layout/paging.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from ..rules import SEARCH, SearchBudget

if TYPE_CHECKING:
    from .paging import Paging

NEVER = 1 << 62


class Load:
    """Count the bytes in use at every step."""

    def __init__(self, steps: int):
        self._held = np.zeros(steps, np.int64)

    def add(self, nbytes: int, first: int, last: int) -> None:
        """Add `nbytes` at steps `first` to `last`, both included."""
        self._held[first : last + 1] += nbytes

    def most(self, first: int, last: int) -> int:
        """Return the most bytes in use at any step from `first` to `last`; 0 for an empty range."""
        return int(self._held[first : last + 1].max(initial=0))


class Placed:
    """Keep the blocks that are placed, in order of offset. most: how many blocks it can keep."""

    def __init__(self, most: int):
        self._rows = np.zeros((4, most), np.int64)  # first byte, end byte, first step, last step
        self._count = 0

    def add(self, lo: int, hi: int, start: int, last: int) -> None:
        """Place a block at bytes [lo, hi) from step `start` to step `last`, both included."""
        n, rows = self._count, self._rows
        at = int(np.searchsorted(rows[0, :n], lo, side="right"))
        rows[:, at + 1 : n + 1] = rows[:, at:n].copy()
        rows[:, at] = lo, hi, start, last
        self._count += 1

    def gap(
        self, start: int, last: int, size: int, limit: int = NEVER, also: tuple[int, int] | None = None
    ) -> int | None:
        """Return the offset of the smallest gap of at least `size` bytes that is free from step `start` to `last`.

        Args:
            limit: end of the memory in bytes; it bounds only the space above all blocks.
            also: first and last step of a second span in which the gap must be free.

        Returns:
            The offset in bytes, or None without such a gap.
        """
        lo, hi, first, end = self._rows[:, : self._count]
        overlaps = (end >= start) & (first <= last)
        if also is not None:
            overlaps |= (end >= also[0]) & (first <= also[1])
        near = overlaps.nonzero()[0]
        ends = np.zeros(len(near) + 1, np.int64)
        np.maximum.accumulate(hi.take(near), out=ends[1:])
        gaps = lo.take(near) - ends[:-1]
        enough = (gaps >= size).nonzero()[0]
        if len(enough):
            return int(ends[enough[gaps.take(enough).argmin()]])
        top = int(ends[-1])
        return top if top + size <= limit else None


@dataclass(frozen=True, slots=True)
class Lifetime:
    """Describe a use of `size` bytes (aligned already) from step `start` to step `end`, both included."""

    start: int
    end: int
    size: int


@dataclass(frozen=True)
class Packing:
    """Hold the offset of every lifetime, in bytes."""

    offsets: tuple[int, ...]
    peak: int  # bytes of memory needed
    max_live: int  # most bytes alive at once, a lower bound of `peak`
    paging: Paging | None = None  # the pages behind offsets: see `layout/paging.py`; None: the memory is contiguous

    @property
    def loss(self) -> float:
        """Return the bytes lost by packing as a fraction of `max_live`."""
        return 0.0 if self.max_live == 0 else self.peak / self.max_live - 1.0


def max_live_bytes(lifetimes: Sequence[Lifetime]) -> int:
    """Return the most bytes alive at any one step."""
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
    """Describe a required lifetime (`must`) and the longer one wanted, from step `start` to step `end`."""

    must: Lifetime
    start: int
    end: int


_ORDERS: tuple[Callable[[Lifetime], tuple[int, int]], ...] = (
    lambda life: (-life.size, life.start),
    lambda life: (life.start, -life.size),
    lambda life: (life.start - life.end, -life.size),
    lambda life: (-life.size * (life.end - life.start + 1), life.start),
    lambda life: (-life.size, life.start - life.end),
    lambda life: (-life.end, life.start),
)


def pack(lifetimes: Sequence[Lifetime], limit: int | None = None) -> Packing:
    """Choose offsets so that lifetimes that are alive together do not overlap. limit: bytes of a good enough peak."""
    live = max_live_bytes(lifetimes)
    enough = live if limit is None else max(live, limit)
    best: tuple[list[int], int] = [], NEVER
    for key in _ORDERS:
        best = min(best, _place(lifetimes, _sorted(lifetimes, key)), key=lambda tried: tried[1])
        if best[1] <= enough:
            break
    return Packing(tuple(best[0]), best[1], live)


def _sorted(lifetimes: Sequence[Lifetime], key: Callable[[Lifetime], tuple[int, int]]) -> list[int]:
    """Return the indices of the lifetimes in this order, equal ones by index."""
    return sorted(range(len(lifetimes)), key=lambda i: (key(lifetimes[i]), i))


def _place(lifetimes: Sequence[Lifetime], order: Sequence[int]) -> tuple[list[int], int]:
    """Return (offsets, peak) of placing lifetimes one by one, in `order`, each in its smallest gap."""
    offsets, placed, peak = [0] * len(lifetimes), Placed(len(lifetimes)), 0
    for i in order:
        life = lifetimes[i]
        offset = placed.gap(life.start, life.end, life.size)
        assert offset is not None  # without a limit there is always space above
        offsets[i] = offset
        peak = max(peak, offsets[i] + life.size)
        placed.add(offsets[i], offsets[i] + life.size, life.start, life.end)
    return offsets, peak


def pack_segments(
    lifetimes: Sequence[Lifetime], segment: int, search: SearchBudget = SEARCH
) -> tuple[list[tuple[int, int]], list[int]]:
    """Pack lifetimes into segments of at most `segment` bytes each; no lifetime may be larger than that.

    Returns:
        (segment, offset) of every lifetime, and the bytes that every segment needs.
    """
    live = max_live_bytes(lifetimes)
    best: tuple[list[tuple[int, int]], list[int]] = [], [NEVER]
    for key in _ORDERS if len(lifetimes) <= search.segment_orders_up_to else _ORDERS[:1]:
        tried = _place_in_segments(lifetimes, _sorted(lifetimes, key), segment)
        if sum(tried[1]) < sum(best[1]):
            best = tried
        if sum(best[1]) == live:
            break
    return best


def _place_in_segments(
    lifetimes: Sequence[Lifetime], order: Sequence[int], segment: int
) -> tuple[list[tuple[int, int]], list[int]]:
    """Return ((segment, offset) of every lifetime, bytes of every segment) of placing lifetimes in `order`."""
    places: list[tuple[int, int]] = [(0, 0)] * len(lifetimes)
    placed: list[Placed] = []
    peaks: list[int] = []
    for i in order:
        life, found = lifetimes[i], None
        for k, blocks in enumerate(placed):  # the first of the segments that grow least
            offset = blocks.gap(life.start, life.end, life.size, segment)
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


def pack_within(
    stretches: Sequence[Stretch],
    limit: int,
    ties: Mapping[int, int] | None = None,
    search: SearchBudget = SEARCH,
    hopeless: float = 1.0,
) -> tuple[list[Lifetime], Packing] | None:
    """Choose lifetimes and offsets below `limit` bytes, the lifetimes as near to the wanted ones as fits.

    Two orders are tried: by bytes times steps, and with large lifetimes first by size, which stacks equal ones without
    gaps. What finds no place goes first in the next try.

    Args:
        ties: pairs of stretches, each index to the other, that must have the same offset.
        hopeless: share of the stretches; where two tries leave more without a place, no more are made.

    Returns:
        The lifetimes and their packing, or None if none is found.
    """
    if max_live_bytes([s.must for s in stretches]) > limit:
        return None
    area = [-s.must.size * (s.end - s.start + 1) for s in stretches]
    large = [-s.must.size if s.must.size * search.large_lifetime_parts >= limit else 0 for s in stretches]
    ties = ties or {}
    spans = [_spans([s] if i not in ties else [s, stretches[ties[i]]], search) for i, s in enumerate(stretches)]
    for first in ([0] * len(stretches), large):
        keys = [(large_first, a, s.must.start) for large_first, a, s in zip(first, area, stretches, strict=True)]
        order = sorted(range(len(stretches)), key=keys.__getitem__)
        for left in reversed(range(search.packing_tries)):
            lives, offsets, unplaced = _place_within(spans, order, limit, ties, all_or_none=not left)
            if not unplaced:
                peak = max((o + life.size for o, life in zip(offsets, lives, strict=True)), default=0)
                return lives, Packing(tuple(offsets), peak, max_live_bytes(lives))
            if left == search.packing_tries - 2 and len(unplaced) > hopeless * len(stretches):
                return None
            behind = set(order).difference(unplaced)
            order = unplaced + [i for i in order if i in behind]
    return None


_Spans = list[tuple[Lifetime, ...]]


def _spans(stretches: Sequence[Stretch], search: SearchBudget) -> _Spans:
    """Return the lifetimes to try for stretches that get one offset, the wanted ones first, the required ones last."""
    return list(dict.fromkeys(tuple(_part(s, share) for s in stretches) for share in search.extension_shares))


def _place_within(
    spans: Sequence[_Spans], order: Sequence[int], limit: int, ties: Mapping[int, int], *, all_or_none: bool
) -> tuple[list[Lifetime], list[int], list[int]]:
    """Return (lifetimes, offsets, indices that found no place) of placing stretches once, in `order`.

    all_or_none: end at the first that finds no place."""
    lives, offsets = [tried[-1][0] for tried in spans], [0] * len(spans)
    unplaced: list[int] = []
    placed, settled = Placed(len(spans)), set[int]()
    for i in order:
        if i in settled:
            continue
        own = [i, ties[i]] if i in ties else [i]
        settled.update(own)
        found = _first_place(placed, spans[i], limit)
        if found is not None:
            offset, tried = found
            for k, life in zip(own, tried, strict=True):
                offsets[k], lives[k] = offset, life
                placed.add(offset, offset + life.size, life.start, life.end)
        else:
            unplaced += own
            if all_or_none:
                break
    return lives, offsets, unplaced


def _first_place(placed: Placed, spans: _Spans, limit: int) -> tuple[int, tuple[Lifetime, ...]] | None:
    """Return the offset of the first of these spans that finds a place, and that span; None: not even the last does.

    Each span contains the next ones, so the last is tried before those between."""

    def place(tried: tuple[Lifetime, ...]) -> int | None:
        also = (tried[1].start, tried[1].end) if len(tried) > 1 else None
        return placed.gap(tried[0].start, tried[0].end, tried[0].size, limit, also)

    wanted, *others = spans
    offset = place(wanted)
    if offset is not None:
        return offset, wanted
    least = place(others[-1]) if others else None
    if least is None:
        return None
    for tried in others[:-1]:
        if (offset := place(tried)) is not None:
            return offset, tried
    return least, others[-1]


def _part(stretch: Stretch, share: float) -> Lifetime:
    """Return the required lifetime with this share (0..1) of the wanted extension at both ends."""
    must = stretch.must
    before, after = int((must.start - stretch.start) * share), int((stretch.end - must.end) * share)
    return Lifetime(must.start - before, must.end + after, must.size)
