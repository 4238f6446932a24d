"""Write a stream of (key, value) as a new LevelDB database, which appears whole or not at all."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

from ...faults import of_files
from .leveldb_source import load_plyvel
from .whole_folder import DatabaseKind, Record, blocks, twice, write_folder

_BATCH_BYTES = 64 << 20
# Caffe's own settings
_SETTINGS = {"block_size": 64 << 10, "write_buffer_size": 256 << 20, "max_open_files": 100}


def write_leveldb(
    path: str | os.PathLike[str], records: Iterable[Record], *, commit_every: int = 1000, overwrite: bool = False
) -> int:
    """Write `records`, pairs of key (each once) and value, as a LevelDB folder; return their number.

    Whole or not at all, and `overwrite`: as `write_folder`.
    Raises: DataError where `path` exists, cannot be written, or a key comes twice; MissingDependency without plyvel.
    """
    kind = DatabaseKind("a LevelDB", "CURRENT", (load_plyvel("writing").Error,))
    return write_folder(path, kind, lambda folder: _fill(folder, path, records, commit_every), overwrite=overwrite)


def _fill(folder: Path, path: str | os.PathLike[str], records: Iterable[Record], commit_every: int) -> int:
    count, largest = 0, None
    database = load_plyvel("writing").DB(str(folder), create_if_missing=True, error_if_exists=True, **_SETTINGS)
    try:
        for block in blocks(records, commit_every, _BATCH_BYTES):
            here = set()
            of_files("write")
            with database.write_batch() as batch:
                for key, value in block:
                    # Keys mostly rise; only one that does not needs to be looked up.
                    if largest is not None and key <= largest and (key in here or database.get(key) is not None):
                        raise twice(key, path)
                    largest = key if largest is None else max(largest, key)
                    here.add(key)
                    batch.put(key, value)
            count += len(block)
        of_files("fsync")
        with database.write_batch(sync=True):  # an empty batch, which flushes what was written to the disk
            pass
    finally:
        database.close()
    return count
