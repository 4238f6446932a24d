"""Records on their way into a database: which kind of database, how far it is, in which order.

Covers: writing by the name of a backend, telling a listener of every record, orders that a seed repeats.
See also: lmdb_writer.py, leveldb_writer.py; datasets.py and imageset.py, whose records these are.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator

import numpy as np

from ...errors import DataError, Where
from ..database.leveldb_writer import write_leveldb
from ..database.lmdb_writer import write_lmdb
from ..database.whole_folder import Record
from ..transform.transformer import batch_rng

Progress = Callable[[int, "int | None"], None]
"""Called as progress(records done, records in all or None where nobody knows) after each record."""

WRITERS: dict[str, Callable[..., int]] = {"lmdb": write_lmdb, "leveldb": write_leveldb}
"""Name of a backend, as Caffe's tools spell it -> what writes a database."""

_ORDER_STREAM, _PAIR_STREAM = 1 << 34, 1 << 35  # apart from those of the data layers


def write_database(
    path: str | os.PathLike[str], records: Iterable[Record], *, backend: str = "lmdb", overwrite: bool = False
) -> int:
    """Write (key, value) pairs as a database of the kind `backend`; return their number. Whole or not at all.

    Raises: DataError for another backend, where `path` exists (unless `overwrite`) or cannot be written.
    """
    if backend not in WRITERS:
        raise DataError(
            f'no database backend "{backend}"', where=Where(file=os.fspath(path)), fix="use " + " or ".join(WRITERS)
        )
    return WRITERS[backend](path, records, overwrite=overwrite)


def told(records: Iterable[Record], total: int | None, progress: Progress | None) -> Iterator[Record]:
    """The same records; after each has been taken, `progress` hears of it."""
    for done, record in enumerate(records, 1):
        yield record
        if progress:
            progress(done, total)


def shuffled(count: int, seed: int) -> np.ndarray:
    """The numbers 0 .. count - 1 in an order that `seed` alone settles."""
    return batch_rng(seed, 0, _ORDER_STREAM).permutation(count)


def random_pairs(count: int, seed: int) -> np.ndarray:
    """(count, 2) numbers below `count`, drawn with replacement; `seed` alone settles them."""
    return batch_rng(seed, 0, _PAIR_STREAM).integers(0, count, (count, 2))
