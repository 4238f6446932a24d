"""Read LMDB databases, those of BVLC Caffe and its tools included.

Records come in the byte order of their keys, and from the beginning again after the last. A process may read one
database through several sources.
See also: lmdb_writer.py; datum.py for the records.
"""

from __future__ import annotations

import logging
import os
import weakref
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

import lmdb

from ...errors import DataError, Where
from .lmdb_check import can_check, check_tree, read_metas
from .shared_handles import SharedHandles, check_usable

_log = logging.getLogger(__name__)
_READERS_IN_SHARED_LOCK = 126  # LMDB's default, so that Caffe can read a database that was first opened here


class LMDBSource:
    """Read the records of an LMDB folder, as they are when it is opened, with a cursor that wraps at the end.

    Only LMDB's `lock.mdb` is written, and not even that where the folder is read-only. A process may open a folder many
    times. A source serves one thread at a time, `len` any number.
    path: the folder (with `data.mdb` in it).
    Raises: DataError where the folder is absent, no LMDB, damaged, or being written to.
    """

    def __init__(self, path: str | os.PathLike[str]):
        self.path = os.fspath(path)
        real = _check_folder(self.path)
        environment = _ENVIRONMENTS.open(real, self.path)
        try:
            self._transaction = environment.begin()
        except lmdb.Error as error:
            _ENVIRONMENTS.close(real)
            raise _unreadable(self.path, error) from error
        self._finalizer = weakref.finalize(self, _release, self._transaction, real, os.getpid())
        # At exit a prefetch thread may still be inside LMDB; the system frees all resources anyway.
        self._finalizer.atexit = False
        try:
            if can_check():
                check_tree(Path(real, "data.mdb"), self._transaction.id())
            self._length: int = self._transaction.stat()["entries"]
            self._cursor = self._transaction.cursor()
            self._cursor.first()
        except BaseException as error:
            self.close()
            if isinstance(error, lmdb.Error):
                raise _unreadable(self.path, error) from error
            raise
        self._position = 0

    def __len__(self) -> int:
        """Return the number of records."""
        return self._length

    @property
    def position(self) -> int:
        """Return the index, in key order from 0, of the record that `next` returns."""
        return self._position

    def seek(self, record_index: int) -> None:
        """Move to a record; an index past the end counts on from the first record again.

        A move forward takes about a microsecond per ten keys and reads no values; a move back starts over.
        Raises: DataError where the database is empty or closed.
        """
        check_usable(self.path, self._finalizer.alive, self._length)
        target = record_index % self._length
        try:
            if target < self._position:
                self._cursor.first()
                self._position = 0
            # The first key that the iterator yields is that at the cursor.
            steps = target - self._position
            if steps:
                next(islice(self._cursor.iternext(values=False), steps, None))
            self._position = target
        except lmdb.Error as error:
            raise _unreadable(self.path, error) from error

    def next(self) -> tuple[bytes, bytes]:
        """Return (key, value) of the record at `position` and move on, from the last record to the first.

        Raises: DataError where the database is empty, closed or unreadable.
        """
        check_usable(self.path, self._finalizer.alive, self._length)
        try:
            record: tuple[bytes, bytes] = self._cursor.item()
            if self._position + 1 == self._length:
                _log.info("Restarting data prefetching from start.")
                self._cursor.first()
                self._position = 0
            else:
                self._cursor.next()
                self._position += 1
        except lmdb.Error as error:
            raise _unreadable(self.path, error) from error
        return record

    def records(self) -> Iterator[tuple[bytes, bytes]]:
        """Yield every (key, value) once, in key order, wherever `position` is; read it to the end before `close`.

        Raises: DataError where the database is empty, closed or unreadable.
        """
        check_usable(self.path, self._finalizer.alive, self._length)
        try:
            yield from self._transaction.cursor()
        except lmdb.Error as error:
            raise _unreadable(self.path, error) from error

    def close(self) -> None:
        """Close the database; a second call does nothing."""
        self._finalizer()

    def __enter__(self) -> LMDBSource:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()


def _release(transaction: lmdb.Transaction, real: str, process: int) -> None:
    if process == os.getpid():  # after a fork both belong to the parent
        transaction.abort()
        _ENVIRONMENTS.close(real)


def _open_environment(real: str, shown: str) -> lmdb.Environment:
    try:
        environment = _open_lmdb(real, lock=True)
    except lmdb.Error as error:
        if _may_write_lock(real):
            raise _unreadable(shown, error) from error
    else:
        environment.reader_check()  # free the slots of killed readers
        return environment
    try:  # the folder is read-only, so no writer shares the lock file and none is needed
        return _open_lmdb(real, lock=False)
    except lmdb.Error as error:
        raise _unreadable(shown, error) from error


_ENVIRONMENTS = SharedHandles("LMDB", _open_environment)


def _open_lmdb(real: str, lock: bool) -> lmdb.Environment:
    # Read-ahead stays on: records are read in key order, which is the order they were written in.
    # The size 0 leaves the map as large as the file needs.
    return lmdb.open(
        real, lock=lock, map_size=0, readonly=True, create=False, readahead=True, max_readers=_READERS_IN_SHARED_LOCK
    )


def _may_write_lock(real: str) -> bool:
    lock_file = os.path.join(real, "lock.mdb")
    return os.access(lock_file if os.path.exists(lock_file) else real, os.W_OK)


def _check_folder(path: str) -> str:
    """Check that a path is an LMDB folder with sound head pages, and return its real path."""
    where = Where(file=path)
    convert = "make it with `pycaffe-lms dataset` or convert_imageset"
    if not os.path.exists(path):
        raise DataError(
            "there is no database here",
            where=where,
            fix=f"correct the path (a relative one begins at {os.getcwd()}), or {convert}",
        )
    if os.path.isfile(path):
        raise DataError("a file, where an LMDB is a folder", where=where, fix="name the folder that holds data.mdb")
    if os.path.exists(os.path.join(path, "CURRENT")):
        raise DataError(
            "this is a LevelDB, but the backend is LMDB",
            where=where,
            fix=f"set data_param {{ backend: LEVELDB }}, or {convert}",
        )
    data_file = Path(path, "data.mdb")
    try:
        if not data_file.is_file():
            raise DataError(
                "not an LMDB: no data.mdb in this folder", where=where, fix=f"correct the path, or {convert}"
            )
        if can_check():
            read_metas(data_file)
    except OSError as error:
        raise DataError(
            f"cannot be read: {error.strerror or error}", where=where, fix="check the permissions"
        ) from error
    return os.path.realpath(path)


def _unreadable(path: str, error: lmdb.Error) -> DataError:
    return DataError(
        f"LMDB cannot read this database: {error}",
        where=Where(file=path),
        fix="check that no other program is writing it and that it was copied whole",
    )
