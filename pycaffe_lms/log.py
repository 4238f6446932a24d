"""Formats log lines as Caffe printed them (glog's old prefix, without a year), so that existing parsers read them.

`I0210 13:39:22.381027 25210 solver.py:204] Iteration 100, loss = 0.2`
"""

from __future__ import annotations

import logging
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

LOGGER = "pycaffe_lms"
_LETTERS = {logging.DEBUG: "I", logging.INFO: "I", logging.WARNING: "W", logging.ERROR: "E", logging.CRITICAL: "F"}


class GlogFormatter(logging.Formatter):
    """Write severity letter, MMDD, time with microseconds, thread id, file:line, message."""

    def format(self, record: logging.LogRecord) -> str:
        clock = time.localtime(record.created)
        micros = int(record.created % 1 * 1e6)
        letter = _LETTERS.get(record.levelno, "I")
        stamp = f"{letter}{time.strftime('%m%d %H:%M:%S', clock)}.{micros:06d}"
        head = f"{stamp} {threading.get_native_id()} {record.filename}:{record.lineno}] "
        return head + record.getMessage()


@contextmanager
def log_to_stderr(
    level: int = logging.INFO, only: Callable[[logging.LogRecord], bool] = lambda record: True
) -> Iterator[None]:
    """Within: print the package's log on stderr in Caffe's format. Commands call it; library users set up logging.

    only: says whether a record is printed."""
    logger = logging.getLogger(LOGGER)
    before = logger.level, logger.propagate
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(GlogFormatter())
    handler.addFilter(only)
    logger.addHandler(handler)
    logger.setLevel(level)
    logger.propagate = False
    try:
        yield
    finally:
        logger.removeHandler(handler)
        logger.setLevel(before[0])
        logger.propagate = before[1]


@contextmanager
def log_to_file(path: Path) -> Iterator[None]:
    """Within: write the package's whole log to a new file too; what is printed stays the same."""
    logger = logging.getLogger(LOGGER)
    before, printing = logger.level, list(logger.handlers)
    handler = logging.FileHandler(path, "w", encoding="utf-8")
    handler.setFormatter(GlogFormatter())
    for other in printing:
        other.setLevel(before)
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    try:
        yield
    finally:
        logger.removeHandler(handler)
        handler.close()
        logger.setLevel(before)
        for other in printing:
            other.setLevel(logging.NOTSET)


@contextmanager
def only_warnings() -> Iterator[None]:
    """Within: print warnings and errors only, for commands whose result says the rest better."""
    logger = logging.getLogger(LOGGER)
    before = logger.level
    logger.setLevel(max(before, logging.WARNING))
    try:
        yield
    finally:
        logger.setLevel(before)
