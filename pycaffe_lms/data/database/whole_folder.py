"""Write database folders that appear whole or not at all.

A database is written to a folder beside the final one, which is renamed at the end; an old database may be replaced.
See also: lmdb_writer.py and leveldb_writer.py, which fill the folder.
"""

from __future__ import annotations

import glob
import logging
import os
import shutil
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from ...errors import DataError, Where
from ...faults import of_files
from ...formats.atomic import sync_folder
from ...formats.leftovers import remove_leftovers, temporary

_log = logging.getLogger(__name__)

Record = tuple[bytes, bytes]


@dataclass(frozen=True)
class DatabaseKind:
    """Describe a kind of database: its name with the article, a file that each has, its library's exceptions."""

    name: str
    marker: str
    errors: tuple[type[Exception], ...]


def write_folder(
    path: str | os.PathLike[str], kind: DatabaseKind, fill: Callable[[Path], int], *, overwrite: bool
) -> int:
    """Let `fill(folder)` write a database, then rename the folder to `path`; return what `fill` returns.

    The folder is `.NAME. .. .partial` beside `path`. After an error it is removed; a killed run leaves it, for the next
    run to remove, but never a database that looks complete.
    overwrite: replace a database of this kind (anything else at `path` stays and is an error).
    Raises: DataError where `path` exists or cannot be written.
    """
    target = Path(os.path.abspath(path))
    remove_leftovers(target.parent)
    _check_target(target, kind, overwrite)
    for left in sorted(target.parent.glob(f".{glob.escape(target.name)}.*.partial")):
        _log.warning("%s belongs to another run; remove it if that run was killed on another machine.", left)
    partial = temporary(target, "partial")
    errors: tuple[type[Exception], ...] = (OSError, *kind.errors)
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        partial.mkdir()
        try:
            count = fill(partial)
            _put_in_place(partial, target, kind, overwrite)
        except BaseException:
            shutil.rmtree(partial, ignore_errors=True)
            raise
    except errors as error:
        raise DataError(
            f"cannot write the database: {error}",
            where=Where(file=str(path)),
            fix="check that the folder is writable and the disk has room",
        ) from error
    return count


def blocks(records: Iterable[Record], most_records: int, most_bytes: int) -> Iterator[list[Record]]:
    """Yield lists of records, each ended by whichever limit it reaches first."""
    block, size_bytes = [], 0
    for key, value in records:
        block.append((key, value))
        size_bytes += len(key) + len(value)
        if len(block) >= most_records or size_bytes >= most_bytes:
            yield block
            block, size_bytes = [], 0
    if block:
        yield block


def twice(key: bytes, path: str | os.PathLike[str]) -> DataError:
    """Return the error for a key that comes a second time."""
    return DataError(
        f"the key {key!r} comes twice", where=Where(file=os.fspath(path)), fix="give every record a key of its own"
    )


def refuse_present(target: Path) -> None:
    """Raise DataError if there is anything at a path where a database will be written."""
    if os.path.lexists(target):
        fix = "remove it, choose another name, or replace it with -overwrite (overwrite=True)"
        raise DataError("exists already", where=Where(file=str(target)), fix=fix)


def _check_target(target: Path, kind: DatabaseKind, overwrite: bool) -> None:
    if not overwrite:
        refuse_present(target)
    elif os.path.lexists(target) and (target.is_symlink() or not (target / kind.marker).is_file()):
        where = Where(file=str(target))
        raise DataError(f"is not {kind.name} folder, so it is not overwritten", where=where, fix="choose another name")


def _put_back(old: Path, target: Path, error: OSError) -> None:
    """Give the old database its name again. Raises DataError where that fails too."""
    try:
        of_files("rename")
        os.rename(old, target)
    except OSError:
        raise DataError(
            f"the new database cannot be put in its place, nor the old one back: {error}",
            where=Where(file=str(target)),
            fix=f"the old database is whole: rename {old} to {target}",
        ) from error


def _put_in_place(partial: Path, target: Path, kind: DatabaseKind, overwrite: bool) -> None:
    _check_target(target, kind, overwrite)  # it may exist by now, and a rename onto an empty folder would succeed
    old = partial.with_suffix(".old")
    if target.exists():
        of_files("rename")
        os.rename(target, old)
    try:
        of_files("rename")
        os.rename(partial, target)
    except OSError as error:
        if old.exists():
            _put_back(old, target, error)
        raise
    shutil.rmtree(old, ignore_errors=True)
    sync_folder(target.parent)
