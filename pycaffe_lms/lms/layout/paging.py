"""Pack lifetimes with paging: a large one gets an address range of its own, mapped to any free pages of one size.

Pure. Large lifetimes then fit whenever enough bytes are free: space is lost only in their last pages, not between
lifetimes of different sizes. Small ones share the start of the arena and are packed as in `layout/packing.py`. The
mapping of addresses to pages is fixed while a plan is in use, so the device's page table is written once, before the
first run.
"""

from __future__ import annotations

import heapq
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice

import numpy as np

from ..rules import SEARCH, SearchBudget
from .packing import NEVER, Lifetime, Packing, Stretch, max_live_bytes, pack, pack_within


@dataclass(frozen=True)
class Paging:
    """Map the offsets of a plan to memory.

    Offsets in [0, linear) are bytes of the arena's contiguous part, its first pages. Offsets from `linear` on are
    addresses: a buffer at offset o lies in the pages `pages[o]`, numbers below `count`, of `page` bytes each. The last
    address ends at `size`.
    """

    page: int
    linear: int
    count: int
    size: int
    pages: Mapping[int, tuple[int, ...]]

    def holds(self, offset: int, nbytes: int) -> bool:
        """Tell whether `nbytes` from `offset` on have memory behind them."""
        if offset < self.linear:
            return offset + nbytes <= self.linear
        return nbytes <= len(self.pages.get(offset, ())) * self.page

    def share(self, one: int, other: int) -> bool:
        """Tell whether the addresses at two offsets have a page in common."""
        return not set(self.pages.get(one, ())).isdisjoint(self.pages.get(other, ()))


