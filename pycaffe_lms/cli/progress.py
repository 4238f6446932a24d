"""How far a conversion is: a bar with its rate in a terminal, Caffe's log lines everywhere else.

See also: data/conversion.py, whose `Progress` this is.
"""

from __future__ import annotations

import argparse
import logging
import sys
from typing import Any

from ..errors import MissingDependency
from ..log import LOGGER

_log = logging.getLogger(__name__)
MODES = ("auto", "bar", "log")


def add_progress(p: argparse.ArgumentParser) -> None:
    """-progress."""
    p.add_argument(
        "--progress",
        choices=MODES,
        default="auto",
        help="bar: a bar with its rate (needs the package rich); log: a line every so many; auto: a bar where stderr "
        "is a terminal and rich is installed",
    )


class Progress:
    """Called as progress(done, total or None) after each record, inside its `with`; a smaller `done` begins a new one.

    mode: of MODES. every: records between two log lines. Raises: MissingDependency for mode bar without rich.
    """

    def __init__(self, mode: str = "auto", *, every: int = 1000):
        self._every = every
        self._done = self._logged = 0
        self._bar = _Bar() if mode == "bar" or (mode == "auto" and sys.stderr.isatty() and _has_rich()) else None

    def __enter__(self) -> Progress:
        if self._bar:
            self._bar.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, *rest: object) -> None:
        if self._bar:
            self._bar.stop()
        if kind is None:
            self._last_line()

    def __call__(self, done: int, total: int | None) -> None:
        if done < self._done:
            self._last_line()
            self._logged = 0
        self._done = done
        if self._bar:
            self._bar.show(done, total)
        elif done % self._every == 0 and done > self._logged:
            self._line()

    def _last_line(self) -> None:
        """Caffe: one more line for what is left over when the number is not a multiple."""
        if self._done > self._logged:
            self._line()

    def _line(self) -> None:
        self._logged = self._done
        _log.info("Processed %d files.", self._done)


class _Bar:
    """rich's bar on stderr; log lines appear above it."""

    def __init__(self) -> None:
        if not _has_rich():
            raise MissingDependency("rich", "-progress bar", "'pycaffe-lms[progress]'", "-progress log")
        from rich import progress
        from rich.console import Console

        self._bar = progress.Progress(
            progress.BarColumn(), progress.MofNCompleteColumn(), progress.TextColumn("{task.fields[rate]}"),
            progress.TimeElapsedColumn(), progress.TimeRemainingColumn(), console=Console(stderr=True),
        )  # fmt: skip
        self._task: Any = None
        self._done = 0
        self._streams: list[tuple[logging.StreamHandler, Any]] = []

    def start(self) -> None:
        before = sys.stderr
        self._bar.start()
        if sys.stderr is before:
            return
        # In a terminal rich replaced it by what prints above the bar; the log's handler still holds the old one.
        for handler in logging.getLogger(LOGGER).handlers:
            if isinstance(handler, logging.StreamHandler) and handler.stream is before:
                self._streams.append((handler, handler.setStream(sys.stderr)))

    def show(self, done: int, total: int | None) -> None:
        if self._task is None or done < self._done:
            self._task = self._bar.add_task("", total=total, rate="")
        self._done = done
        task = self._bar.tasks[-1]
        speed = task.finished_speed or task.speed
        self._bar.update(self._task, completed=done, total=total, rate=f"{speed:.0f} files/s" if speed else "")

    def stop(self) -> None:
        self._bar.stop()
        for handler, stream in self._streams:
            handler.setStream(stream)
        self._streams.clear()


def _has_rich() -> bool:
    try:
        import rich  # noqa: F401
    except ImportError:
        return False
    return True
