"""Read the published files of MNIST (idx) and CIFAR-10 (binary), plain or gzipped, record by record.

Damage and truncation are errors that name the file.
See also: datasets.py, which writes the records as databases.
"""

from __future__ import annotations

import gzip
import os
import struct
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

import numpy as np

from ...errors import DataError, Where

CIFAR_SHAPE = (3, 32, 32)
_CIFAR_BYTES = 1 + 3 * 32 * 32
_MAX_IDX_PIXELS = 1 << 24
_MOST_DEFLATE = 1100  # gzip shrinks nothing by more than about 1,032
_FIX = "download the file again"


def find_raw_file(folder: str | os.PathLike[str], *names: str) -> Path:
    """Return the first of `names`, each also with ".gz", that is in `folder`. Raises: DataError where none is."""
    for name in names:
        for path in (Path(folder, name), Path(folder, name + ".gz")):
            if path.is_file():
                return path
    raise DataError(
        f"neither {names[0]} nor {names[0]}.gz is in this folder",
        where=Where(file=os.fspath(folder)),
        fix="download the data set's files there and leave their names as they are",
    )


class IdxFile:
    """Read an idx file of bytes: `shape` from the header (N first); iterating yields N records.

    Raises: DataError, naming the file, where it is damaged, has another type of values or an absurd size; while
    iterating, where it is shorter or longer than its header says.
    """

    def __init__(self, path: Path, axes: int):
        self.path = path
        with _reading(path) as file:
            head = _exactly(file, 4 + 4 * axes, path, "the header")
        if head[:4] != bytes([0, 0, 8, axes]):
            raise _damaged(
                path,
                f"it begins with {head[:4].hex(' ')}, an idx file of bytes in {axes} axes with 00 00 08 {axes:02x}",
            )
        self.shape: tuple[int, ...] = struct.unpack(f">{axes}I", head[4:])
        pixels = 1
        for size in self.shape[1:]:
            pixels *= size
        if not 0 < pixels <= _MAX_IDX_PIXELS:
            raise _damaged(path, f"records of shape {self.shape[1:]}")
        most = os.path.getsize(path) * (_MOST_DEFLATE if path.suffix == ".gz" else 1)
        if self.shape[0] * pixels > most:
            raise _damaged(path, f"{self.shape[0]} records of {pixels} bytes are expected, more than it can hold")

    def __len__(self) -> int:
        return self.shape[0]

    def __iter__(self) -> Iterator[np.ndarray]:
        """Yield uint8 arrays of shape `shape[1:]`."""
        record_shape = self.shape[1:]
        size = int(np.prod(record_shape, dtype=np.int64))
        with _reading(self.path) as file:
            _exactly(file, 4 + 4 * len(self.shape), self.path, "the header")
            for index in range(len(self)):
                record = _exactly(file, size, self.path, f"record {index} of {len(self)}")
                yield np.frombuffer(record, np.uint8).reshape(record_shape)
            if file.read(1):
                raise _damaged(self.path, f"it goes on after its {len(self)} records")


def open_labelled(images_path: str | os.PathLike[str], labels_path: str | os.PathLike[str]) -> tuple[IdxFile, IdxFile]:
    """Open a file of pictures and the file of their labels, both plain or .gz.

    Raises: DataError where one is damaged, their lengths differ, or they are empty.
    """
    images, labels = IdxFile(Path(images_path), 3), IdxFile(Path(labels_path), 1)
    if len(images) != len(labels):
        raise DataError(
            f"{len(labels)} labels for the {len(images)} pictures of {images.path}",
            where=Where(file=str(labels.path)),
            fix="take both files from the same data set",
        )
    if not len(images):
        raise _damaged(images.path, "it holds no picture")
    return images, labels


def read_cifar(path: Path) -> Iterator[tuple[np.ndarray, int]]:
    """Yield (picture uint8 (3, 32, 32) red, green, blue; label 0..9) of each record of a CIFAR-10 binary file.

    Raises: DataError, naming the file, where it is truncated or a label is above 9.
    """
    with _reading(path) as file:
        index = 0
        while record := file.read(_CIFAR_BYTES):
            if len(record) != _CIFAR_BYTES:
                raise _damaged(path, f"it ends after {len(record)} of the {_CIFAR_BYTES} bytes of record {index}")
            if record[0] > 9:
                raise _damaged(path, f"record {index} has label {record[0]}, CIFAR-10 has 0 to 9")
            yield np.frombuffer(record, np.uint8, offset=1).reshape(CIFAR_SHAPE), record[0]
            index += 1
        if index == 0:
            raise _damaged(path, "it is empty")


@contextmanager
def _reading(path: Path) -> Iterator[BinaryIO]:
    try:
        with gzip.open(path) if path.suffix == ".gz" else open(path, "rb") as file:
            yield file  # type: ignore[misc]
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise _damaged(path, str(error)) from error
    except OSError as error:
        raise DataError(
            f"cannot be read: {error.strerror or error}", where=Where(file=str(path)), fix="check path and permissions"
        ) from error


def _exactly(file: BinaryIO, size: int, path: Path, what: str) -> bytes:
    data = file.read(size)
    if len(data) != size:
        raise _damaged(path, f"it ends inside {what}")
    return data


def _damaged(path: Path, found: str) -> DataError:
    return DataError(f"a damaged or wrong file: {found}", where=Where(file=str(path)), fix=_FIX)
