"""Make batches of rows from the HDF5 files that a text file lists, for the HDF5Data layer.

Covers: the list, which rows make batch b (files in turn, shuffling, ranks), checking that all files fit together.
See also: prefetch.py, the thread that asks for batches; formats/hdf5_file.py, which reads arrays with care.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING

import numpy as np

from ...errors import DataError, Where
from ...formats.hdf5_file import load_h5py, open_hdf5, read_array
from ...formats.rawfile import open_text
from ..transform.transformer import batch_rng

if TYPE_CHECKING:
    import h5py

# Streams of random numbers: this one for the order of the files, the following ones for the rows of each file.
_SHUFFLE_STREAM = 1 << 32

Shape = tuple[int, ...]


def read_file_list(source: str) -> list[str]:
    """Read the paths in a text file, separated by white space. Raises: DataError for no such file, or no path."""
    where = Where(file=source)
    fix = "check hdf5_data_param.source; a relative path starts at the working directory"
    with open_text(source, "the list of HDF5 files", fix) as file:
        paths = file.read().split()
    if not paths:
        raise DataError("the list of HDF5 files is empty", where=where, fix="write one path a line")
    for path in paths:
        if b"\0" in os.fsencode(path) or path.startswith("\udc89HDF"):
            raise DataError(
                "not a text file", where=where, fix="name a file that lists the HDF5 files, not one of them"
            )
    return paths


class HDF5Batches:
    """Make batch b of listed HDF5 files, for any b: one array (batch_size, *row shape) per name.

    Rows are numbered file after file, and from the first again after the last. With `shuffle`, every epoch has its own
    order of files, and of the rows within each. Row k goes to rank k % ranks. One file at a time is in memory, as
    floats.

    Attributes:
        first: the row with which batch 0 would begin. stride: rows of a batch of all ranks together.

    Args:
        names: of the datasets; all have one row per item, and the same row shape in every file.
        seed: determines, with epoch and file, every order, so that a resumed run need not draw those before.
    Raises: DataError for a list, file or dataset that cannot be used, naming it; MissingDependency without h5py.
    """

    def __init__(
        self,
        source: str,
        names: Sequence[str],
        batch_size: int,
        *,
        shuffle: bool = False,
        dtype: np.dtype | type = np.float32,
        rank: int = 0,
        ranks: int = 1,
        seed: int = 0,
    ):
        self._names = tuple(names)
        self._batch_size = batch_size
        self._shuffle = shuffle
        self._dtype = np.dtype(dtype)
        self._rank, self._ranks = rank, ranks
        self.first, self.stride = 0, batch_size * ranks
        self._seed = seed
        self._source = source
        self._paths = read_file_list(source)
        self._row_shapes: tuple[Shape, ...] = ()
        lengths = []
        for path in self._paths:
            rows, shapes = self._look(path)
            self._row_shapes = self._row_shapes or shapes
            if shapes != self._row_shapes:
                raise DataError(
                    f"rows are {_named(self._names, shapes)}, in {self._paths[0]} "
                    f"{_named(self._names, self._row_shapes)}",
                    where=Where(file=path),
                    fix="list only files whose rows have the same shapes",
                )
            lengths.append(rows)
        self._lengths = np.array(lengths, np.int64)
        self._total = int(self._lengths.sum())
        if not self._total:
            raise DataError("the files listed hold no rows", where=Where(file=source), fix="write them again")
        self._loaded: tuple[int, list[np.ndarray]] | None = None  # (file, arrays) in memory
        self._files: tuple[int, np.ndarray, np.ndarray] | None = None  # (epoch, files in turn, where each ends)
        self._rows: tuple[tuple[int, int], np.ndarray] | None = None  # ((epoch, file), rows in turn)

    @property
    def records(self) -> int:
        """Return how many rows there are."""
        return self._total

    @property
    def shapes(self) -> list[Shape]:
        """Return the shapes of the arrays in a batch."""
        return [(self._batch_size, *shape) for shape in self._row_shapes]

    def __len__(self) -> int:
        """Return the number of rows in all files."""
        return self._total

    def produce(self, batch: int) -> list[np.ndarray]:
        """Return the arrays of batch number `batch`; in order is fastest, any order works.

        Raises: DataError, naming the file.
        """
        out = [np.empty(shape, self._dtype) for shape in self.shapes]
        place = self.first + (batch * self._batch_size + np.arange(self._batch_size)) * self._ranks + self._rank
        done = 0
        while done < self._batch_size:
            epoch, first = divmod(int(place[done]), self._total)
            file, begin, end = self._file_at(epoch, first)
            here = place[done:] - epoch * self._total
            here = here[: np.searchsorted(here, end)] - begin
            rows = self._row_order(epoch, file)[here] if self._shuffle else here
            part = slice(done, done + len(rows))
            for target, values in zip(out, self._load(file), strict=True):
                target[part] = values[rows[0] : rows[-1] + 1 : self._ranks] if not self._shuffle else values[rows]
            done += len(rows)
        return out

    def close(self) -> None:
        """Drop the rows in memory; no file is open."""
        self._loaded = self._files = self._rows = None

    def _file_at(self, epoch: int, place: int) -> tuple[int, int, int]:
        """Return (file, its first place, the place after its last) for row number `place` in an epoch's order."""
        if self._files is None or self._files[0] != epoch:
            order = np.arange(len(self._paths))
            if self._shuffle:
                batch_rng(self._seed, epoch, _SHUFFLE_STREAM).shuffle(order)
            self._files = (epoch, order, np.cumsum(self._lengths[order]))
        _, order, ends = self._files
        turn = int(np.searchsorted(ends, place, side="right"))  # an empty file ends where the one before does
        file = int(order[turn])
        return file, int(ends[turn] - self._lengths[file]), int(ends[turn])

    def _row_order(self, epoch: int, file: int) -> np.ndarray:
        if self._rows is None or self._rows[0] != (epoch, file):
            rng = batch_rng(self._seed, epoch, _SHUFFLE_STREAM + 1 + file)
            self._rows = ((epoch, file), rng.permutation(int(self._lengths[file])))
        return self._rows[1]

    def _load(self, file: int) -> list[np.ndarray]:
        if self._loaded is None or self._loaded[0] != file:
            self._loaded = None  # free it before the next one is read: two may not fit into memory
            with self._open(self._paths[file]) as found:
                arrays = [read_array(found[name], DataError) for name in self._names]
            expected = [(int(self._lengths[file]), *shape) for shape in self._row_shapes]
            if [a.shape for a in arrays] != expected:
                raise DataError(
                    "the file has changed since the net was built",
                    where=Where(file=self._paths[file]),
                    fix="leave the files alone while they are read",
                )
            self._loaded = (file, arrays)
        return self._loaded[1]

    def _look(self, path: str) -> tuple[int, tuple[Shape, ...]]:
        """Return (number of rows, shape of a row in each dataset) of a file, from its headers."""
        h5py = load_h5py()
        with self._open(path) as file:
            shapes = []
            for name in self._names:
                if name not in file or not isinstance(file[name], h5py.Dataset):
                    there = ", ".join(k for k in file if isinstance(file.get(k), h5py.Dataset))
                    raise DataError(
                        f'no dataset "{name}"', fix=f"name the tops as the datasets of this file: {there or '(none)'}"
                    ).at(blob=name)
                data = file[name]
                if data.dtype.kind not in "fiub" or not data.shape:
                    raise DataError(
                        f'dataset "{name}" is {data.dtype} of shape {data.shape}, not rows of numbers',
                        fix="store floats or integers whose first axis counts the items",
                    ).at(blob=name)
                shapes.append(data.shape)
        rows = {shape[0] for shape in shapes}
        if len(rows) > 1:
            raise DataError(
                f"the numbers of rows differ: {_named(self._names, shapes)}",
                where=Where(file=path),
                fix="give every dataset one row per item",
            )
        return rows.pop(), tuple(shape[1:] for shape in shapes)

    def _open(self, path: str) -> AbstractContextManager[h5py.File]:
        beside = os.path.join(os.path.dirname(self._source), path)
        if not os.path.exists(path) and os.path.exists(beside):
            raise DataError(
                f"there is no such file; {self._source} lists it, and paths there start at the working directory, "
                "not at the list",
                where=Where(file=path),
                fix=f"write {beside}, or run in another folder",
            )
        return open_hdf5(path, DataError)


def _named(names: Sequence[str], shapes: Sequence[Shape]) -> str:
    return ", ".join(f"{name} {shape}" for name, shape in zip(names, shapes, strict=True))
