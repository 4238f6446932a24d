"""Places that need not be contiguous in memory: large residences lie in addresses of their own, and pages of one size
stand behind them wherever some are free. Pure.

So whatever fits by the number of its bytes fits: nothing is lost between residences of different sizes, only in their
last pages. Small ones share the arena's start and are packed as in `arena.py`. Which pages stand behind which addresses
never changes while a plan is in use, so the device's page table is written once, before the first run.
"""

from __future__ import annotations

import heapq
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice

import numpy as np

from .packing import NEVER, Lifetime, Packing, Stretch, max_live_bytes, pack, pack_within

WASTE = 8  # a residence lies in pages if its last one wastes at most one part in so many


@dataclass(frozen=True)
class Paging:
    """What stands behind the offsets of a plan. Bytes [0, linear) of the arena are themselves, in its first pages.
    Offsets from `linear` on are addresses: a residence at offset o lies in the pages[o], each `page` bytes, of
    [0, count). size: where the last address ends."""

    page: int
    linear: int
    count: int
    size: int
    pages: Mapping[int, tuple[int, ...]]

    def holds(self, offset: int, nbytes: int) -> bool:
        """Whether there is memory behind so many bytes from an offset on."""
        if offset < self.linear:
            return offset + nbytes <= self.linear
        return nbytes <= len(self.pages.get(offset, ())) * self.page

    def share(self, one: int, other: int) -> bool:
        """Whether some pages stand behind the addresses at both offsets."""
        return not set(self.pages.get(one, ())).isdisjoint(self.pages.get(other, ()))


