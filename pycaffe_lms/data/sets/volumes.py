"""Read volumes of numbers (npy, or NIfTI through nibabel), and write those that a list names as HDF5 for HDF5Data.

`read_volume` reads one file: axes in the order of blobs, sizes checked before memory of that size is taken, damage as
errors. `read_volume_list` and `write_volumes` make HDF5 files of bounded size, and the list of files at the very end.
See also: `hdf5_batches.py`, which reads what is written here. Other formats of medical pictures are not read.
"""

from __future__ import annotations

import math
import os
import re
import threading
import tokenize
import zlib
from collections.abc import Generator, Iterator, Sequence
from contextlib import closing
from itertools import chain, islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from ...errors import DataError, MissingDependency, Where, human_bytes
from ...formats.atomic import atomic_write
from ...formats.hdf5_file import load_h5py, open_hdf5, write_hdf5
from ...formats.rawfile import open_text
from ..transform.workers import in_order
from .conversion import Progress, differs, say_present, spots

if TYPE_CHECKING:
    import h5py

ENDINGS = (".npy", ".nii", ".nii.gz")
MAX_VALUES = 2**31 - 1
"""The most values of a volume: the count of a blob is an int32."""
# NumPy reads an npy header with `ast.literal_eval`, whose recursion depth Python counts for all threads together: two
# threads at once may get a SystemError (python/cpython#106905).
_HEADER = threading.Lock()
_MOST_DEFLATE = 1100  # gzip shrinks nothing by more than about 1,032
# What nibabel raises for a damaged header, beside its own errors, which have no common base.
_DAMAGE = (OSError, EOFError, zlib.error, ValueError, TypeError, ArithmeticError, LookupError, MemoryError)
_FIX = "the file is damaged or cut short: copy or write it again"


def is_volume(path: str) -> bool:
    """Return whether a path has an ending of files that `read_volume` reads."""
    return path.lower().endswith(ENDINGS)


def read_volume(path: str | os.PathLike[str], *, canonical: bool = False) -> tuple[np.ndarray, str | None]:
    """Read a volume: (values float32 (channels, depth, height, width), orientation).

    npy: axes as they are, (D, H, W) or (C, D, H, W); the orientation is None. NIfTI: x, y, z are width, height, depth,
    another axis (time, or a vector) is the channels; values are scaled as the header says. The orientation names the
    directions of x, y, z, "RAS" for right, anterior, superior.
    canonical: flip and swap axes so that the orientation is RAS.
    Raises: DataError for a file that is absent, damaged, too large or holds something else; MissingDependency for NIfTI
    without nibabel.
    """
    shown = os.fspath(path)
    if not is_volume(shown):
        raise DataError(
            "not the name of a volume", where=Where(file=shown), fix="give files that end in " + ", ".join(ENDINGS)
        )
    try:
        with np.errstate(over="ignore", invalid="ignore"):  # values beyond float32 are refused below
            values, orientation = (_npy(shown), None) if shown.lower().endswith(".npy") else _nifti(shown, canonical)
    except OSError as error:
        raise DataError(
            f"cannot read the volume: {error.strerror or error}",
            where=Where(file=shown),
            fix="check the path, or copy it",
        ) from error
    if not np.isfinite(values).all():
        raise DataError(
            "it holds values that are not finite numbers (NaN, infinity, or beyond float32)",
            where=Where(file=shown),
            fix="replace them, by 0 for example, and write the volume again",
        )
    return np.ascontiguousarray(values), orientation


def _npy(path: str) -> np.ndarray:
    with open(path, "rb") as file:
        head = file.read(12)
    # NumPy would take memory for a header of the length that the file claims, up to 4 GiB.
    if head[6:7] > b"\1" and int.from_bytes(head[8:12], "little") > os.path.getsize(path):
        raise DataError(
            "not an npy file of numbers: its header goes on after its end", where=Where(file=path), fix=_FIX
        )
    try:
        # A memory map takes no memory for the shape that the header claims, and reads no pickles.
        with _HEADER:
            stored = np.lib.format.open_memmap(path, "r")
    except (ValueError, EOFError, SyntaxError, TypeError, OverflowError, tokenize.TokenError) as error:
        raise DataError(f"not an npy file of numbers: {error}", where=Where(file=path), fix=_FIX) from error
    _check(path, stored.shape, stored.dtype, axes=(3, 4))
    return np.array(stored if stored.ndim == 4 else stored[None], np.float32)


