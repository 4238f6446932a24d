"""Read HDF5 files that may be damaged or hostile, and write HDF5 files whole or not at all.

Reading follows hard links only and takes no more values than the file stores. Writing survives a full disk, on which
libhdf5 would crash (`Sheltered`).
"""

from __future__ import annotations

import importlib
import io
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import ModuleType
from typing import TYPE_CHECKING, Any

import numpy as np

from ..arrays import HostArray
from ..errors import CaffeError, MissingDependency, Where, human_bytes
from ..faults import of_files
from .atomic import atomic_file
from .rawfile import DAMAGED, could_not_open

if TYPE_CHECKING:
    import h5py
    from _typeshed import ReadableBuffer, WriteableBuffer

# Deflate packs at most 1032:1; a larger ratio is a false size.
_MOST_PACKED = 1100


def load_h5py() -> ModuleType:
    """Import h5py. Raises: MissingDependency with the pip line."""
    try:
        return importlib.import_module("h5py")
    except ImportError:
        raise MissingDependency("h5py", "reading and writing HDF5 files", "'pycaffe-lms[hdf5]'") from None


@contextmanager
def open_hdf5(path: str | os.PathLike[str], error: type[CaffeError]) -> Iterator[h5py.File]:
    """Open a file for reading. What h5py raises in the block becomes `error` with the path; errors get a fix."""
    h5py = load_h5py()
    try:
        with open(path, "rb"):
            pass
    except OSError as failure:
        raise could_not_open(path, failure, error) from None
    try:
        with h5py.File(path, "r") as file:
            yield file
    except CaffeError as known:
        known.fix = known.fix or DAMAGED
        raise known.at(file=os.fspath(path)) from None
    except (OSError, RuntimeError, KeyError, ValueError, TypeError) as failure:
        raise error(f"not a readable HDF5 file: {failure}", where=Where(file=os.fspath(path)), fix=DAMAGED) from failure


class Sheltered(io.RawIOBase):
    """Stand between libhdf5 and a file so that no write fails: libhdf5 crashes when it closes a file after that.

    The first failure of `file` is kept for `check`. From then on what is written is kept in memory, for libhdf5 reads
    some of it again.
    """

    def __init__(self, file: io.FileIO):
        self._file = file
        self._failure: BaseException | None = None
        self._position = 0
        self._kept: list[tuple[int, bytes]] = []  # (position, content), in the order of writing

    def check(self) -> None:
        """Raise the first failure, if there was one; the file is useless then."""
        if self._failure is not None:
            raise self._failure

    def readable(self) -> bool:
        return True

    def writable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._position

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        start = {os.SEEK_SET: 0, os.SEEK_CUR: self._position, os.SEEK_END: self._end()}[whence]
        self._position = start + offset
        return self._position

    def _end(self) -> int:
        """Return the size of the file in bytes, with what is kept in memory."""
        return max([os.fstat(self._file.fileno()).st_size, *(start + len(kept) for start, kept in self._kept)])

    def write(self, buffer: ReadableBuffer, /) -> int:
        content = memoryview(buffer).cast("B")
        try:
            if self._failure is None:
                of_files("write")
                self._file.seek(self._position)
                left = content
                while left:
                    left = left[self._file.write(left) :]
        except BaseException as failure:  # an interrupt too: `check` raises it
            self._failure = failure
        if self._failure is not None:
            self._kept.append((self._position, bytes(content)))
        self._position += len(content)
        return len(content)

    def readinto(self, buffer: WriteableBuffer, /) -> int:
        into = memoryview(buffer).cast("B")
        into[:] = bytes(len(into))
        begin, found = self._position, 0
        try:
            self._file.seek(begin)
            while found < len(into) and (count := self._file.readinto(into[found:])):
                found += count
        except BaseException as failure:
            self._failure = self._failure or failure
        for start, kept in self._kept:
            low, high = max(start, begin), min(start + len(kept), begin + len(into))
            if low < high:
                into[low - begin : high - begin] = kept[low - start : high - start]
        self._position += len(into)
        return len(into)

    def truncate(self, size: int | None = None) -> int:
        size = self._position if size is None else size
        try:
            if self._failure is None:
                self._file.truncate(size)
        except BaseException as failure:
            self._failure = failure
        return size


