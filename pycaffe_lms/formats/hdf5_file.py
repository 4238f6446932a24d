"""HDF5 files of strangers, read with care: only plain data of the file itself, no more than the file holds.

Covers: opening with an error for a missing h5py, walking hard links, reading arrays, integers and strings.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np

from pycaffe_lms.errors import CaffeError, MissingDependency, Where, human_bytes
from pycaffe_lms.formats.rawfile import DAMAGED, could_not_open

# Deflate packs at most 1032:1. More than that is a size nobody stored.
_MOST_PACKED = 1100


def load_h5py():
    """The module h5py. Raises: MissingDependency with the pip line."""
    try:
        import h5py
    except ImportError:
        raise MissingDependency("h5py", "reading and writing HDF5 files", "'pycaffe-lms[hdf5]'") from None
    return h5py


@contextmanager
def open_hdf5(path: str | os.PathLike, error: type[CaffeError]) -> Iterator:
    """The file, open for reading; whatever h5py cannot make sense of inside the block becomes `error` with the path;
    errors without a fix get one."""
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
        raise error(
            f"not a readable HDF5 file: {failure}",
            where=Where(file=os.fspath(path)),
            fix=DAMAGED,
        ) from failure


def members(group, error: type[CaffeError]) -> list[tuple[str, object]]:
    """Name and object of everything in a group. Raises: `error` for links that lead elsewhere."""
    h5py = load_h5py()
    found = []
    for name in group:
        if not isinstance(group.get(name, getlink=True), h5py.HardLink):
            raise error(f"{group.name}/{name} is a link to another place or file, which is not followed")
        found.append((name, group[name]))
    return found


def read_array(dataset, error: type[CaffeError]) -> np.ndarray:
    """A dataset as float32, or float64 where it is stored so; integers convert.

    Raises: `error` for values that are no numbers, lie outside the file, or are fewer than the shape says.
    """
    _check_plain(dataset, error)
    if dataset.dtype.kind not in "fiub":
        raise error(f"{dataset.name} holds {dataset.dtype}, not numbers")
    stored = dataset.id.get_storage_size()
    if dataset.nbytes > _MOST_PACKED * stored + 4096:
        raise error(f"{dataset.name} says it is {human_bytes(dataset.nbytes)}, but {human_bytes(stored)} are stored")
    return np.asarray(dataset[()], dtype=np.float64 if dataset.dtype == np.float64 else np.float32)


def read_int(group, name: str, error: type[CaffeError]) -> int:
    """An integer dataset of one element. Raises: `error` where it is missing or something else."""
    dataset = _member(group, name, error)
    if dataset.dtype.kind not in "iu" or dataset.size != 1:
        raise error(f"{dataset.name} is {dataset.dtype} of shape {dataset.shape}, not one integer")
    return int(np.asarray(dataset[()]).reshape(()))


def read_string(group, name: str, error: type[CaffeError]) -> str:
    """A string dataset. Raises: `error` where it is missing or something else."""
    dataset = _member(group, name, error)
    value = dataset[()] if dataset.shape == () and dataset.dtype.kind in "SO" else None
    if not isinstance(value, bytes) or len(value) > 65536:
        raise error(f"{dataset.name} is {dataset.dtype} of shape {dataset.shape}, not a string")
    return value.rstrip(b"\0").decode("utf-8", "replace")


def write_int(group, name: str, value: int) -> None:
    """An integer as Caffe's reader takes it: a dataset of shape (1,)."""
    group.create_dataset(name, data=np.array([value], dtype=np.int32 if -(2**31) <= value < 2**31 else np.int64))


def write_string(group, name: str, value: str) -> None:
    """A string of fixed length with its final NUL: Caffe's reader knows no other kind."""
    encoded = value.encode("utf-8")
    group.create_dataset(name, data=np.array(encoded, dtype=f"S{len(encoded) + 1}"))


def _member(group, name: str, error: type[CaffeError]):
    h5py = load_h5py()
    if name not in group:
        raise error(f'there is no "{name}" in {group.name}')
    if not isinstance(group.get(name, getlink=True), h5py.HardLink) or not isinstance(group[name], h5py.Dataset):
        raise error(f"{group.name}/{name} is not a dataset of this file")
    _check_plain(group[name], error)
    return group[name]


def _check_plain(dataset, error: type[CaffeError]) -> None:
    if dataset.external or dataset.is_virtual:
        raise error(f"the values of {dataset.name} lie in another file, which is not followed")
