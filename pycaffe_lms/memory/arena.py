"""The device memory that managed buffers use in turn: in one piece, or in pages with addresses for each plan."""

from __future__ import annotations

import weakref

from ..backend.device import Device, Span


class Arena:
    """Plans are those of `lms.plan.Plan`; several may be in use."""

    def __init__(self, device: Device):
        self.device = device
        self._whole: Span | None = None
        self._pages = None
        self._views: list[tuple[weakref.ref, Span]] = []

    @property
    def nbytes(self) -> int:
        """Device memory that it has."""
        whole = 0 if self._whole is None else self._whole.nbytes
        return whole + (0 if self._pages is None else self._pages.count * self.device.page)

    def of(self, plan) -> Span:
        """Where the offsets of a plan begin that was prepared; another object when the addresses are others."""
        if plan.paging is None:
            return self._whole
        return next(view for known, view in self._views if known() is plan.paging)

    def prepare(self, plan) -> None:
        """Take the memory that a plan needs; nothing is taken later, in the loop."""
        if plan.paging is None:
            self._in_one_piece(plan.arena_bytes)
            return
        paging = plan.paging
        if self._pages is None:
            self._pages = self.device.pages()
        gone = [view for known, view in self._views if known() is None]
        if gone:
            self.device.synchronize()
            self._views = [(known, view) for known, view in self._views if known() is not None]
        for view in gone:
            self._pages.drop(view)
        if any(known() is paging for known, _ in self._views):
            return
        first = paging.linear // paging.page
        self._pages.grow(first + paging.count)
        pieces = [(0, range(first))] if first else []
        pieces += [(offset, [first + p for p in pages]) for offset, pages in sorted(paging.pages.items())]
        self._views.append((weakref.ref(paging), self._pages.view(paging.size, pieces)))

    def _in_one_piece(self, nbytes: int) -> None:
        if self._whole is not None and self._whole.nbytes >= nbytes:
            return
        if self._whole is not None:
            self.device.synchronize()
            self.device.give(self._whole)
            self._whole = None
        self._whole = self.device.take(nbytes)

    def close(self) -> None:
        """Give everything back. Nothing that is queued uses it."""
        if self._whole is not None:
            self.device.give(self._whole)
        if self._pages is not None:
            self._pages.close()
        self._whole = self._pages = None
        self._views.clear()
