"""Notes what the main thread of this process does, and since when, for those who watch that it goes on.

Only `parallel/pulse.py` looks, in processes of several ranks. Noting costs less than a microsecond.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass


@dataclass(frozen=True)
class Doing:
    """Say what a thread does.

    Args:
        what: for messages, such as "iteration 57".
        since: as `time.monotonic()`; begins anew when something within it has ended.
        bounded: it is expected to end soon; False: it may take as long as it wants, as a wait for other ranks does.
    """

    what: str
    since: float
    bounded: bool


class Activity:
    """Hold what the main thread does.

    Attributes:
        now: the innermost of what it does.
        layer: name of the layer that runs; "": none.
        passes: number of passes of layers so far, which are progress too.
    """

    def __init__(self) -> None:
        self.now = Doing("the start", time.monotonic(), False)
        self.layer = ""
        self.passes = 0

    @contextmanager
    def doing(self, what: str, *, bounded: bool) -> Iterator[None]:
        """Within: note this, if the main thread calls."""
        if threading.get_ident() != threading.main_thread().ident:
            yield
            return
        before = self.now
        self.now = Doing(what, time.monotonic(), bounded)
        try:
            yield
        finally:
            self.now = Doing(before.what, time.monotonic(), before.bounded)


activity = Activity()