def write_hdf5(
    path: str | os.PathLike[str], fill: Callable[[h5py.File], None], error: type[CaffeError], *, trailer: bytes = b""
) -> bytes:
    """Write an HDF5 file, whole or not at all, and return the SHA-256 of what HDF5 wrote.

    Args:
        fill: writes the content to the h5py.File that it gets.
        trailer: where it is given, it and the digest are appended; HDF5 reads no further than its own end.
    Raises: `error` where the file cannot be written, a full disk included; MissingDependency without h5py.
    """
    h5py = load_h5py()
    with atomic_file(path, error=error) as part:
        sheltered = Sheltered(part.file)
        with h5py.File(sheltered, "w") as file:
            fill(file)
        sheltered.check()
        digest = part.sha256()
        if trailer:
            part.write(trailer + digest)
    return digest


def members(group: h5py.Group, error: type[CaffeError]) -> list[tuple[str, Any]]:
    """Return (name, object) of everything in a group. Raises: `error` for links that are not hard links."""
    h5py = load_h5py()
    found = []
    for name in group:
        if not isinstance(group.get(name, getlink=True), h5py.HardLink):
            raise error(f"{group.name}/{name} is a link to another place or file, which is not followed")
        found.append((name, group[name]))
    return found


def read_array(dataset: h5py.Dataset, error: type[CaffeError]) -> HostArray:
    """Return a dataset as float64 where it is stored so, else as float32.

    Raises: `error` for values that are no numbers, lie outside the file, or are fewer than the shape says.
    """
    _check_plain(dataset, error)
    if dataset.dtype.kind not in "fiub":
        raise error(f"{dataset.name} holds {dataset.dtype}, not numbers")
    stored = dataset.id.get_storage_size()
    if dataset.nbytes > _MOST_PACKED * stored + 4096:
        raise error(f"{dataset.name} says it is {human_bytes(dataset.nbytes)}, but {human_bytes(stored)} are stored")
    return np.asarray(dataset[()], dtype=np.float64 if dataset.dtype == np.float64 else np.float32)


def read_int(group: h5py.Group, name: str, error: type[CaffeError]) -> int:
    """Return an integer dataset of one element. Raises: `error` where it is missing or something else."""
    dataset = _member(group, name, error)
    if dataset.dtype.kind not in "iu" or dataset.size != 1:
        raise error(f"{dataset.name} is {dataset.dtype} of shape {dataset.shape}, not one integer")
    return int(np.asarray(dataset[()]).reshape(()))


def read_string(group: h5py.Group, name: str, error: type[CaffeError]) -> str:
    """Return a string dataset. Raises: `error` where it is missing or something else."""
    dataset = _member(group, name, error)
    value = dataset[()] if dataset.shape == () and dataset.dtype.kind in "SO" else None
    if not isinstance(value, bytes) or len(value) > 65536:
        raise error(f"{dataset.name} is {dataset.dtype} of shape {dataset.shape}, not a string")
    return value.rstrip(b"\0").decode("utf-8", "replace")


def write_int(group: h5py.Group, name: str, value: int) -> None:
    """Write an integer as Caffe reads it: a dataset of shape (1,)."""
    group.create_dataset(name, data=np.array([value], dtype=np.int32 if -(2**31) <= value < 2**31 else np.int64))


def write_string(group: h5py.Group, name: str, value: str) -> None:
    """Write a string of fixed length with its final NUL, the only kind that Caffe reads."""
    encoded = value.encode("utf-8")
    group.create_dataset(name, data=np.array(encoded, dtype=f"S{len(encoded) + 1}"))


def _member(group: h5py.Group, name: str, error: type[CaffeError]) -> h5py.Dataset:
    h5py = load_h5py()
    if name not in group:
        raise error(f'there is no "{name}" in {group.name}')
    if not isinstance(group.get(name, getlink=True), h5py.HardLink) or not isinstance(group[name], h5py.Dataset):
        raise error(f"{group.name}/{name} is not a dataset of this file")
    _check_plain(group[name], error)
    return group[name]


def _check_plain(dataset: h5py.Dataset, error: type[CaffeError]) -> None:
    if dataset.external or dataset.is_virtual:
        raise error(f"the values of {dataset.name} lie in another file, which is not followed")
