"""Shows a progress bar while a solver trains, on a terminal or in a notebook; with rich where it is installed.

Programs read the log (`log.py`) instead.
"""

from __future__ import annotations

import importlib.util
import math
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any, Protocol, TextIO

from .viz.notebook import in_notebook

if TYPE_CHECKING:
    from .solvers import Solver

_PERIOD_S = 0.1  # least time between two pictures
_WIDTH = 30  # characters of a bar


class Bar(Protocol):
    """Show how many iterations are done, with words beside it."""

    def show(self, done: int, words: str) -> None: ...

    def close(self) -> None: ...


class PlainBar:
    """Draw a bar of text by overwriting one line."""

    def __init__(self, title: str, total: int, stream: TextIO):
        self._title, self._total, self._stream, self._length = title, total, stream, 0

    def show(self, done: int, words: str) -> None:
        filled = _WIDTH * done // max(1, self._total)
        bar = "#" * filled + "." * (_WIDTH - filled)
        text = f"{self._title} [{bar}] {done}/{self._total}  {words}"
        self._stream.write("\r" + text.ljust(self._length))
        self._stream.flush()
        self._length = len(text)

    def close(self) -> None:
        self._stream.write("\n")
        self._stream.flush()


class RichBar:
    """Draw rich's bar, on the training thread. rich: the module `rich.progress`; console: a `rich.console.Console`."""

    def __init__(self, rich: Any, title: str, total: int, console: Any):
        columns = (
            rich.TextColumn("{task.description}"),
            rich.BarColumn(),
            rich.MofNCompleteColumn(),
            rich.TimeRemainingColumn(),
            rich.TextColumn("{task.fields[words]}"),
        )
        self._progress = rich.Progress(*columns, console=console, auto_refresh=False)
        self._task = self._progress.add_task(title, total=total, words="")
        self._progress.start()

    def show(self, done: int, words: str) -> None:
        self._progress.update(self._task, completed=done, words=words, refresh=True)

    def close(self) -> None:
        self._progress.stop()


def make_bar(title: str, total: int, stream: TextIO | None = None, *, always: bool = False) -> Bar | None:
    """Return a bar for a stream (default: stderr); None where it is neither terminal nor notebook, unless `always`."""
    stream = stream or sys.stderr
    with suppress(ImportError):
        console = importlib.import_module("rich.console").Console(file=stream, force_terminal=always or None)
        if console.is_jupyter and importlib.util.find_spec("ipywidgets") is None:
            return PlainBar(title, total, stream)  # rich warns at every picture there
        if console.is_terminal or console.is_jupyter:
            return RichBar(importlib.import_module("rich.progress"), title, total, console)
        return None
    return PlainBar(title, total, stream) if always or stream.isatty() or in_notebook() else None


@contextmanager
def shown(solver: Solver, bar: Bar | None) -> Iterator[None]:
    """Within: let the bar follow the solver's iterations; it is redrawn at most ten times a second."""
    if bar is None:
        yield
        return
    before, last = solver.around_iteration, -math.inf

    @contextmanager
    def iteration() -> Iterator[None]:
        nonlocal last
        with before():
            yield
        now = time.monotonic()
        if now - last >= _PERIOD_S:
            last = now
            bar.show(solver.iter + 1, f"loss {solver.mean_loss:.4g}")  # the iteration counts after this

    solver.around_iteration, solver.asks_loss = iteration, True
    try:
        bar.show(solver.iter, "")
        yield
        bar.show(solver.iter, f"loss {solver.mean_loss:.4g}")
    finally:
        solver.around_iteration, solver.asks_loss = before, False
        bar.close()
