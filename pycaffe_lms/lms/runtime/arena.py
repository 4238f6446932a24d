"""Hold the device memory that managed buffers use in turn: contiguous, or pages mapped anew for each plan.

`lms/layout/packing.py` chooses offsets, `lms/layout/paging.py` pages; `backend/device.py` has `Pages`.
"""

from __future__ import annotations

import math
import weakref
from dataclasses import dataclass

from ...backend.device import ALIGN, Device, Pages, Piece, Span
from ..layout.paging import Paging
from ..plan.plan import Plan


@dataclass
class _View:
    """Hold the pages of one plan: `span` is None until they are mapped."""

    paging: weakref.ref[Paging]
    span: Span | None = None


class Arena:
    """Allocate device memory for plans, which use it in turn.

    A plan is prepared before it runs. Preparing another plan, or `shrink`, may free its memory again: see `holds`.
    Pages are allocated then, and mapped when `of` first asks for them, because some plans never run.
    Once one plan needs pages, contiguous plans use the same pages, in order.
    """

    def __init__(self, device: Device):
        self.device = device
        self._whole: Span | None = None
        self._pages: Pages | None = None
        self._views: list[_View] = []

    @property
    def nbytes(self) -> int:
        """Return the device bytes that are allocated."""
        if self._pages is not None:
            return self._pages.count * self._page
        return 0 if self._whole is None else self._whole.nbytes

    @property
    def _page(self) -> int:
        assert self.device.page is not None  # only asked once a plan has pages
        return self.device.page

    def of(self, plan: Plan) -> Span:
        """Return the span that a prepared plan's offsets refer to; other addresses mean another object."""
        if plan.paging is None:
            assert self._whole is not None
            return self._whole
        view = next(view for view in self._views if view.paging() is plan.paging)
        if view.span is None:
            view.span = self._mapped(plan.paging)
        return view.span

    @property
    def unit(self) -> int:
        """Return the bytes of which the arena's size is a multiple."""
        return ALIGN if self._pages is None else self._page

    def holds(self, plan: Plan) -> bool:
        """Return whether a plan's memory is allocated: it was prepared, and not freed since."""
        if plan.paging is None:
            return self._whole is not None and self._whole.nbytes >= plan.arena_bytes
        return any(view.paging() is plan.paging for view in self._views)

    def prepare(self, plan: Plan) -> None:
        """Allocate the memory that a plan needs, so that its runs allocate nothing."""
        if self.holds(plan):
            return
        if plan.paging is None:
            self._take_whole(plan.arena_bytes)
            return
        if self._pages is None:
            self._give_whole()  # contiguous plans prepare again
            self._pages = self.device.pages()
            self._lost = weakref.finalize(self, self.device.let_go, self._pages.close)
            self._lost.atexit = False
        self._forget_views()
        self._pages.grow(_count(plan.paging))
        self._views.append(_View(weakref.ref(plan.paging)))

    def _mapped(self, paging: Paging) -> Span:
        assert self._pages is not None
        first = paging.linear // paging.page
        pieces: list[Piece] = [(0, range(first))] if first else []
        pieces += [(offset, [first + p for p in pages]) for offset, pages in sorted(paging.pages.items())]
        return self._pages.view(paging.size, pieces)

    def _take_whole(self, nbytes: int) -> None:
        self._give_whole()
        if self._pages is None:
            self._whole = self.device.take(nbytes)
            return
        count = -(-nbytes // self._page)
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
        """Unmap views of plans that no longer exist or use more than `most` pages."""
        kept: list[_View] = []
        gone: list[_View] = []
        for view in self._views:
            paging = view.paging()
            (kept if paging is not None and _count(paging) <= most else gone).append(view)
        if gone and self._pages is not None:
            self.device.synchronize()
            self._views = kept
            for view in gone:
                if view.span is not None:
                    self._pages.drop(view.span)

    def shrink(self, limit: int) -> None:
        """Free memory beyond `limit` bytes. Plans that use it must be prepared again. Call it between runs."""
        if self.nbytes <= limit:
            return
        if self._pages is None:
            self._give_whole()
            return
        count = max(0, limit) // self._page
        if self._whole is not None and self._whole.nbytes > count * self._page:
            self._give_whole()
        self._forget_views(count)
        self.device.synchronize()
        self._pages.shrink(count)

    def close(self) -> None:
        """Free everything. No queued work may use it."""
        self._give_whole()
        if self._pages is not None:
            self._lost.detach()
            self._pages.close()
        self._pages = None
        self._views.clear()


def _count(paging: Paging) -> int:
    """Return the pages of a plan."""
    return paging.linear // paging.page + paging.count
