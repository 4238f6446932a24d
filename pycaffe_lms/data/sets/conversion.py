"""Write records as a database of either kind, or check that it is there with these records; draw orders from a seed.

See also: lmdb_writer.py, leveldb_writer.py; datasets.py and imageset.py, whose records these are.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing
from itertools import zip_longest
from pathlib import Path

import numpy as np

from ...errors import DataError, Where
from ..database.leveldb_source import load_plyvel
from ..database.leveldb_writer import write_leveldb
from ..database.lmdb_writer import write_lmdb
from ..database.open import open_database
from ..database.source import DatabaseSource
from ..database.whole_folder import Record, refuse_present
from ..transform.transformer import batch_rng

_log = logging.getLogger(__name__)
Progress = Callable[[int, "int | None"], None]
"""Called as progress(records done, records in all or None where that is unknown) after each record."""

WRITERS: dict[str, Callable[..., int]] = {"lmdb": write_lmdb, "leveldb": write_leveldb}
"""Name of a backend, as Caffe's tools spell it -> the function that writes a database."""

_ORDER_STREAM, _PAIR_STREAM = 1 << 34, 1 << 35  # apart from those of the data layers


def write_database(
    path: str | os.PathLike[str], records: Iterable[Record], *, backend: str = "lmdb", overwrite: bool = False
) -> int:
    """Write (key, value) pairs as a database of kind `backend`, whole or not at all; return their number.

    Raises: DataError for another backend, where `path` exists (unless `overwrite`) or cannot be written.
    """
    if backend not in WRITERS:
        raise DataError(
            f'no database backend "{backend}"', where=Where(file=os.fspath(path)), fix="use " + " or ".join(WRITERS)
        )
    return WRITERS[backend](path, records, overwrite=overwrite)


def check_target(path: str | os.PathLike[str], *, backend: str, overwrite: bool) -> None:
    """Raise what `write_database` would before its first record, so that it is said before work begins."""
    if backend == "leveldb":
        load_plyvel("writing")
    if not overwrite:
        refuse_present(Path(os.path.abspath(path)))


def make_database(
    path: str | os.PathLike[str], records: Iterable[Record], *, backend: str = "lmdb", overwrite: bool = False
) -> bool:
    """Write (key, value) pairs, in the order of their keys, as a database, unless it is there with exactly these.

    Return whether it was written; else the log says that it is there.
    Raises: DataError where what is at `path` is damaged or holds other records (unless `overwrite`), else as
    `write_database`.
    """
    if overwrite or not os.path.lexists(path) or backend not in WRITERS:
        write_database(path, records, backend=backend, overwrite=overwrite)
        return True
    with closing(open_present(path, backend)) as source:
        for number, (found, wanted) in enumerate(zip_longest(_present_records(source), records)):
            if found != wanted:
                raise differs(path, f"record {number} is another one")
        say_present(path, f"{len(source)} records, all as they should be")
    return False


def _present_records(source: DatabaseSource) -> Iterator[Record]:
    """Yield the records of a database that should be whole. Raises: DataError as `open_present`."""
    try:
        yield from source.records()
    except DataError as error:
        error.fix = _replace(source.path)
        raise


def open_present(path: str | os.PathLike[str], backend: str) -> DatabaseSource:
    """Open a database that should be whole. Raises: DataError, which names the flag that replaces it."""
    try:
        return open_database(path, backend)
    except DataError as error:
        error.fix = _replace(path)
        raise


def say_present(path: str | os.PathLike[str], found: str) -> None:
    """Log that data are there already, and whole."""
    _log.info("%s is there already: %s.", os.fspath(path), found)


def differs(path: str | os.PathLike[str], found: str) -> DataError:
    """Return the error for data that are there, but are not those that would be written."""
    message = f"is there already, but it is not what would be written: {found}"
    return DataError(message, where=Where(file=os.fspath(path)), fix=_replace(path))


def _replace(path: str | os.PathLike[str]) -> str:
    return f"replace {os.fspath(path)} with -overwrite (overwrite=True), or choose another place"


def spots(count: int, most: int = 100) -> list[int]:
    """Return at most so many of the numbers 0 .. count - 1, evenly spaced."""
    return [k * count // min(count, most) for k in range(min(count, most))]


def told(records: Iterable[Record], total: int | None, progress: Progress | None) -> Iterator[Record]:
    """Yield the same records, and call `progress` after each was taken."""
    for done, record in enumerate(records, 1):
        yield record
        if progress:
            progress(done, total)


def shuffled(count: int, seed: int) -> np.ndarray:
    """Return the numbers 0 .. count - 1 in an order that `seed` alone determines."""
    return batch_rng(seed, 0, _ORDER_STREAM).permutation(count)


def random_pairs(count: int, seed: int) -> np.ndarray:
    """Return (count, 2) numbers below `count`, drawn with replacement; `seed` alone determines them."""
    return batch_rng(seed, 0, _PAIR_STREAM).integers(0, count, (count, 2))
