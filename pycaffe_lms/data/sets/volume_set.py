"""Volumes that a list names, into HDF5 files and the list of files that HDF5Data reads.

Covers: a class or a volume of labels for each, files of a bounded size, all or no list.
See also: volume.py, which reads one; hdf5_batches.py, which reads what is written here.
"""

from __future__ import annotations

import os
import re
from collections.abc import Generator, Iterator, Sequence
from contextlib import closing
from itertools import chain, islice
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from ...errors import DataError, Where
from ...formats.atomic import atomic_write
from ...formats.hdf5_file import load_h5py, write_hdf5
from ..transform.volume import is_volume, read_volume
from ..transform.workers import in_order
from .conversion import Progress

if TYPE_CHECKING:
    import h5py


class Pair(NamedTuple):
    """A line of the list: number, the volume's path, its class or the path of its volume of labels."""

    line: int
    path: str
    label: int | str


class _Row(NamedTuple):
    pair: Pair
    data: np.ndarray
    label: np.ndarray
    orientation: str | None


def read_volume_list(path: str | os.PathLike[str]) -> list[Pair]:
    """Lines `VOLUME LABEL`, split at the last space; LABEL is a whole number, or in all lines the path of a volume.

    Raises: DataError for a list that cannot be read or is empty, or a line of another kind, naming it.
    """
    shown, pairs = os.fspath(path), []
    try:
        with open(path, encoding="utf-8", errors="surrogateescape") as file:
            for number, line in enumerate(file, 1):
                if line.strip():
                    pairs.append(_pair(shown, number, line.rstrip("\r\n")))
    except OSError as error:
        raise DataError(
            f"cannot read the list of volumes: {error.strerror}", where=Where(file=shown), fix="check the path"
        ) from error
    if not pairs:
        raise DataError("the list of volumes is empty", where=Where(file=shown), fix="write lines `VOLUME LABEL`")
    for pair in pairs:
        if isinstance(pair.label, str) != isinstance(pairs[0].label, str):
            raise DataError(
                "a class here and a volume of labels in another line",
                where=Where(file=shown, line=pair.line),
                fix="make two lists",
            )
    return pairs


def write_volumes(
    root: str,
    pairs: Sequence[Pair],
    out_dir: str | os.PathLike[str],
    name: str,
    *,
    source: str,
    file_bytes: int = 256 << 20,
    canonical: bool = False,
    overwrite: bool = False,
    progress: Progress | None = None,
) -> list[Path]:
    """Write NAME_0000.h5, .. (about `file_bytes` each, at least one volume) and, at the very end, NAME.txt, which lists
    them by their absolute paths; returns those, the list last.

    Each file holds "data", float32 (N, C, D, H, W), and "label", float32 (N,) of classes or (N, C, D, H, W) of labels.
    root: put before every path as it stands. source: the list, named in errors. canonical: as `read_volume`.
    Raises: DataError for a volume that cannot be read or differs in shape or orientation from the first, and where
    NAME.txt is there already (unless `overwrite`); MissingDependency without h5py, or nibabel where it is needed.
    """
    load_h5py()
    out = Path(os.path.abspath(out_dir))
    listed = out / f"{name}.txt"
    if len(str(listed).split()) != 1:
        raise DataError(
            "HDF5Data takes no spaces in paths", where=Where(file=str(listed)), fix="choose another folder or name"
        )
    if listed.exists() and not overwrite:
        raise DataError(
            "exists already", where=Where(file=str(listed)), fix="remove it, choose another name, or allow overwriting"
        )
    files: list[Path] = []
    with closing(_rows(root, pairs, source, canonical)) as rows:
        first = next(rows)
        out.mkdir(parents=True, exist_ok=True)
        listed.unlink(missing_ok=True)  # it would name files of the old set and of the new one
        most = max(1, file_bytes // (first.data.nbytes + first.label.nbytes))
        for begin in range(0, len(pairs), most):
            files.append(out / f"{name}_{begin // most:04d}.h5")
            here = min(most, len(pairs) - begin)
            block = islice(rows, here) if begin else chain([first], islice(rows, here - 1))
            _write_file(files[-1], block, here, begin, len(pairs), progress)
    atomic_write(listed, "".join(f"{file}\n" for file in files).encode(), error=DataError)
    return [*files, listed]


def _rows(root: str, pairs: Sequence[Pair], source: str, canonical: bool) -> Generator[_Row, None, None]:
    """Volumes with their labels, in the list's order; all fit the first."""
    first: _Row | None = None
    # Volumes are large: one per thread is in the making.
    for row in in_order(lambda pair: _read(root, pair, source, canonical), pairs, ahead=1):
        first = first or row
        where = Where(file=f"{source}:{row.pair.line}: {root}{row.pair.path}")
        if row.data.shape != first.data.shape:
            raise DataError(
                f"channels x depth x height x width are {row.data.shape}, of the first volume {first.data.shape}",
                where=where,
                fix="resample or crop all volumes to one size first",
            )
        if row.orientation != first.orientation:
            raise DataError(
                f"its axes lead to {row.orientation}, those of the first volume to {first.orientation}",
                where=where,
                fix="turn all to one orientation with -canonical",
            )
        yield row


def _read(root: str, pair: Pair, source: str, canonical: bool) -> _Row:
    try:
        data, orientation = read_volume(root + pair.path, canonical=canonical)
        if not isinstance(pair.label, str):
            return _Row(pair, data, np.array(pair.label, np.float32), orientation)
        label, other = read_volume(root + pair.label, canonical=canonical)
    except DataError as error:
        error.where = Where(file=f"{source}:{pair.line}: {error.where}")
        raise
    if label.shape[1:] != data.shape[1:] or other != orientation:
        raise DataError(
            f"the labels are {label.shape[1:]} {other or ''}, the volume is {data.shape[1:]} {orientation or ''}",
            where=Where(file=f"{source}:{pair.line}: {root}{pair.label}"),
            fix="give labels of the same depth, height, width and orientation (-canonical turns both)",
        )
    return _Row(pair, data, label, orientation)


def _write_file(
    path: Path, rows: Iterator[_Row], count: int, begin: int, total: int, progress: Progress | None
) -> None:
    def fill(file: h5py.File) -> None:
        for k, row in enumerate(rows):
            for key in ("data", "label"):
                values = getattr(row, key)
                if k == 0:
                    file.create_dataset(key, (count, *values.shape), np.float32)
                file[key][k] = values
            if progress:
                progress(begin + k + 1, total)

    write_hdf5(path, fill, DataError)


def _pair(source: str, number: int, line: str) -> Pair:
    path, space, label = line.rpartition(" ")
    if space and path:
        if is_volume(label):
            return Pair(number, path, label)
        # float32, what HDF5Data hands on, holds whole numbers up to here
        if re.fullmatch(r"[+-]?[0-9]{1,20}", label) and abs(int(label)) <= 2**24:
            return Pair(number, path, int(label))
    raise DataError(
        f"{line!r} is not a path, one space and a class or the path of a volume of labels",
        where=Where(file=source, line=number),
        fix="write `VOLUME LABEL`; the label is what follows the last space",
    )
