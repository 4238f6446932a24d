"""How work grows with the size of a problem, counted so that a busy machine changes nothing."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable


def lines_run(work: Callable[[], object]) -> int:
    """Lines of Python that `work()` runs and calls that it makes, in all modules; every round of a loop counts."""
    count, before = 0, sys.gettrace()

    def trace(frame, event, arg):
        nonlocal count
        count += event in ("line", "call")
        return trace

    sys.settrace(trace)
    try:
        work()
    finally:
        sys.settrace(before)
    return count


def seconds_run(work: Callable[[], object]) -> float:
    """The least processor time of three runs of `work()`, for work that is done by one line of Python, in C."""

    def once() -> float:
        begin = time.process_time()
        work()
        return time.process_time() - begin

    return min(once() for _ in range(3))
