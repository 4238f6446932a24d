"""Read LevelDB databases, those of BVLC Caffe and its tools included.

Records come in the byte order of their keys, and from the beginning again after the last. A process may read one
database through several sources.
See also: leveldb_writer.py; datum.py for the records.
"""

from __future__ import annotations

import importlib
import logging
import os
import weakref
from collections.abc import Iterator
from types import ModuleType
from typing import Any

from ...errors import DataError, MissingDependency, Where
from .shared_handles import SharedHandles, check_usable

_log = logging.getLogger(__name__)


def load_plyvel(doing: str = "reading") -> ModuleType:
    """Import plyvel. Raises: MissingDependency with the pip line."""
    try:
        return importlib.import_module("plyvel")
    except ImportError:
        raise MissingDependency("plyvel", f"{doing} LevelDB databases", "'pycaffe-lms[leveldb]'") from None


class LevelDBSource:
    """Read the records of a LevelDB folder, as they are when it is opened, with a cursor that wraps at the end.

    LevelDB locks the folder against other processes and may rearrange its files; no record changes. A process may open
    a folder many times. A source serves one thread at a time. LevelDB does not know its number of records: the first
    pass over the end, or `len`, counts them.
    path: the folder (with the file CURRENT in it).
    Raises: DataError where the folder is absent, no LevelDB, damaged, or open in another process; MissingDependency
    without plyvel.
    """

    def __init__(self, path: str | os.PathLike[str]):
        self.path = os.fspath(path)
        real = _check_folder(self.path)
        self._errors = load_plyvel().Error
        self._database = _DATABASES.open(real, self.path)
        try:
            self._records = self._database.raw_iterator(verify_checksums=True, fill_cache=False)
        except BaseException as error:
            _DATABASES.close(real)
            if isinstance(error, self._errors):
                raise _unreadable(self.path, error) from error
            raise
        self._finalizer = weakref.finalize(self, _release, self._records, real, os.getpid())
        # At exit a prefetch thread may still be inside LevelDB; the system frees all resources anyway.
        self._finalizer.atexit = False
        self._length: int | None = None
        try:
            self._rewind()
        except BaseException:
            self.close()
            raise
        if not self._records.valid():
            self._length = 0

    def __len__(self) -> int:
        """Return the number of records. The first call may read the whole database."""
        if self._length is None:
            check_usable(self.path, self._finalizer.alive, None)
            try:
                with self._database.iterator(include_value=False, verify_checksums=True, fill_cache=False) as keys:
                    self._length = sum(1 for _ in keys)
            except self._errors as error:
                raise _unreadable(self.path, error) from error
        return self._length

    @property
    def position(self) -> int:
        """Return the index, in key order from 0, of the record that `next` returns."""
        return self._position

    def seek(self, record_index: int) -> None:
        """Move to a record; an index past the end counts on from the first record again.

        Forward moves read over the records between; a move back starts over.
        Raises: DataError where the database is empty, closed or unreadable.
        """
        check_usable(self.path, self._finalizer.alive, self._length)
        steps = (record_index if self._length is None else record_index % self._length) - self._position
        if steps < 0:
            steps += self._position
            self._rewind()
        while steps:
            known = self._length
            self._advance()
            steps -= 1
            if known is None and self._length is not None:
                steps %= self._length

    def next(self) -> tuple[bytes, bytes]:
        """Return (key, value) of the record at `position` and move on, from the last record to the first.

        Raises: DataError where the database is empty, closed or unreadable.
        """
        check_usable(self.path, self._finalizer.alive, self._length)
        try:
            record: tuple[bytes, bytes] = self._records.item()
        except self._errors as error:
            raise _unreadable(self.path, error) from error
        self._advance()
        if self._position == 0:
            _log.info("Restarting data prefetching from start.")
        return record

    def records(self) -> Iterator[tuple[bytes, bytes]]:
        """Yield every (key, value) once, in key order, wherever `position` is; read it to the end before `close`.

        Raises: DataError where the database is empty, closed or unreadable.
        """
        check_usable(self.path, self._finalizer.alive, self._length)
        try:
            with self._database.iterator(verify_checksums=True, fill_cache=False) as records:
                yield from records
        except self._errors as error:
            raise _unreadable(self.path, error) from error

    def close(self) -> None:
        """Close the database; a second call does nothing."""
        self._finalizer()

    def _advance(self) -> None:
        try:
            self._records.next()
            ended = not self._records.valid()
        except self._errors as error:
            raise _unreadable(self.path, error) from error
        self._position += 1
        if ended:
            self._length = self._position
            self._rewind()

    def _rewind(self) -> None:
        try:
            self._records.seek_to_first()
        except self._errors as error:
            raise _unreadable(self.path, error) from error
        self._position = 0

    def __enter__(self) -> LevelDBSource:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()


def _open_database(real: str, shown: str) -> Any:
    plyvel = load_plyvel()
    try:
        return plyvel.DB(real, create_if_missing=False, paranoid_checks=True, max_open_files=100)
    except plyvel.Error as error:
        raise _unreadable(shown, error) from error


_DATABASES = SharedHandles("LevelDB", _open_database)


def _release(records: Any, real: str, process: int) -> None:
    if process == os.getpid():  # after a fork both belong to the parent
        records.close()
        _DATABASES.close(real)


def _check_folder(path: str) -> str:
    """Check that a path is a LevelDB folder, as far as file names show it, and return its real path."""
    where = Where(file=path)
    if not os.path.exists(path):
        raise DataError(
            "there is no database here",
            where=where,
            fix=f"correct the path (a relative one begins at {os.getcwd()}), or make it with convert_imageset",
        )
    if os.path.isfile(path):
        raise DataError("a file, where a LevelDB is a folder", where=where, fix="name the folder that holds CURRENT")
    if os.path.isfile(os.path.join(path, "CURRENT")):
        return os.path.realpath(path)
    if os.path.isfile(os.path.join(path, "data.mdb")):
        raise DataError(
            "this is an LMDB, but the backend is LEVELDB, which Caffe takes where none is written",
            where=where,
            fix="set data_param { backend: LMDB }",
        )
    raise DataError("not a LevelDB: no file CURRENT in this folder", where=where, fix="correct the path")


def _unreadable(path: str, error: Exception) -> DataError:
    reason = error.args[0] if error.args else error
    reason = reason.decode("utf-8", "replace") if isinstance(reason, bytes) else str(reason)
    if "/LOCK: " in reason and "Permission" not in reason and "Read-only" not in reason:
        found, fix = "another program has this database open", "end that program, or give each one a copy"
    elif "Permission" in reason or "Read-only" in reason:
        found, fix = f"LevelDB has to write to its folder and may not: {reason}", "copy the database, or allow writing"
    else:
        found, fix = f"LevelDB cannot read this database: {reason}", "copy it again, or convert the pictures again"
    return DataError(found, where=Where(file=path), fix=fix)