def _nifti(path: str, canonical: bool) -> tuple[np.ndarray, str]:
    nibabel = _load_nibabel()
    errors: tuple[type[Exception], ...] = (*_nibabel_errors(nibabel), *_DAMAGE)
    with open(path, "rb"):  # raises OSError for an absent or forbidden file
        pass
    try:
        image = _open_nifti(nibabel, path)
        shape = image.shape[:3] + image.shape[4:] if len(image.shape) == 5 and image.shape[3] == 1 else image.shape
        dtype = image.get_data_dtype()
        _check(path, shape, dtype, axes=(3, 4))
        needed, size = math.prod(shape) * dtype.itemsize, os.path.getsize(path)
        if needed > size * (_MOST_DEFLATE if path.lower().endswith(".gz") else 1):
            raise DataError(
                f"the header says {human_bytes(needed)} of values, more than the file can hold ({human_bytes(size)})",
                where=Where(file=path),
                fix=_FIX,
            )
        if canonical:
            image = nibabel.as_closest_canonical(image)
        orientation = "".join(axis or "?" for axis in nibabel.aff2axcodes(image.affine))
        values = np.asanyarray(image.dataobj, np.float32)
    except (DataError, FileNotFoundError):
        raise
    except errors as error:
        raise DataError(f"not a readable NIfTI file: {error}", where=Where(file=path), fix=_FIX) from error
    values = values.reshape([n for k, n in enumerate(values.shape) if not (k == 3 and values.ndim == 5)])
    return (values if values.ndim == 4 else values[..., None]).T, orientation


def _nibabel_errors(nibabel: Any) -> tuple[type[Exception], ...]:
    return (
        nibabel.filebasedimages.ImageFileError,
        nibabel.spatialimages.HeaderDataError,
        nibabel.orientations.OrientationError,
        np.linalg.LinAlgError,  # of affine maps that are no numbers
    )


def _open_nifti(nibabel: Any, path: str) -> Any:
    """Open a file of NIfTI-2 or NIfTI-1; `nibabel.load` would try other formats too."""
    for kind in (nibabel.Nifti2Image, nibabel.Nifti1Image):
        if kind.path_maybe_image(path)[0]:
            return kind.from_filename(path, mmap=False)
    raise DataError("not a NIfTI file", where=Where(file=path), fix="check what the file is; " + _FIX)


def _check(path: str, shape: tuple[int, ...], dtype: np.dtype, *, axes: tuple[int, ...]) -> None:
    found = None
    if dtype.kind not in "fiub":
        found = f"it holds {dtype}, not numbers"
    elif len(shape) not in axes or min(shape) < 1:
        found = f"it has the shape {tuple(map(int, shape))}, not three axes, or four with channels"
    elif math.prod(map(int, shape)) > MAX_VALUES:
        found = f"it has the shape {tuple(map(int, shape))}, more than the {MAX_VALUES} values of a blob"
    if found:
        raise DataError(f"not a volume: {found}", where=Where(file=path), fix="convert it to a volume of numbers first")


def _load_nibabel() -> Any:
    try:
        import nibabel
    except ImportError:
        raise MissingDependency(
            "nibabel", "reading NIfTI volumes", "'pycaffe-lms[nifti]'", "convert them to npy"
        ) from None
    return nibabel


class Pair(NamedTuple):
    """Hold a line of the list: its number, the path of the volume, and its class or the path of a volume of labels."""

    line: int
    path: str
    label: int | str


class _Row(NamedTuple):
    pair: Pair
    data: np.ndarray
    label: np.ndarray
    orientation: str | None


