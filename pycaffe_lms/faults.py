"""Faults on purpose, for tests: the n-th operation of a kind fails as the real one would.

Covers: kinds, counting, which operation fails, the plan of the file layer.
Does not cover: which error comes of it: that is the business of who was about to do the operation.
"""

from __future__ import annotations

import errno
import os
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

DEVICE = ("allocation", "host allocation", "copy", "event", "operation")
"""Of a simulated device. All fail when they are asked for but "operation", which fails when queued work runs: a kernel,
a copy or a fill, at each of its runs counted anew, as errors of a GPU's work come late."""
FILES = ("write", "fsync", "rename")
RANKS = ("rank",)
"""An exchange with the other ranks, before which the rank parts from them."""
KINDS = (*DEVICE, *FILES, *RANKS)
_ERRORS = {"write": errno.ENOSPC, "fsync": errno.EIO, "rename": errno.EACCES}


class Faults:
    """Counts operations of every kind, and lets those of the plan fail. Threads may share it.

    plan: pairs of a kind and n: the n-th operation of this kind fails, counted from 1; without any, operations are only
    counted. lasting: with it all that follow fail too, of any kind, as on a GPU that is lost, or a disk.
    `counts`: operations so far, by kind. `failed`: what the plan let fail, in order."""

    def __init__(self, *plan: tuple[str, int], lasting: bool = False):
        for kind, n in plan:
            if kind not in KINDS or n < 1:
                raise ValueError(f"fault {kind!r} number {n}: kinds are {', '.join(KINDS)}, numbers start at 1")
        self._plan, self._lasting = frozenset(plan), lasting
        self._lock = threading.Lock()
        self.counts: Counter[str] = Counter()
        self.failed: list[tuple[str, int]] = []

    def strikes(self, kind: str) -> bool:
        """Count one more operation of a kind; returns whether it must fail."""
        with self._lock:
            self.counts[kind] += 1
            fault = kind, self.counts[kind]
            if fault in self._plan:
                self.failed.append(fault)
            return fault in self._plan or (self._lasting and bool(self.failed))


_of_files: Faults | None = None


@contextmanager
def in_files(faults: Faults) -> Iterator[Faults]:
    """Within: what this process writes whole or not at all, in any thread, follows this plan too."""
    global _of_files
    before, _of_files = _of_files, faults
    try:
        yield faults
    finally:
        _of_files = before


def of_files(kind: str) -> None:
    """Called before each operation of the file layer. Raises OSError where the plan says so."""
    if _of_files is not None and _of_files.strikes(kind):
        code = _ERRORS[kind]
        raise OSError(code, f"{os.strerror(code)} (on purpose)")
