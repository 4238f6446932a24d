"""What follows a training from the command line: an observer that is made from flags before anything costly happens."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

from ..errors import UsageError
from ..solvers import Observer, Solver


class Watcher(Observer):
    """Made before the solver is, so that a missing package or folder is said then; `stop` comes after any end."""

    def start(self, solver: Solver) -> None:
        """The solver is made; training has not begun."""

    def stop(self) -> None:
        """Training is over, or failed; also where `start` raised."""


@contextmanager
def watched(solver: Solver, watchers: Sequence[Watcher]) -> Iterator[None]:
    """Within: the watchers observe the solver."""
    with ExitStack() as stack:
        for watcher in watchers:
            stack.callback(watcher.stop)
            watcher.start(solver)
        solver.observers += watchers
        yield


def check_place(path: str, flag: str) -> None:
    """Raises UsageError where no file of that name can be made."""
    if not Path(path).absolute().parent.is_dir() or Path(path).is_dir():
        raise UsageError(f"{flag} {path}: no file can be written there", fix="give a file in a folder that exists")
