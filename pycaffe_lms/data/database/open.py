"""Open a database by the name of its backend: `data_param.backend` or the tools' `-backend`.

Another kind of database would be one more line in `DATABASES`.
See also: source.py, lmdb_source.py, leveldb_source.py.
"""

from __future__ import annotations

import os

from ...errors import LayerParamError, Where
from ...proto.caffe_pb2 import DataParameter
from .leveldb_source import LevelDBSource
from .lmdb_source import LMDBSource
from .source import DatabaseSource

DATABASES: dict[str, type[DatabaseSource]] = {"LMDB": LMDBSource, "LEVELDB": LevelDBSource}
"""Name of a backend -> the class that opens a path for reading."""


def open_database(path: str | os.PathLike[str], backend: str | int) -> DatabaseSource:
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