def read_volume_list(path: str | os.PathLike[str]) -> list[Pair]:
    """Read lines `VOLUME LABEL`, split at the last space; LABEL is a whole number, or in all lines a volume's path.

    Raises: DataError for a list that cannot be read or is empty, or a line of another kind, naming it.
    """
    shown, pairs = os.fspath(path), []
    with open_text(path, "the list of volumes") as file:
        for number, line in enumerate(file, 1):
            if line.strip():
                pairs.append(_pair(shown, number, line.rstrip("\r\n")))
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
    """Write NAME_0000.h5, ... and, at the very end, NAME.txt, which lists them by absolute paths; return all paths.

    Each file holds "data", float32 (N, C, D, H, W), and "label", float32 (N,) of classes or (N, C, D, H, W) of labels.

    Args:
        root: put before every path unchanged.
        source: the list, named in errors.
        file_bytes: about the size of a file, which has at least one volume.
        canonical: as `read_volume`.
    Where NAME.txt is there (and no `overwrite`), nothing is written: a hundred volumes, evenly spaced, are compared.
    Raises: DataError for a volume that cannot be read or differs in shape or orientation from the first, and where
    files are there and differ; MissingDependency without h5py, or nibabel where it is needed.
    """
    load_h5py()
    out = Path(os.path.abspath(out_dir))
    listed = out / f"{name}.txt"
    if len(str(listed).split()) != 1:
        raise DataError(
            "HDF5Data takes no spaces in paths", where=Where(file=str(listed)), fix="choose another folder or name"
        )
    if listed.exists() and not overwrite:
        return [*_check_written(root, pairs, listed, source, file_bytes, canonical), listed]
    files: list[Path] = []
    with closing(_rows(root, pairs, source, canonical)) as rows:
        first = next(rows)
        out.mkdir(parents=True, exist_ok=True)
        listed.unlink(missing_ok=True)  # it must not name files of the old set and the new one
        most = _volumes_in_file(first, file_bytes)
        for begin in range(0, len(pairs), most):
            files.append(out / f"{name}_{begin // most:04d}.h5")
            here = min(most, len(pairs) - begin)
            block = islice(rows, here) if begin else chain([first], islice(rows, here - 1))
            _write_file(files[-1], block, here, begin, len(pairs), progress)
    atomic_write(listed, "".join(f"{file}\n" for file in files).encode(), error=DataError)
    return [*files, listed]


def _volumes_in_file(row: _Row, file_bytes: int) -> int:
    return max(1, file_bytes // (row.data.nbytes + row.label.nbytes))


def _check_written(
    root: str, pairs: Sequence[Pair], listed: Path, source: str, file_bytes: int, canonical: bool
) -> list[Path]:
    """Check that the list `listed` and its files are what `write_volumes` would write; return the files."""
    first = _read(root, pairs[0], source, canonical)
    most = _volumes_in_file(first, file_bytes)
    files = [listed.with_name(f"{listed.stem}_{k:04d}.h5") for k in range(-(-len(pairs) // most))]
    if listed.read_bytes() != "".join(f"{file}\n" for file in files).encode():
        raise differs(listed, "it lists other files")
    compared = spots(len(pairs))
    for k, path in enumerate(files):
        here = range(k * most, min((k + 1) * most, len(pairs)))
        rows = [_read(root, pairs[n], source, canonical) for n in compared if n in here]
        try:
            with open_hdf5(path, DataError) as file:
                wrong = _difference(file, first, here, [n for n in compared if n in here], rows)
        except DataError as error:
            wrong = error.message
        if wrong:
            raise differs(path, wrong)
    say_present(listed, f"{len(pairs)} volumes, {len(compared)} were compared")
    return files


def _difference(file: h5py.File, first: _Row, here: range, compared: Sequence[int], rows: Sequence[_Row]) -> str:
    """Return how a file differs from what it should hold, "" where it does not. rows: the volumes `compared`."""
    for key in ("data", "label"):
        if file[key].shape != (len(here), *getattr(first, key).shape):
            return f'"{key}" has the shape {file[key].shape}'
        for number, row in zip(compared, rows, strict=True):
            if not np.array_equal(file[key][number - here[0]], getattr(row, key)):
                return f"{row.pair.path} is another one there"
    return ""


def _rows(root: str, pairs: Sequence[Pair], source: str, canonical: bool) -> Generator[_Row, None, None]:
    """Yield volumes with their labels, in the list's order; all have the first one's shape and orientation."""
    first: _Row | None = None
    # Volumes are large: each thread reads one at a time.
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
        # float32, the type of HDF5Data's tops, holds whole numbers up to 2^24
        if re.fullmatch(r"[+-]?[0-9]{1,20}", label) and abs(int(label)) <= 2**24:
            return Pair(number, path, int(label))
    raise DataError(
        f"{line!r} is not a path, one space and a class or the path of a volume of labels",
        where=Where(file=source, line=number),
        fix="write `VOLUME LABEL`; the label is what follows the last space",
    )
