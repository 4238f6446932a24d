"""Writing LMDB databases that appear whole or not at all.

Covers: any stream of (key, value), a map that grows on demand, a folder that gets its name at the very end.
Does not cover: adding to a database that is already there.
"""

from __future__ import annotations

import os
import secrets
import shutil
from collections.abc import Iterable, Iterator
from pathlib import Path

import lmdb

from pycaffe_lms.errors import DataError, Where

_FIRST_MAP_BYTES = 64 << 20
_COMMIT_BYTES = 64 << 20
"""A transaction ends here even before `commit_every` records: what it holds is kept until it is written."""


def write_lmdb(
    path: str | os.PathLike,
    records: Iterable[tuple[bytes, bytes]],
    *,
    commit_every: int = 1000,
    overwrite: bool = False,
) -> int:
    """Write `records`, pairs of key (1 to 511 bytes, each once) and value, as an LMDB folder; return their number.

    The work happens in a folder `.NAME.XXXX.partial` beside `path`, renamed at the end: a killed run leaves at most
    that folder, never a database that looks whole. Errors remove it, those that `records` raises included.
    overwrite: replace an LMDB that is there (anything else that is there stays and is an error).
    Raises: DataError where `path` exists, cannot be written, or a key comes twice or is too long.
    """
    target = Path(os.path.abspath(path))
    _check_target(target, overwrite)
    partial = target.with_name(f".{target.name}.{secrets.token_hex(4)}.partial")
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        partial.mkdir()
        try:
            count = _fill(partial, target, records, commit_every)
            _put_in_place(partial, target, overwrite)
        except BaseException:
            shutil.rmtree(partial, ignore_errors=True)
            raise
    except (OSError, lmdb.Error) as error:
        raise DataError(
            f"cannot write the database: {error}",
            where=Where(file=str(path)),
            fix="check that the folder is writable and the disk has room",
        ) from error
    return count


def _check_target(target: Path, overwrite: bool) -> None:
    if not target.exists() and not target.is_symlink():
        return
    where = Where(file=str(target))
    if not overwrite:
        raise DataError("exists already", where=where, fix="remove it, choose another name, or allow overwriting")
    if not (target / "data.mdb").is_file() or target.is_symlink():
        raise DataError("is not an LMDB folder, so it is not overwritten", where=where, fix="choose another name")


def _fill(folder: Path, target: Path, records: Iterable[tuple[bytes, bytes]], commit_every: int) -> int:
    count = 0
    # Nobody reads the folder before it is complete, so one sync at the end is enough.
    environment = lmdb.open(str(folder), map_size=_FIRST_MAP_BYTES, sync=False, metasync=False, readahead=False)
    try:
        for block in _blocks(records, commit_every):
            _commit(environment, block, target)
            count += len(block)
        environment.sync(True)
    finally:
        environment.close()
    return count


def _blocks(records: Iterable[tuple[bytes, bytes]], commit_every: int) -> Iterator[list[tuple[bytes, bytes]]]:
    block, size_bytes = [], 0
    for key, value in records:
        block.append((key, value))
        size_bytes += len(key) + len(value)
        if len(block) >= commit_every or size_bytes >= _COMMIT_BYTES:
            yield block
            block, size_bytes = [], 0
    if block:
        yield block


def _commit(environment: lmdb.Environment, block: list[tuple[bytes, bytes]], target: Path) -> None:
    """Write a block in one transaction, as often as it takes for the map to be large enough."""
    while True:
        try:
            with environment.begin(write=True) as transaction:
                for key, value in block:
                    _put(transaction, key, value, target)
            return
        except lmdb.MapFullError:
            environment.set_mapsize(2 * environment.info()["map_size"])


def _put(transaction: lmdb.Transaction, key: bytes, value: bytes, target: Path) -> None:
    try:
        new = transaction.put(key, value, overwrite=False)
    except lmdb.BadValsizeError:
        raise DataError(
            f"a key of {len(key)} bytes, LMDB takes 1 to 511: {key[:60]!r}",
            where=Where(file=str(target)),
            fix="use shorter paths or keys",
        ) from None
    if not new:
        raise DataError(
            f"the key {key!r} comes twice", where=Where(file=str(target)), fix="give every record a key of its own"
        )


def _put_in_place(partial: Path, target: Path, overwrite: bool) -> None:
    _check_target(target, overwrite)  # it may have appeared meanwhile, and a rename onto an empty folder succeeds
    old = partial.with_suffix(".old")
    if target.exists():
        os.rename(target, old)
    try:
        os.rename(partial, target)
    except OSError:
        if old.exists():
            os.rename(old, target)
        raise
    shutil.rmtree(old, ignore_errors=True)
    if os.name == "posix":  # makes the new name itself durable
        handle = os.open(target.parent, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)
