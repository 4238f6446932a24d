"""Inject faults, for tests: the n-th operation of a kind fails as the real one would.

This module counts operations and says which of them fail. The code that was about to run the operation raises the
error; only errors of files are raised here.
"""

from __future__ import annotations

import errno
import os
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

DEVICE = ("allocation", "host allocation", "copy", "event", "operation")
"""Operations of a simulated device. All fail at their call, but "operation" (a kernel, copy or fill), which is counted
and fails each time that queued work runs, because errors of a GPU's work come late."""
FILES = ("write", "fsync", "rename")
RANKS = ("rank",)
"""An exchange with the other ranks; the rank leaves them before it."""
KINDS = (*DEVICE, *FILES, *RANKS)
_ERRORS = {"write": errno.ENOSPC, "fsync": errno.EIO, "rename": errno.EACCES}


class Faults:
    """Count operations of every kind, and let those of the plan fail. Threads may share it.

    Args:
        plan: pairs (kind, n): the n-th operation of this kind fails, counted from 1; none: operations are only counted.
        lasting: all later operations of any kind fail too, as on a GPU or disk that is lost.

    Attributes:
        counts: operations so far, by kind.
        failed: the pairs of the plan that failed, in order.
    """

    def __init__(self, *plan: tuple[str, int], lasting: bool = False):
        for kind, n in plan:
            if kind not in KINDS or n < 1:
                raise ValueError(f"fault {kind!r} number {n}: kinds are {', '.join(KINDS)}, numbers start at 1")
        self._plan, self._lasting = frozenset(plan), lasting
        self._lock = threading.Lock()
        self.counts: Counter[str] = Counter()
        self.failed: list[tuple[str, int]] = []

    def strikes(self, kind: str) -> bool:
        """Count one more operation of a kind; return whether it must fail."""
        with self._lock:
            self.counts[kind] += 1
            fault = kind, self.counts[kind]
            if fault in self._plan:
                self.failed.append(fault)
            return fault in self._plan or (self._lasting and bool(self.failed))


_of_files: Faults | None = None


@contextmanager
def in_files(faults: Faults) -> Iterator[Faults]:
    """Within: let this process's atomic file writes, in any thread, follow this plan."""
    global _of_files
    before, _of_files = _of_files, faults
    try:
        yield faults
    finally:
        _of_files = before


def of_files(kind: str) -> None:
    """Count an operation of the file layer, before it runs. Raise OSError if the plan says so."""
    if _of_files is not None and _of_files.strikes(kind):
        code = _ERRORS[kind]
        raise OSError(code, f"{os.strerror(code)} (on purpose)")
