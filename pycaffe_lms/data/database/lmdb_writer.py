"""Write a stream of (key, value) as a new LMDB database, which appears whole or not at all."""

from __future__ import annotations

import os
from collections.abc import Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import lmdb

from ...errors import DataError, Where
from ...faults import of_files
from .whole_folder import DatabaseKind, Record, blocks, twice, write_folder

_FIRST_MAP_BYTES = 64 << 20
_COMMIT_BYTES = 8 << 20
"""A transaction ends at this size even before `commit_every` records, for two of them are held in memory."""
_SYNC_BYTES = 128 << 20
"""The disk is asked to write after so many bytes, so that little is left at the end."""
_LMDB = DatabaseKind("an LMDB", "data.mdb", (lmdb.Error,))


def write_lmdb(
    path: str | os.PathLike[str], records: Iterable[Record], *, commit_every: int = 1000, overwrite: bool = False
) -> int:
    """Write `records`, pairs of key (1 to 511 bytes, each once) and value, as an LMDB folder; return their number.

    Whole or not at all, and `overwrite`: as `write_folder`.
    Raises: DataError where `path` exists, cannot be written, or a key comes twice or is too long.
    """
    return write_folder(path, _LMDB, lambda folder: _fill(folder, path, records, commit_every), overwrite=overwrite)


def _fill(folder: Path, path: str | os.PathLike[str], records: Iterable[Record], commit_every: int) -> int:
    count, unsynced = 0, 0
    commit: Future[None] | None = None
    sync: Future[None] | None = None
    # The folder is not read before it is complete, so no commit has to wait for the disk.
    environment = lmdb.open(str(folder), map_size=_FIRST_MAP_BYTES, sync=False, metasync=False, readahead=False)
    try:
        # While a thread writes a block, the records of the next one are made, and another thread waits for the disk.
        with ThreadPoolExecutor(2, thread_name_prefix="caffe-lmdb") as pool:
            for block in blocks(records, commit_every, _COMMIT_BYTES):
                of_files("write")
                if commit is not None:
                    commit.result()
                if unsynced >= _SYNC_BYTES and (sync is None or sync.done()):
                    if sync is not None:
                        sync.result()
                    sync, unsynced = pool.submit(_sync, folder), 0
                commit = pool.submit(_commit, environment, block, path)
                count += len(block)
                unsynced += sum(len(value) for _, value in block)
            for last in (commit, sync):
                if last is not None:
                    last.result()
        of_files("fsync")
        environment.sync(True)
    finally:
        environment.close()
    return count


def _sync(folder: Path) -> None:
    """Wait until the disk has what was committed; not by LMDB's call, for its map may be replaced meanwhile."""
    of_files("fsync")
    with open(folder / _LMDB.marker, "r+b", buffering=0) as file:
        os.fsync(file.fileno())


def _commit(environment: lmdb.Environment, block: list[Record], path: str | os.PathLike[str]) -> None:
    """Write a block in one transaction; where the map is too small, double it and write again."""
    while True:
        try:
            with environment.begin(write=True) as transaction:
                for key, value in block:
                    _put(transaction, key, value, path)
            return
        except lmdb.MapFullError:
            environment.set_mapsize(2 * environment.info()["map_size"])


def _put(transaction: lmdb.Transaction, key: bytes, value: bytes, path: str | os.PathLike[str]) -> None:
    try:
        new = transaction.put(key, value, overwrite=False)
    except lmdb.BadValsizeError:
        raise DataError(
            f"a key of {len(key)} bytes, LMDB takes 1 to 511: {key[:60]!r}",
            where=Where(file=os.fspath(path)),
            fix="use shorter paths or keys",
        ) from None
    if not new:
        raise twice(key, path)
