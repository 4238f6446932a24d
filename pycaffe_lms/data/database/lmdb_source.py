"""Read LMDB databases, those of BVLC Caffe and its tools included.

See also: source.py for the cursor; lmdb_writer.py; datum.py for the records.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path

import lmdb

from ...errors import DataError, Where
from .lmdb_check import can_check, check_tree, read_metas
from .source import DatabaseSource, SharedHandles, check_is_folder

_READERS_IN_SHARED_LOCK = 126  # LMDB's default, so that Caffe can read a database that was first opened here


def _open_environment(real: str, shown: str) -> lmdb.Environment:
    try:
        environment = _open_lmdb(real, lock=True)
    except lmdb.Error as error:
        if _may_write_lock(real):
            raise _refused(shown, error) from error
    else:
        environment.reader_check()  # free the slots of killed readers
        return environment
    try:  # the folder is read-only, so no writer shares the lock file and none is needed
        return _open_lmdb(real, lock=False)
    except lmdb.Error as error:
        raise _refused(shown, error) from error


def _open_lmdb(real: str, lock: bool) -> lmdb.Environment:
    # Read-ahead stays on: records are read in key order, which is the order they were written in.
    # The size 0 leaves the map as large as the file needs.
    return lmdb.open(
        real, lock=lock, map_size=0, readonly=True, create=False, readahead=True, max_readers=_READERS_IN_SHARED_LOCK
    )


def _may_write_lock(real: str) -> bool:
    lock_file = os.path.join(real, "lock.mdb")
    return os.access(lock_file if os.path.exists(lock_file) else real, os.W_OK)


def _refused(path: str, error: lmdb.Error) -> DataError:
    return DataError(
        f"LMDB cannot read this database: {error}",
        where=Where(file=path),
        fix="check that no other program is writing it and that it was copied whole",
    )


class LMDBSource(DatabaseSource):
    """Read the records of an LMDB folder (with `data.mdb` in it).

    Only LMDB's `lock.mdb` is written, and not even that where the folder is read-only. `len` serves any number of
    threads.
    """

    handles = SharedHandles("LMDB", _open_environment)

    def _check_folder(self) -> str:
        """Check that `path` is an LMDB folder with sound head pages, and return its real path."""
        where, convert = Where(file=self.path), "make it with `pycaffe-lms dataset` or convert_imageset"
        check_is_folder(self.path, "an LMDB", "data.mdb", convert)
        if os.path.exists(os.path.join(self.path, "CURRENT")):
            raise DataError(
                "this is a LevelDB, but the backend is LMDB",
                where=where,
                fix=f"set data_param {{ backend: LEVELDB }}, or {convert}",
            )
        data_file = Path(self.path, "data.mdb")
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
        return os.path.realpath(self.path)

    def _unreadable(self, error: Exception) -> DataError | None:
        return _refused(self.path, error) if isinstance(error, lmdb.Error) else None

    def _begin(self, handle: lmdb.Environment) -> Callable[[], object]:
        transaction = handle.begin()
        try:
            if can_check():
                check_tree(Path(os.path.realpath(self.path), "data.mdb"), transaction.id())
            self._length = transaction.stat()["entries"]
            self._transaction, self._cursor = transaction, transaction.cursor()
        except BaseException:
            transaction.abort()
            raise
        return transaction.abort

    def _first(self) -> bool:
        return self._cursor.first()

    def _advance(self) -> bool:
        return self._cursor.next()

    def _item(self) -> tuple[bytes, bytes]:
        record: tuple[bytes, bytes] = self._cursor.item()
        return record

    def _all(self) -> AbstractContextManager[Iterator[tuple[bytes, bytes]]]:
        return nullcontext(iter(self._transaction.cursor()))
