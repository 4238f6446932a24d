"""One volume of numbers from a file: npy, or NIfTI through nibabel.

Covers: axes in the order of blobs, sizes checked before anything of that size is taken, damage as errors.
Does not cover: what becomes of volumes (volume_set.py), other formats of medical pictures.
"""

from __future__ import annotations

import math
import os
import threading
import tokenize
import zlib
from typing import Any

import numpy as np

from ...errors import DataError, MissingDependency, Where, human_bytes

ENDINGS = (".npy", ".nii", ".nii.gz")
MAX_VALUES = 2**31 - 1
"""A blob's count is an int32."""
# NumPy reads an npy header by `ast.literal_eval`. Python counts its depth once for all threads, so that one of two may
# end in a SystemError where a garbage collection in between lets the other run (python/cpython#106905).
_HEADER = threading.Lock()
_MOST_DEFLATE = 1100  # gzip shrinks nothing by more than about 1,032
# A damaged header ends in any of these; nibabel's own errors are no family.
_DAMAGE = (OSError, EOFError, zlib.error, ValueError, TypeError, ArithmeticError, LookupError, MemoryError)
_FIX = "the file is damaged or cut short: copy or write it again"


def is_volume(path: str) -> bool:
    """Whether a path ends as the files that `read_volume` reads."""
    return path.lower().endswith(ENDINGS)


def read_volume(path: str | os.PathLike[str], *, canonical: bool = False) -> tuple[np.ndarray, str | None]:
    """(values float32 (channels, depth, height, width), orientation) of a volume.

    npy: axes as they are, (D, H, W) or (C, D, H, W); the orientation is None. NIfTI: x, y, z are width, height, depth,
    a further axis (time, or a vector) is the channels; values are scaled as the header says. The orientation is where
    x, y, z lead, "RAS" for right, anterior, superior; with `canonical` axes are turned and swapped so that it is RAS.
    Raises: DataError for a file that is absent, damaged, too large or holds something else; MissingDependency for NIfTI
    without nibabel.
    """
    shown = os.fspath(path)
    if not is_volume(shown):
        raise DataError(
            "not the name of a volume", where=Where(file=shown), fix="give files that end in " + ", ".join(ENDINGS)
        )
    try:
        with np.errstate(over="ignore", invalid="ignore"):  # what float32 cannot hold is found below
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
    # NumPy takes memory for a header of the length that is said, up to 4 GiB
    if head[6:7] > b"\1" and int.from_bytes(head[8:12], "little") > os.path.getsize(path):
        raise DataError(
            "not an npy file of numbers: its header goes on after its end", where=Where(file=path), fix=_FIX
        )
    try:
        # NumPy's own reader of this very format, as a map: nothing is taken for what the header says, no pickle.
        with _HEADER:
            stored = np.lib.format.open_memmap(path, "r")
    except (ValueError, EOFError, SyntaxError, TypeError, OverflowError, tokenize.TokenError) as error:
        raise DataError(f"not an npy file of numbers: {error}", where=Where(file=path), fix=_FIX) from error
    _check(path, stored.shape, stored.dtype, axes=(3, 4))
    return np.array(stored if stored.ndim == 4 else stored[None], np.float32)


def _nifti(path: str, canonical: bool) -> tuple[np.ndarray, str]:
    nibabel = _load_nibabel()
    errors: tuple[type[Exception], ...] = (*_nibabel_errors(nibabel), *_DAMAGE)
    with open(path, "rb"):  # absent or forbidden: the system's own words
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
    """By the header's own size, 540 bytes or 348: `nibabel.load` would try formats that nobody asked for too."""
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