def pages_of(nbytes: int, page: int) -> int:
    """How many pages a residence takes; 0: it is small, or would waste too much."""
    count = -(-nbytes // page)
    return count if (count * page - nbytes) * WASTE <= nbytes else 0


def taken_bytes(nbytes: int, page: int | None) -> int:
    """What a residence of so many bytes takes from the memory."""
    return nbytes if page is None else pages_of(nbytes, page) * page or nbytes


def paged(lives: Sequence[Lifetime], page: int, limit: int | None = None) -> Packing:
    """Places for lifetimes as they are. limit: a peak that is good enough for the small ones."""
    small = [i for i, life in enumerate(lives) if not pages_of(life.size, page)]
    large = [(i, pages_of(life.size, page)) for i, life in enumerate(lives) if pages_of(life.size, page)]
    most = _load(lives, large).max(initial=0)
    packing = pack([lives[i] for i in small], None if limit is None else limit - int(most) * page)
    return _joined(lives, small, packing, large, page, 0)


def stretched(stretches: Sequence[Stretch], offsets: Sequence[int]) -> list[Lifetime]:
    """Lifetimes as near to the wished ones as there is room at these offsets, which the shortest ones allow."""
    lives = [s.must for s in stretches]
    lo = np.array(offsets, np.int64)
    hi = lo + np.array([life.size for life in lives], np.int64)
    start, end = (np.array([getattr(life, which) for life in lives], np.int64) for which in ("start", "end"))
    for i in sorted(range(len(lives)), key=lambda i: (-lives[i].size, lives[i].start, i)):
        near = (lo < hi[i]) & (hi > lo[i])
        before, behind = end[near & (end < start[i])], start[near & (start > end[i])]
        start[i] = max(stretches[i].start, before.max(initial=-1) + 1)
        end[i] = min(stretches[i].end, behind.min(initial=NEVER) - 1)
        lives[i] = Lifetime(int(start[i]), int(end[i]), lives[i].size)
    return lives


def paged_within(
    stretches: Sequence[Stretch], limit: int, page: int, full: bool, ties: Mapping[int, int] | None = None
) -> tuple[list[Lifetime], Packing] | int:
    """Lifetimes as near to the wished ones as fit into `limit` bytes, and their places; or how many bytes are
    missing. Those that take most bytes for longest get their wish first. full: all of it may be used, so that memory
    comes to its next user later; else as little as is needed. ties: of stretches that have one place if that can be,
    each to the other."""
    ties = ties or {}
    lives = [s.must for s in stretches]
    small = [i for i, life in enumerate(lives) if not pages_of(life.size, page)]
    large = [(i, pages_of(life.size, page)) for i, life in enumerate(lives) if pages_of(life.size, page)]
    load = _load(lives, large)
    most = int(load.max(initial=0))
    room = limit // page - most
    if room < 0:
        return -room * page
    at = {i: k for k, i in enumerate(small)}
    within = pack_within([stretches[i] for i in small], room * page, {at[i]: at[j] for i, j in ties.items() if i in at})
    if within is None:
        tight = pack([lives[i] for i in small])
        if tight.peak > room * page:
            return tight.peak - room * page
        within = stretched([stretches[i] for i in small], tight.offsets), tight
    for i, life in zip(small, within[0], strict=True):
        lives[i] = life
    capacity = limit // page - -(-within[1].peak // page)
    for i, n in sorted(large, key=lambda one: (-one[1] * (lives[one[0]].end - lives[one[0]].start + 1), one[0])):
        wish, must = stretches[i], lives[i]
        before, behind = load[wish.start : must.start], load[must.end + 1 : wish.end + 1]
        taken = np.flatnonzero(before > capacity - n)
        start = wish.start + int(taken[-1]) + 1 if len(taken) else wish.start
        taken = np.flatnonzero(behind > capacity - n)
        end = must.end + int(taken[0]) if len(taken) else wish.end
        load[start : must.start] += n
        load[must.end + 1 : end + 1] += n
        lives[i] = Lifetime(start, end, must.size)
    apart = {i: j for i, j in ties.items() if i not in at}
    joined = _joined(lives, small, within[1], large, page, capacity if full else 0, apart)
    if apart and joined.paging.count > capacity:
        joined = _joined(lives, small, within[1], large, page, capacity if full else 0)
    return lives, joined


def _load(lives: Sequence[Lifetime], large: Sequence[tuple[int, int]]) -> np.ndarray:
    """Pages in use by step."""
    last = max((life.end for life in lives), default=-1)
    change = np.zeros(last + 2, np.int64)
    for i, n in large:
        change[lives[i].start] += n
        change[lives[i].end + 1] -= n
    return np.cumsum(change)


def _joined(
    lives, small: Sequence[int], packing: Packing, large, page: int, spare: int, ties: Mapping[int, int] | None = None
) -> Packing:
    offsets = [0] * len(lives)
    for i, offset in zip(small, packing.offsets, strict=True):
        offsets[i] = offset
    linear = -(-packing.peak // page) * page
    found = _assign([(i, n, lives[i]) for i, n in large], linear, page, spare, ties or {})
    offsets = [found.offsets.get(i, offset) for i, offset in enumerate(offsets)]
    paging = Paging(page, linear, found.count, found.end, found.pages)
    return Packing(tuple(offsets), linear + found.count * page, max_live_bytes(lives), paging)


def in_one_piece(packing: Packing, page: int) -> Packing:
    """A packing without addresses of its own, in pages that lie in order."""
    linear = -(-packing.peak // page) * page
    return replace(packing, peak=linear, paging=Paging(page, linear, 0, linear, {}))


class _assign:
    """Pages for each residence, in order of time: where one of the same size ended, its addresses are used again with
    its pages; else pages that nobody had, up to `spare`; else those that were free for longest.

    ties: residences that want one place, one at the start and one at the end, each to the other. Time runs backwards
    then, as there is most room at the start: who is there still when the first of them comes does without its pages."""

    def __init__(
        self, large: Sequence[tuple[int, int, Lifetime]], first: int, page: int, spare: int, ties: Mapping[int, int]
    ):
        if ties:
            end = max(life.end for _, _, life in large)
            large = [(i, n, Lifetime(end - life.end, end - life.start, life.size)) for i, n, life in large]
        begins = {i: life.start for i, _, life in large}
        kept: dict[int, int] = {}  # residence -> bits of the pages that it is to have
        self.offsets: dict[int, int] = {}
        self.pages: dict[int, tuple[int, ...]] = {}
        self.end = first
        self.count = 0
        free: dict[int, None] = {}
        bits_free = 0
        places: dict[int, list[tuple[int, int]]] = {}  # pages -> (their bits, offset) of addresses that exist
        ends: list[tuple[int, int, int, int]] = []
        for i, n, life in sorted(large, key=lambda one: (one[2].start, -one[1], one[0])):
            while ends and ends[0][0] < life.start:
                _, _, bits, offset = heapq.heappop(ends)
                bits_free |= bits
                free.update(dict.fromkeys(self.pages[offset]))
            own, barred = kept.pop(i, None), 0
            for other, bits in kept.items():
                barred |= bits if begins[other] <= life.end else 0
            may = bits_free & ~barred
            known = next(((bits, o) for bits, o in places.get(n, ()) if bits & may == bits), None)
            if own is not None and own & bits_free == own:
                known = own, self.offsets[ties[i]]
            if known is not None:
                bits, offset = known
            else:
                usable = [p for p in free if not barred >> p & 1] if barred else free
                new = max(min(n, spare - self.count), n - len(usable), 0)
                taken = (*range(self.count, self.count + new), *islice(usable, n - new))
                self.count += new
                bits, offset = sum(1 << p for p in taken), self.end
                self.pages[offset] = taken
                self.end += n * page
                places.setdefault(n, []).append((bits, offset))
            bits_free &= ~bits
            for p in self.pages[offset]:
                free.pop(p, None)
            self.offsets[i] = offset
            if i in ties and ties[i] not in self.offsets:
                kept[ties[i]] = bits
            heapq.heappush(ends, (life.end, i, bits, offset))
