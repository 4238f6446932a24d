"""Count which buffer occupies which device memory of a plan, for the verifier.

Pure. `Cells` divides the memory into cells that every place covers whole or not at all; `LastOps` and `Occupants` keep
one entry per cell.
"""

from __future__ import annotations

from bisect import bisect_left

import numpy as np

from ...backend.device import ALIGN
from ...errors import PlanError
from ..layout.paging import Paging
from .plan import Plan


def on_boundary(offset: int) -> bool:
    """Tell whether a part of a copy may begin at this offset in a buffer, in bytes: it must be aligned."""
    return offset % ALIGN == 0


class Cells:
    """Divide device memory into cells: the bytes between neighbouring ends of places in the contiguous part, and pages.

    Raises:
        PlanError: the plan's paging is inconsistent.
    """

    def __init__(self, plan: Plan):
        paging = plan.paging
        linear = plan.arena_bytes if paging is None else paging.linear
        marks = {0, linear}
        for op in plan.ops:
            for p in (*op.births, *(() if op.place is None else (op.place,))):
                if 0 <= p.offset < linear:
                    marks |= {p.offset, p.offset + plan.buffers[p.buffer].nbytes}
                    if op.part is not None:
                        marks |= {p.offset + op.part[0], p.offset + sum(op.part)}
        self._marks = sorted(m for m in marks if m <= linear)
        self._linear = linear
        self.count = len(self._marks) - 1
        self._pages: dict[int, np.ndarray] = {}
        self._page = 1
        if paging is not None:
            self._check(plan, paging)
            self._pages = {o: self.count + np.array(pages) for o, pages in paging.pages.items()}
            self._page = paging.page
            self.count += paging.count

    def of(self, offset: int, nbytes: int, part: tuple[int, int] | None = None) -> slice | np.ndarray | None:
        """Return the indices of the cells of a place or of a part of it, (offset, bytes); None if outside the arena."""
        if part is not None and 0 <= offset < self._linear:
            return self.of(offset + part[0], part[1])
        if 0 <= offset < self._linear or nbytes == 0:
            if offset + nbytes > self._linear:
                return None
            return slice(bisect_left(self._marks, offset), bisect_left(self._marks, offset + nbytes))
        pages, page = self._pages.get(offset), self._page
        if pages is None or nbytes > len(pages) * page:
            return None
        return pages if part is None else pages[part[0] // page : -(-sum(part) // page)]

    def _check(self, plan: Plan, paging: Paging) -> None:
        """Raise PlanError unless addresses and pages of the paging are distinct and within the arena."""
        end, wrong = self._linear, None
        if self._linear % paging.page or plan.arena_bytes < self._linear + paging.count * paging.page:
            wrong = f"{paging.count} pages and {self._linear} contiguous bytes exceed {plan.arena_bytes} bytes"
        for offset in sorted(paging.pages):
            pages = paging.pages[offset]
            if offset < end or (offset - self._linear) % paging.page:
                wrong = f"addresses from {offset} on are given twice, or do not begin at a page"
            elif len(set(pages)) < len(pages) or not all(0 <= p < paging.count for p in pages):
                wrong = f"the pages at {offset} are not all there, or one is there twice"
            end = offset + len(pages) * paging.page
        if end > max(paging.size, self._linear):
            wrong = f"addresses end at {end}, not at {paging.size}"
        if wrong:
            raise PlanError(
                f"plan of {plan.program.name}: {wrong}", fix="this is a bug in the planner, or an edited plan"
            )


Where = slice | np.ndarray


class LastOps:
    """Keep the newest operation of every stream that touched a cell."""

    def __init__(self, cells: Cells):
        self._last = np.full((3, cells.count), -1, np.int64)

    def of(self, where: Where) -> list[int]:
        """Return the newest operation of every stream that touched any of these cells."""
        return [int(op) for op in self._last[:, where].max(axis=1, initial=-1) if op >= 0]

    def note(self, where: Where, stream: int, op: int) -> None:
        """Record that operation `op` on a stream touches these cells."""
        self._last[stream, where] = op


class Occupants:
    """Keep the buffer in every cell, and the first and the last buffer that was there."""

    def __init__(self, cells: Cells):
        self._buffer, self._first, self._last = (np.full(cells.count, -1, np.int64) for _ in range(3))

    def enter(self, where: Where, buffer: int) -> int | None:
        """Enter a buffer and return None; or return a buffer that occupies a cell already, and change nothing."""
        other = int(self._buffer[where].max(initial=-1))
        if other >= 0:
            return other
        self._buffer[where] = self._last[where] = buffer
        self._first[where] = np.where(self._first[where] < 0, buffer, self._first[where])
        return None

    def framed(self, where: Where, buffer: int) -> bool:
        """Tell whether `buffer` was the first and the last one in every one of these cells."""
        return bool((self._first[where] == buffer).all() and (self._last[where] == buffer).all())

    def leave(self, where: Where) -> None:
        """Mark these cells as free."""
        self._buffer[where] = -1
