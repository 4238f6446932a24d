"""Memory in pages that stand behind addresses as the caller says: what is shared by the GPU's and the simulated one's.

Covers: how many pages there are, which views on them, and giving everything back.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import Protocol

from .device import Span

Piece = tuple[int, Sequence[int]]  # where in a view; the pages that stand there, in order


class Pages(Protocol):
    """Device memory in pages of one size, numbered from 0."""

    count: int

    def grow(self, count: int) -> None:
        """Have at least `count` pages. Raises OutOfDeviceMemory; then there are as many as before."""

    def shrink(self, count: int) -> None:
        """Give back those from number `count` on. No view has them, and nothing that is queued uses them."""

    def view(self, nbytes: int, pieces: Iterable[Piece]) -> Span:
        """Addresses for `nbytes`, with pages behind some of them; a page may stand in many places at once. Whoever
        writes in one of them and reads in another orders the two, as with any memory."""

    def drop(self, view: Span) -> None:
        """Give a view's addresses back. Nothing uses them, and nothing that is queued does."""

    def close(self) -> None:
        """Give all views and pages back. Nothing that is queued uses them."""


def runs(pages: Sequence[int]) -> list[tuple[int, int, int]]:
    """(index of the first, its page, how many) of the stretches of consecutive pages."""
    if not pages:
        return []
    cuts = [0, *(i + 1 for i, (a, b) in enumerate(pairwise(pages)) if b != a + 1), len(pages)]
    return [(a, pages[a], b - a) for a, b in pairwise(cuts)]
