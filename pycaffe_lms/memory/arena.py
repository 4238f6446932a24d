"""The device memory that managed buffers use in turn: in one piece, or in pages with addresses for each plan."""

from __future__ import annotations

import weakref

from ..backend.device import Device, Span


class Arena:
    """Plans are those of `lms.plan.Plan`; several may be in use. One in one piece lies in pages too, in order, once
    there is one that needs pages: they use the same memory in turn."""

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
        """Where the offsets of a plan begin that was prepared; another object when the addresses are others."""
        if plan.paging is None:
            return self._whole
        return next(view for known, view in self._views if known() is plan.paging)

    def prepare(self, plan) -> None:
        """Take the memory that a plan needs; nothing is taken later, in the loop."""
        if plan.paging is None:
            if self._whole is None or self._whole.nbytes < plan.arena_bytes:
                self._take_whole(plan.arena_bytes)
            return
        if self._pages is None:
            before = self._give_whole()
            self._pages = self.device.pages()
            if before:
                self._take_whole(before)
        self._forget_views()
        paging = plan.paging
        if any(known() is paging for known, _ in self._views):
            return
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

    def _give_whole(self) -> int:
        """How many bytes it had."""
        whole, self._whole = self._whole, None
        if whole is None:
            return 0
        self.device.synchronize()
        if self._pages is None:
            self.device.give(whole)
        else:
            self._pages.drop(whole)
        return whole.nbytes

    def _forget_views(self) -> None:
        """Of plans that are gone."""
        gone = [view for known, view in self._views if known() is None]
        if gone:
            self.device.synchronize()
            self._views = [(known, view) for known, view in self._views if known() is not None]
        for view in gone:
            self._pages.drop(view)

    def close(self) -> None:
        """Give everything back. Nothing that is queued uses it."""
        self._give_whole()
        if self._pages is not None:
            self._pages.close()
        self._pages = None
        self._views.clear()
