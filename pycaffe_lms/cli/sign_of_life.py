"""Say on stderr that a command is still at work, once it has been for a second."""

from __future__ import annotations

import sys
import threading
import time
from types import TracebackType

_AFTER = 1.0  # seconds
_EVERY = 0.5


class SignOfLife:
    """Within: say after a second what is being done. In a terminal the line counts the seconds and vanishes at the end.

    what: what is being done, for example "planning net.prototxt".
    """

    def __init__(self, what: str):
        self._what, self._done, self._lock = what, threading.Event(), threading.Lock()
        self._thread = threading.Thread(target=self._run, name="sign of life", daemon=True)
        self._shown = ""
        self._stream = sys.stderr

    def __enter__(self) -> SignOfLife:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._done.set()
        self._thread.join()
        self.clear()

    def clear(self) -> None:
        """Remove the line from a terminal, before something else is printed."""
        with self._lock:
            if self._shown:
                self._stream.write("\r" + " " * len(self._shown) + "\r")
                self._stream.flush()
                self._shown = ""

    def _run(self) -> None:
        began = time.monotonic()
        if self._done.wait(_AFTER):
            return
        if not self._stream.isatty():
            self._stream.write(f"{self._what} ...\n")
            self._stream.flush()
            return
        while True:
            with self._lock:
                self._shown = f"{self._what} ... {time.monotonic() - began:.0f} s"
                self._stream.write("\r" + self._shown)
                self._stream.flush()
            if self._done.wait(_EVERY):
                return