def pages_of(nbytes: int, page: int, waste: int = SEARCH.least_page_waste_parts) -> int:
    """Return the pages that a buffer of `nbytes` takes; 0, outside of pages, if more than 1/`waste` would be wasted."""
    count = -(-nbytes // page)
    return count if (count * page - nbytes) * waste <= nbytes else 0


def taken_bytes(nbytes: int, page: int | None, waste: int = SEARCH.least_page_waste_parts) -> int:
    """Return the bytes of device memory that a buffer of `nbytes` takes. page: bytes of a page; None: no paging."""
    return nbytes if page is None else pages_of(nbytes, page, waste) * page or nbytes


def _by_size(
    lives: Sequence[Lifetime], page: int, waste: int = SEARCH.least_page_waste_parts
) -> tuple[list[int], list[tuple[int, int]]]:
    """Return the indices of lifetimes outside of pages, and (index, pages) of the others."""
    pages = [pages_of(life.size, page, waste) for life in lives]
    return [i for i, n in enumerate(pages) if not n], [(i, n) for i, n in enumerate(pages) if n]


def paged(lives: Sequence[Lifetime], page: int, limit: int | None = None) -> Packing:
    """Pack fixed lifetimes with paging. limit: bytes of a good enough peak."""
    small, large = _by_size(lives, page)
    most = _load(lives, large).max(initial=0)
    packing = pack([lives[i] for i in small], None if limit is None else limit - int(most) * page)
    return _joined(lives, small, packing, large, page, 0)


def stretched(stretches: Sequence[Stretch], offsets: Sequence[int]) -> list[Lifetime]:
    """Lengthen lifetimes towards the wanted ones as far as is free at these offsets, a packing of the required ones."""
    lives = [s.must for s in stretches]
    lo = np.array(offsets, np.int64)
    hi = lo + np.array([life.size for life in lives], np.int64)
    start, end = (np.array([getattr(life, which) for life in lives], np.int64) for which in ("start", "end"))
    for i in sorted(range(len(lives)), key=lambda i: (-lives[i].size, lives[i].start, i)):
        near = (lo < hi[i]) & (hi > lo[i])
        before, after = end[near & (end < start[i])], start[near & (start > end[i])]
        start[i] = max(stretches[i].start, before.max(initial=-1) + 1)
        end[i] = min(stretches[i].end, after.min(initial=NEVER) - 1)
        lives[i] = Lifetime(int(start[i]), int(end[i]), lives[i].size)
    return lives


def paged_within(
    stretches: Sequence[Stretch],
    limit: int,
    page: int,
    full: bool,
    ties: Mapping[int, int] | None = None,
    search: SearchBudget = SEARCH,
) -> tuple[list[Lifetime], Packing] | int:
    """Choose lifetimes and paged places in `limit` bytes, the lifetimes as near to the wanted ones as fits.

    Lifetimes with most bytes times steps are lengthened first.

    Args:
        page: bytes of a page.
        full: use all pages, so that each is reused as late as possible; else use as few as possible.
        ties: pairs of stretches, each index to the other, that get the same place if possible.

    Returns:
        The lifetimes and their packing, or the number of missing bytes.
    """
    ties, lives = ties or {}, [s.must for s in stretches]
    small, large = _by_size(lives, page, search.page_waste_parts)
    load = _load(lives, large)
    most = int(load.max(initial=0))
    pages_left = limit // page - most
    if pages_left < 0:
        return -pages_left * page
    at = {i: k for k, i in enumerate(small)}
    small_ties = {at[i]: at[j] for i, j in ties.items() if i in at}
    within = pack_within([stretches[i] for i in small], pages_left * page, small_ties, search, search.packing_hopeless)
    if within is None:
        tight = pack([lives[i] for i in small])
        if tight.peak > pages_left * page:
            return tight.peak - pages_left * page
        within = stretched([stretches[i] for i in small], tight.offsets), tight
    for i, life in zip(small, within[0], strict=True):
        lives[i] = life
    capacity = limit // page - -(-within[1].peak // page)
    for i, n in sorted(large, key=lambda one: (-one[1] * (lives[one[0]].end - lives[one[0]].start + 1), one[0])):
        wanted, must = stretches[i], lives[i]
        before, after = load[wanted.start : must.start], load[must.end + 1 : wanted.end + 1]
        taken = np.flatnonzero(before > capacity - n)
        start = wanted.start + int(taken[-1]) + 1 if len(taken) else wanted.start
        taken = np.flatnonzero(after > capacity - n)
        end = must.end + int(taken[0]) if len(taken) else wanted.end
        load[start : must.start] += n
        load[must.end + 1 : end + 1] += n
        lives[i] = Lifetime(start, end, must.size)
    apart = {i: j for i, j in ties.items() if i not in at}
    joined = _joined(lives, small, within[1], large, page, capacity if full else 0, apart)
    if apart and joined.paging is not None and joined.paging.count > capacity:
        joined = _joined(lives, small, within[1], large, page, capacity if full else 0)
    return lives, joined


def _load(lives: Sequence[Lifetime], large: Sequence[tuple[int, int]]) -> np.ndarray:
    """Return the pages in use at every step, by the `large` lifetimes: (index, pages)."""
    last = max((life.end for life in lives), default=-1)
    change = np.zeros(last + 2, np.int64)
    for i, n in large:
        change[lives[i].start] += n
        change[lives[i].end + 1] -= n
    return np.cumsum(change)


def _joined(
    lives: Sequence[Lifetime],
    small: Sequence[int],
    packing: Packing,
    large: Sequence[tuple[int, int]],
    page: int,
    spare: int,
    ties: Mapping[int, int] | None = None,
) -> Packing:
    """Join the packing of the small lifetimes with pages for the large ones; arguments as in `_PageAssignment`."""
    offsets = [0] * len(lives)
    for i, offset in zip(small, packing.offsets, strict=True):
        offsets[i] = offset
    linear = -(-packing.peak // page) * page
    found = _PageAssignment([(i, n, lives[i]) for i, n in large], linear, page, spare, ties or {})
    offsets = [found.offsets.get(i, offset) for i, offset in enumerate(offsets)]
    paging = Paging(page, linear, found.count, found.end, found.pages)
    return Packing(tuple(offsets), linear + found.count * page, max_live_bytes(lives), paging)


def in_one_piece(packing: Packing, page: int) -> Packing:
    """Return a packing of contiguous memory with its peak rounded up to whole pages."""
    linear = -(-packing.peak // page) * page
    return replace(packing, peak=linear, paging=Paging(page, linear, 0, linear, {}))


class _PageAssignment:
    """Assign pages and addresses to large lifetimes, in order of time.

    A lifetime takes the address and pages of an ended one of the same size; else pages not used so far, while there are
    fewer than `spare`; else those that are free for longest.

    With ties the order of time is reversed, because most memory is free at the start. Lifetimes that overlap the second
    one of a tie then do not take the pages reserved for it.

    Args:
        large: (index, pages, lifetime) of every large lifetime.
        first: offset of the first address.
        page: bytes of a page.
        spare: pages that may be used even where fewer would do.
        ties: pairs of lifetimes, one at the start and one at the end, each index to the other, that want one place.
    """

    def __init__(
        self, large: Sequence[tuple[int, int, Lifetime]], first: int, page: int, spare: int, ties: Mapping[int, int]
    ):
        if ties:
            end = max(life.end for _, _, life in large)
            large = [(i, n, Lifetime(end - life.end, end - life.start, life.size)) for i, n, life in large]
        begins = {i: life.start for i, _, life in large}
        reserved: dict[int, int] = {}  # lifetime -> bits of the pages reserved for it
        self.offsets: dict[int, int] = {}
        self.pages: dict[int, tuple[int, ...]] = {}
        self.end = first
        self.count = 0
        free: dict[int, None] = {}
        bits_free = 0
        places: dict[int, list[tuple[int, int]]] = {}  # number of pages -> (bits of the pages, offset) of every address
        ends: list[tuple[int, int, int, int]] = []
        for i, n, life in sorted(large, key=lambda one: (one[2].start, -one[1], one[0])):
            while ends and ends[0][0] < life.start:
                _, _, bits, offset = heapq.heappop(ends)
                bits_free |= bits
                free.update(dict.fromkeys(self.pages[offset]))
            own, barred = reserved.pop(i, None), 0
            for other, bits in reserved.items():
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
                reserved[ties[i]] = bits
            heapq.heappush(ends, (life.end, i, bits, offset))
