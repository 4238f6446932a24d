"""Open a database by the name of its backend: `data_param.backend` or the tools' `-backend`.

Another kind of database would be one more line in `DATABASES`.
See also: lmdb_source.py, leveldb_source.py.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from typing import Protocol

from ...errors import LayerParamError, Where
from ...proto.caffe_pb2 import DataParameter
from .leveldb_source import LevelDBSource
from .lmdb_source import LMDBSource


class Database(Protocol):
    """Describe a cursor over records (key, value) in the byte order of keys that wraps at the end; for one thread."""

    path: str

    def __len__(self) -> int: ...
    @property
    def position(self) -> int: ...
    def seek(self, record_index: int) -> None: ...
    def next(self) -> tuple[bytes, bytes]: ...
    def records(self) -> Iterator[tuple[bytes, bytes]]: ...
    def close(self) -> None: ...


DATABASES: dict[str, Callable[[str | os.PathLike[str]], Database]] = {"LMDB": LMDBSource, "LEVELDB": LevelDBSource}
"""Name of a backend -> the class that opens a path for reading."""


def open_database(path: str | os.PathLike[str], backend: str | int) -> Database:
    """Open `path` for reading.

    backend: "lmdb" or "leveldb" in any case, or the number of a DataParameter.DB.
    Raises: LayerParamError for another backend; DataError where the database cannot be opened.
    """
    if isinstance(backend, int):
        names = {value: name for name, value in DataParameter.DB.items()}
        backend = names.get(backend, str(backend))
    opener = DATABASES.get(backend.upper())
    if opener is None:
        raise LayerParamError(
            f'no database backend "{backend}"', where=Where(file=os.fspath(path)), fix="use " + " or ".join(DATABASES)
        )
    return opener(path)
