"""The device memory that managed buffers use in turn: in one piece, or in pages with addresses for each plan."""

from __future__ import annotations

import math
import weakref

from ..backend.device import ALIGN, Device, Span


class Arena:
    """Plans are those of `lms.plan.Plan`; several may be in use. One in one piece lies in pages too, in order, once
    there is one that needs pages: they use the same memory in turn. A plan is prepared before it runs; another one, or
    `shrink`, may take its memory away again: see `holds`."""

    def __init__(self, device: Device):
        self.device = device
        self._whole: Span | None = None
        self._pages = None
        self._views: list[tuple[weakref.ref, Span]] = []

    @property
    def nbytes(self) -> int:
        """Device memory that it has."""
        if self._pages is not None:
            return self._pages.count * self.device.page
        return 0 if self._whole is None else self._whole.nbytes

    def of(self, plan) -> Span:
        """Where the offsets of a plan begin that it `holds`; another object when the addresses are others."""
        if plan.paging is None:
            return self._whole
        return next(view for known, view in self._views if known() is plan.paging)

    @property
    def unit(self) -> int:
        """Its memory is a multiple of so many bytes."""
        return ALIGN if self._pages is None else self.device.page

    def holds(self, plan) -> bool:
        """Whether the memory of a plan is there: it was prepared, and not given back since."""
        if plan.paging is None:
            return self._whole is not None and self._whole.nbytes >= plan.arena_bytes
        return any(known() is plan.paging for known, _ in self._views)

    def prepare(self, plan) -> None:
        """Take the memory that a plan needs; nothing is taken later, in the loop."""
        if self.holds(plan):
            return
        if plan.paging is None:
            self._take_whole(plan.arena_bytes)
            return
        if self._pages is None:
            self._give_whole()  # who needs it prepares once more
            self._pages = self.device.pages()
            self._lost = weakref.finalize(self, self.device.let_go, self._pages.close)
            self._lost.atexit = False
        self._forget_views()
        paging = plan.paging
        first = paging.linear // paging.page
        self._pages.grow(first + paging.count)
        pieces = [(0, range(first))] if first else []
        pieces += [(offset, [first + p for p in pages]) for offset, pages in sorted(paging.pages.items())]
        self._views.append((weakref.ref(paging), self._pages.view(paging.size, pieces)))

    def _take_whole(self, nbytes: int) -> None:
        self._give_whole()
        if self._pages is None:
            self._whole = self.device.take(nbytes)
            return
        count = -(-nbytes // self.device.page)
        self._pages.grow(count)
        self._whole = self._pages.view(nbytes, [(0, range(count))])

    def _give_whole(self) -> None:
        whole, self._whole = self._whole, None
        if whole is None:
            return
        self.device.synchronize()
        if self._pages is None:
            self.device.give(whole)
        else:
            self._pages.drop(whole)

    def _forget_views(self, most: float = math.inf) -> None:
        """Of plans that are gone, or use more pages than the first `most`."""
        kept, gone = [], []
        for known, view in self._views:
            paging = known()
            stays = paging is not None and paging.linear // paging.page + paging.count <= most
            (kept if stays else gone).append((known, view))
        if gone:
            self.device.synchronize()
            self._views = kept
        for _, view in gone:
            self._pages.drop(view)

    def shrink(self, limit: int) -> None:
        """Give back what it has beyond `limit` bytes, and plans that use it; between runs, when nothing is on loan."""
        if self.nbytes <= limit:
            return
        if self._pages is None:
            self._give_whole()
            return
        count = max(0, limit) // self.device.page
        if self._whole is not None and self._whole.nbytes > count * self.device.page:
            self._give_whole()
        self._forget_views(count)
        self.device.synchronize()
        self._pages.shrink(count)

    def close(self) -> None:
        """Give everything back. Nothing that is queued uses it."""
        self._give_whole()
        if self._pages is not None:
            self._lost.detach()
            self._pages.close()
        self._pages = None
        self._views.clear()
