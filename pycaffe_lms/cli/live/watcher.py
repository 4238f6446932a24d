"""Define watchers: observers of a training that flags ask for, made before anything costly happens.

What goes wrong before training is an error. Later, on a full disk say, a watcher is dropped with one warning: a
training must not end because of what only reports it.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from typing import Any

from ...errors import CaffeError, Where
from ...solvers import Observer, Solver
from ...solvers.events import Display, Done, Evaluation, Snapshot, Start

_log = logging.getLogger(__name__)


class Watcher(Observer):
    """Observe one training. It is made before the solver, so that a missing package or folder is an error then."""

    def start(self, solver: Solver) -> None:
        """Get ready: the solver is made, training has not begun."""

    def stop(self) -> None:
        """Finish: training is over or failed, `start` raised, or the watcher was dropped."""


class _Dropped(Observer):
    """Hand a watcher its events until one raises OSError or CaffeError; then stop it."""

    def __init__(self, watcher: Watcher):
        self._watcher: Watcher | None = watcher

    def _tell(self, event: str, *what: Any) -> None:
        if self._watcher is None:
            return
        try:
            getattr(self._watcher, event)(*what)
        except (OSError, CaffeError) as error:
            _log.warning("%s; training goes on without it", str(error).replace("\n", ";"))
            watcher, self._watcher = self._watcher, None
            with suppress(OSError, CaffeError):
                watcher.stop()

    def on_start(self, start: Start) -> None:
        self._tell("on_start", start)

    def on_display(self, display: Display) -> None:
        self._tell("on_display", display)

    def on_test(self, test: Evaluation) -> None:
        self._tell("on_test", test)

    def on_snapshot(self, snapshot: Snapshot) -> None:
        self._tell("on_snapshot", snapshot)

    def on_done(self, done: Done) -> None:
        self._tell("on_done", done)

    def stop(self) -> None:
        self._tell("stop")


@contextmanager
def watched(solver: Solver, watchers: Sequence[Watcher]) -> Iterator[None]:
    """Within: let the watchers observe the solver, each until it fails."""
    with ExitStack() as stack:
        observers = [_Dropped(watcher) for watcher in watchers]
        for watcher, observer in zip(watchers, observers, strict=True):
            stack.callback(observer.stop)
            watcher.start(solver)
        solver.observers += observers
        yield


def append(file: int, path: str, record: bytes) -> None:
    """Write a record at the end of a file that is open for it, whole or not at all. Raises CaffeError."""
    size, reason = os.fstat(file).st_size, "the disk is full"
    try:
        if os.write(file, record) == len(record):
            return
    except OSError as error:
        reason = error.strerror or str(error)
    with suppress(OSError):  # a device cannot be cut
        os.ftruncate(file, size)
    raise CaffeError(f"cannot be written: {reason}", where=Where(file=path), fix="make room on that disk")
