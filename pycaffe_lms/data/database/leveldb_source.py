"""Read LevelDB databases, those of BVLC Caffe and its tools included.

See also: source.py for the cursor; leveldb_writer.py; datum.py for the records.
"""

from __future__ import annotations

import importlib
import os
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from types import ModuleType
from typing import Any

from ...errors import DataError, MissingDependency, Where
from .source import DatabaseSource, SharedHandles, check_is_folder


def load_plyvel(doing: str = "reading") -> ModuleType:
    """Import plyvel. Raises: MissingDependency with the pip line."""
    try:
        return importlib.import_module("plyvel")
    except ImportError:
        raise MissingDependency("plyvel", f"{doing} LevelDB databases", "'pycaffe-lms[leveldb]'") from None


def _open_database(real: str, shown: str) -> Any:
    plyvel = load_plyvel()
    try:
        return plyvel.DB(real, create_if_missing=False, paranoid_checks=True, max_open_files=100)
    except plyvel.Error as error:
        raise _refused(shown, error) from error


def _refused(path: str, error: Exception) -> DataError:
    reason = error.args[0] if error.args else error
    reason = reason.decode("utf-8", "replace") if isinstance(reason, bytes) else str(reason)
    if "/LOCK: " in reason and "Permission" not in reason and "Read-only" not in reason:
        found, fix = "another program has this database open", "end that program, or give each one a copy"
    elif "Permission" in reason or "Read-only" in reason:
        found, fix = f"LevelDB has to write to its folder and may not: {reason}", "copy the database, or allow writing"
    else:
        found, fix = f"LevelDB cannot read this database: {reason}", "copy it again, or convert the pictures again"
    return DataError(found, where=Where(file=path), fix=fix)


class LevelDBSource(DatabaseSource):
    """Read the records of a LevelDB folder (with the file CURRENT in it).

    LevelDB locks the folder against other processes and may rearrange its files; no record changes. It does not know
    its number of records: the first pass over the end, or `len`, counts them.
    Raises: also MissingDependency without plyvel.
    """

    handles = SharedHandles("LevelDB", _open_database)

    def _check_folder(self) -> str:
        where = Where(file=self.path)
        check_is_folder(self.path, "a LevelDB", "CURRENT", "make it with convert_imageset")
        if os.path.isfile(os.path.join(self.path, "CURRENT")):
            return os.path.realpath(self.path)
        if os.path.isfile(os.path.join(self.path, "data.mdb")):
            raise DataError(
                "this is an LMDB, but the backend is LEVELDB, which Caffe takes where none is written",
                where=where,
                fix="set data_param { backend: LMDB }",
            )
        raise DataError("not a LevelDB: no file CURRENT in this folder", where=where, fix="correct the path")

    def _unreadable(self, error: Exception) -> DataError | None:
        return _refused(self.path, error) if isinstance(error, load_plyvel().Error) else None

    def _begin(self, handle: Any) -> Callable[[], object]:
        self._database = handle
        self._records = handle.raw_iterator(verify_checksums=True, fill_cache=False)
        close: Callable[[], object] = self._records.close
        return close

    def _first(self) -> bool:
        self._records.seek_to_first()
        return bool(self._records.valid())

    def _advance(self) -> bool:
        self._records.next()
        return bool(self._records.valid())

    def _item(self) -> tuple[bytes, bytes]:
        record: tuple[bytes, bytes] = self._records.item()
        return record

    def _all(self) -> AbstractContextManager[Iterator[tuple[bytes, bytes]]]:
        records: AbstractContextManager[Iterator[tuple[bytes, bytes]]]
        records = self._database.iterator(verify_checksums=True, fill_cache=False)
        return records
