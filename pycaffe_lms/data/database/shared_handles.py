"""Share open databases within the process: LMDB and LevelDB forbid opening one folder twice."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from typing import Any

from ...errors import DataError, Where


class SharedHandles:
    """Hold open handles by real path, with the number of their users.

    library: named in errors. opener: opens (real path, path for errors).
    """

    def __init__(self, library: str, opener: Callable[[str, str], Any]) -> None:
        self._library, self._opener = library, opener
        self._lock = threading.RLock()  # re-entrant: garbage collection may close a source inside `open`
        self._open: dict[str, tuple[Any, int, int]] = {}

    def open(self, real: str, shown: str) -> Any:
        """Return the handle of a folder; every call needs a `close`. Raises: DataError after a fork; as `opener`."""
        with self._lock:
            handle, users, process = self._open.get(real, (None, 0, os.getpid()))
            if process != os.getpid():
                raise DataError(
                    f"opened by the parent process before this one was forked; {self._library} cannot be used on both "
                    "sides",
                    where=Where(file=shown),
                    fix='start processes with multiprocessing\'s method "spawn", or open databases after the fork',
                )
            if handle is None:
                handle = self._opener(real, shown)
            self._open[real] = (handle, users + 1, process)
            return handle

    def close(self, real: str) -> None:
        with self._lock:
            handle, users, process = self._open.pop(real)
            if users > 1:
                self._open[real] = (handle, users - 1, process)
            else:
                handle.close()


def check_usable(path: str, is_open: bool, length: int | None) -> None:
    """Raise DataError for a database that is closed or empty. length: number of records, None where it is unknown."""
    where = Where(file=path)
    if not is_open:
        raise DataError("the database has been closed", where=where, fix="open it again")
    if length == 0:
        fix = "convert the pictures again and check the messages of that run"
        raise DataError("the database holds no records", where=where, fix=fix)
