"""Read a database with a cursor over its records, in the byte order of their keys, that wraps at the end.

`DatabaseSource` is the cursor; lmdb_source.py and leveldb_source.py say how the two libraries open a folder and read.
`SharedHandles` lets a process read one folder through several sources, which both libraries forbid.
See also: open.py, which opens a database by the name of its backend; datum.py for the records.
"""

from __future__ import annotations

import logging
import os
import threading
import weakref
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any, ClassVar

from ...errors import DataError, Where

_log = logging.getLogger(__name__)
_MADE_BY = {  # what makes the data of the zoo's models; of the others the model's README tells
    "data/digits/": "pycaffe-lms dataset digits",
    "data/shapes/": "pycaffe-lms dataset shapes",
    "data/mnist/mnist_t": "pycaffe-lms dataset mnist -from FOLDER",
    "data/cifar10/": "pycaffe-lms dataset cifar10 -from FOLDER",
    "data/ilsvrc12/": "pycaffe-lms dataset imagenet -from FOLDER",
    "data/volumes/": "pycaffe-lms dataset volumes -list FILE",
    "data/tales/": "pycaffe-lms dataset text",
}


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


class DatabaseSource(ABC):
    """Read the records of a database folder, as they are when it is opened.

    A process may open a folder many times. A source serves one thread at a time.
    path: the folder.
    Raises: DataError where the folder is absent, no database of this kind, damaged, or in use elsewhere.
    """

    handles: ClassVar[SharedHandles]
    _length: int | None = None  # the number of records; None: not counted yet
    _position = 0
    _restarted = False  # and said so

    def __init__(self, path: str | os.PathLike[str]):
        self.path = os.fspath(path)
        real = self._check_folder()
        handle = self.handles.open(real, self.path)
        try:
            with self._reading():
                end = self._begin(handle)
        except BaseException:
            self.handles.close(real)
            raise
        self._finalizer = weakref.finalize(self, _release, end, self.handles, real, os.getpid())
        # At exit a prefetch thread may still be inside the library; the system frees all resources anyway.
        self._finalizer.atexit = False
        try:
            with self._reading():
                if not self._first():
                    self._length = 0
        except BaseException:
            self.close()
            raise

    # -- what a library does: its exceptions are translated here ---------------------------------------------------
    @abstractmethod
    def _check_folder(self) -> str:
        """Check that `path` is a database of this kind, as far as its files show, and return its real path."""

    @abstractmethod
    def _unreadable(self, error: Exception) -> DataError | None:
        """Return the error for an exception of the library; None for another exception."""

    @abstractmethod
    def _begin(self, handle: Any) -> Callable[[], object]:
        """Begin to read, and return what ends it, which must not refer to this object."""

    @abstractmethod
    def _first(self) -> bool:
        """Move to the first record; return whether there is one."""

    @abstractmethod
    def _advance(self) -> bool:
        """Move to the next record; return whether there is one."""

    @abstractmethod
    def _item(self) -> tuple[bytes, bytes]:
        """Return (key, value) of the record at the cursor."""

    @abstractmethod
    def _all(self) -> AbstractContextManager[Iterator[tuple[bytes, bytes]]]:
        """Return, to be entered, every (key, value), with a cursor of their own."""

    # -- the cursor ------------------------------------------------------------------------------------------------
    def __len__(self) -> int:
        """Return the number of records. The first call may read the whole database."""
        if self._length is None:
            self._length = sum(1 for _ in self.records())
        return self._length

    @property
    def known_length(self) -> int | None:
        """Return the number of records, None as long as it is not known without reading them."""
        return self._length

    @property
    def position(self) -> int:
        """Return the index, in key order from 0, of the record that `next` returns."""
        return self._position

    def seek(self, record_index: int) -> None:
        """Move to a record; an index past the end counts on from the first record again.

        A move forward steps over the records between; a move back starts over.
        Raises: DataError where the database is empty, closed or unreadable.
        """
        self._check_usable()
        steps = (record_index if self._length is None else record_index % self._length) - self._position
        with self._reading():
            if steps < 0:
                steps += self._position
                self._rewind()
            while steps:
                known = self._length
                self._step()
                steps -= 1
                if known is None and self._length is not None:
                    steps %= self._length

    def next(self) -> tuple[bytes, bytes]:
        """Return (key, value) of the record at `position` and move on, from the last record to the first.

        Raises: DataError where the database is empty, closed or unreadable.
        """
        self._check_usable()
        with self._reading():
            record = self._item()
            self._step()
        if self._position == 0 and not self._restarted:
            self._restarted = True
            _log.info(
                "Restarting data prefetching from start, as after every %d records from now on (logged once).",
                len(self),
            )
        return record

    def records(self) -> Iterator[tuple[bytes, bytes]]:
        """Yield every (key, value) once, in key order, wherever `position` is; read it to the end before `close`.

        Raises: DataError where the database is empty, closed or unreadable.
        """
        self._check_usable()
        with self._reading(), self._all() as records:
            yield from records

    def close(self) -> None:
        """Close the database; a second call does nothing."""
        self._finalizer()

    def __enter__(self) -> DatabaseSource:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()

    def _step(self) -> None:
        self._position += 1
        if not self._advance():
            self._length = self._position
            self._rewind()

    def _rewind(self) -> None:
        self._first()
        self._position = 0

    def _check_usable(self) -> None:
        """Raise DataError for a database that is closed, or known to be empty."""
        where = Where(file=self.path)
        if not self._finalizer.alive:
            raise DataError("the database has been closed", where=where, fix="open it again")
        if self._length == 0:
            fix = "convert the pictures again and check the messages of that run"
            raise DataError("the database holds no records", where=where, fix=fix)

    @contextmanager
    def _reading(self) -> Iterator[None]:
        """Within: raise DataError for an exception of the library."""
        try:
            yield
        except Exception as error:
            found = self._unreadable(error)
            if found is None:
                raise
            raise found from error


def _release(end: Callable[[], object], handles: SharedHandles, real: str, process: int) -> None:
    if process == os.getpid():  # after a fork both belong to the parent
        end()
        handles.close(real)


def made_by(path: str) -> str | None:
    """Return the command that makes the database of the zoo at this path; None: it is not one of the zoo's."""
    return next((command for prefix, command in _MADE_BY.items() if path.startswith(prefix)), None)


def check_is_folder(path: str, name: str, marker: str, make: str) -> None:
    """Raise DataError unless a path is a folder. name: the kind of database, with its article; marker: a file that each
    has; make: what makes one."""
    where = Where(file=path)
    if not os.path.exists(path):
        command = made_by(path)
        make = f"make it with `{command}`" if command else make
        raise DataError(
            "there is no database here",
            where=where,
            fix=f"correct the path (a relative one begins at {os.getcwd()}), or {make}",
        )
    if os.path.isfile(path):
        raise DataError(f"a file, where {name} is a folder", where=where, fix=f"name the folder that holds {marker}")
