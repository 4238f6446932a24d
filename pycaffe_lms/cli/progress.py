"""Show how far a conversion is: a bar with its rate in a terminal, Caffe's log lines everywhere else.

`data/sets/conversion.py` calls it; `live/live.py` does the same for a training.
"""

from __future__ import annotations

import argparse
import logging
from typing import Any

from . import terminal

_log = logging.getLogger(__name__)


def add_progress(p: argparse.ArgumentParser) -> None:
    """Declare -progress."""
    terminal.add_progress(p, "a bar with its rate", "a line every so many")


class Progress:
    """Show the progress of `with Progress() as progress: progress(done, total or None)`, called after each record.

    A smaller `done` begins again.

    Args:
        mode: of terminal.MODES.
        every: records between two log lines; None: the caller writes lines.
        unit: what a record is.

    Raises:
        MissingDependency: mode bar without rich.
    """

    def __init__(self, mode: str = "auto", *, every: int | None = 1000, unit: str = "files"):
        self._every = every
        self._done = self._logged = 0
        self._bar = _Bar(unit) if terminal.wants_bar(mode) else None

    def __enter__(self) -> Progress:
        if self._bar:
            self._bar.screen.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, *rest: object) -> None:
        if self._bar:
            self._bar.screen.stop()
        if kind is None:
            self._last_line()

    def __call__(self, done: int, total: int | None) -> None:
        if done < self._done:
            self._last_line()
            self._logged = 0
        self._done = done
        if self._bar:
            self._bar.show(done, total)
        elif self._every and done % self._every == 0 and done > self._logged:
            self._line()

    def _last_line(self) -> None:
        """Log, as Caffe does, one more line if the number of records is no multiple of `every`."""
        if self._every and self._done > self._logged:
            self._line()

    def _line(self) -> None:
        self._logged = self._done
        _log.info("Processed %d files.", self._done)


class _Bar:
    """Draw rich's bar on stderr."""

    def __init__(self, unit: str) -> None:
        from rich import progress
        from rich.console import Console

        self._bar = progress.Progress(
            progress.BarColumn(),
            progress.MofNCompleteColumn(),
            progress.TextColumn("{task.fields[rate]}"),
            progress.TimeElapsedColumn(),
            progress.TimeRemainingColumn(),
            console=Console(stderr=True),
        )
        self.screen = terminal.Screen(self._bar)
        self._task: Any = None
        self._done, self._unit = 0, unit

    def show(self, done: int, total: int | None) -> None:
        if self._task is None or done < self._done:
            self._task = self._bar.add_task("", total=total, rate="")
        self._done = done
        task = self._bar.tasks[-1]
        speed = task.finished_speed or task.speed
        self._bar.update(self._task, completed=done, total=total, rate=f"{speed:.0f} {self._unit}/s" if speed else "")
