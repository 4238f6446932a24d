"""Share between displays in a terminal: the flag -progress, whether rich is there, log lines above the display."""

from __future__ import annotations

import argparse
import logging
import sys
from typing import Any

from ..errors import MissingDependency
from ..log import LOGGER

MODES = ("auto", "bar", "log")


def add_progress(p: argparse._ActionsContainer, bar: str, log: str) -> None:
    """Declare -progress; bar, log: what is shown in these modes."""
    p.add_argument(
        "--progress",
        choices=MODES,
        default="auto",
        help=f"bar: {bar} (needs the package rich); log: {log}; auto: bar where stderr is a terminal and rich is "
        "installed, else log",
    )


def wants_bar(mode: str) -> bool:
    """Tell whether a mode means a bar here. Raises MissingDependency for mode bar without rich."""
    if mode == "bar" and not has_rich():
        raise MissingDependency("rich", "-progress bar", "'pycaffe-lms[progress]'", "-progress log")
    return mode == "bar" or (mode == "auto" and sys.stderr.isatty() and has_rich())


def has_rich() -> bool:
    """Tell whether rich is installed."""
    try:
        import rich  # noqa: F401
    except ImportError:
        return False
    return True


class Screen:
    """Start and stop a display of rich's on stderr (a Progress, a Live); log lines appear above it."""

    def __init__(self, drawn: Any):
        self._drawn = drawn
        self._streams: list[tuple[logging.StreamHandler[Any], Any]] = []

    def start(self) -> None:
        """Begin to draw."""
        before = sys.stderr
        self._drawn.start()
        if sys.stderr is before:
            return
        # In a terminal, rich has replaced sys.stderr by a stream that prints above the bar; handlers hold the old one.
        for handler in logging.getLogger(LOGGER).handlers:
            if isinstance(handler, logging.StreamHandler) and handler.stream is before:
                self._streams.append((handler, handler.setStream(sys.stderr)))

    def stop(self) -> None:
        """Draw no more, and log to the streams of before."""
        self._drawn.stop()
        for handler, stream in self._streams:
            handler.setStream(stream)
        self._streams.clear()
