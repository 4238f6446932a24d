"""Write records as a database of either kind, report progress, and draw orders that a seed repeats.

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
