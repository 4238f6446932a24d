"""Write rows of arrays to one HDF5 file, batch after batch; the file gets its name when it is complete.

It is completed by `close`, by garbage collection or at exit. A disk that fills up is an error, not a crash.
"""

from __future__ import annotations

import os
import weakref
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from ...errors import DataError, Where
from ...formats.atomic import Part, unwritable
from ...formats.hdf5_file import Sheltered, load_h5py

if TYPE_CHECKING:
    import h5py


class HDF5Writer:
    """Write `path` through a file `.NAME. .. .part` beside it, which the first `append` creates.

    If the run is killed, an old file at `path` stays. Raises: DataError where the folder is absent or not writable.
    """

    def __init__(self, path: str):
        self.path = path
        self._target = Path(os.path.abspath(path))
        if not os.access(self._target.parent, os.W_OK):
            raise self._error("the folder does not exist or is not writable")
        if self._target.is_dir():
            raise self._error("this is a folder")
        self._open: tuple[h5py.File, Sheltered] | None = None
        self._finish: Callable[[], object] = lambda: None
        self._closed = False

    def append(self, arrays: Mapping[str, np.ndarray]) -> None:
        """Add rows to the datasets of these names; all axes but the first have the sizes of the first call.

        Raises: DataError where a shape changed, after `close`, or where the system refuses to write; then the temporary
        file is removed, and nothing more can be written.
        """
        if self._closed:
            raise DataError("the file is complete", where=Where(file=self.path), fix="make the net again to write more")
        try:
            file, sheltered = self._open = self._open or self._create(arrays)
            for name, values in arrays.items():
                dataset = file[name]
                if values.shape[1:] != dataset.shape[1:]:
                    raise DataError(
                        f'"{name}": rows of shape {values.shape[1:]} after rows of shape {dataset.shape[1:]}',
                        where=Where(file=self.path),
                        fix="write blobs of one shape",
                    )
                rows = len(dataset)
                dataset.resize(rows + len(values), axis=0)
                dataset[rows:] = values
            file.flush()
            sheltered.check()
        except OSError as error:
            self._closed = True
            with suppress(OSError):
                self._finish()  # raises the same error again
            raise unwritable(self.path, error, DataError) from error

    def close(self) -> None:
        """Complete and rename the file; without an `append` there is none. A second call does nothing."""
        self._closed = True
        try:
            self._finish()
        except OSError as error:
            raise unwritable(self.path, error, DataError) from error

    def _create(self, arrays: Mapping[str, np.ndarray]) -> tuple[h5py.File, Sheltered]:
        h5py, part = load_h5py(), Part(self._target)
        sheltered = Sheltered(part.file)
        file = h5py.File(sheltered, "w")
        self._finish = weakref.finalize(self, _complete, file, sheltered, part)
        for name, values in arrays.items():
            shape = values.shape[1:]
            most = (None, *(n or None for n in shape))  # HDF5 refuses chunks of an axis that stays 0
            file.create_dataset(name, (0, *shape), values.dtype, maxshape=most, chunks=True)
        return file, sheltered

    def _error(self, found: str) -> DataError:
        return DataError(
            found, where=Where(file=self.path), fix="check that the folder exists, is writable and has room"
        )


def _complete(file: h5py.File, sheltered: Sheltered, part: Part) -> None:
    try:
        file.close()
        sheltered.check()
    except BaseException:
        part.discard()
        raise
    part.finish()
