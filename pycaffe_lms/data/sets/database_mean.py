"""Compute the mean picture of a database, as Caffe's compute_image_mean does, decoding with several threads.

See also: mean.py, which sums pictures and writes the file.
"""

from __future__ import annotations

import os
from contextlib import closing

import numpy as np

from ...errors import DataError
from ..database.datum import decode_datum, record_place
from ..database.open import open_database
from ..transform.mean import MeanSum
from ..transform.workers import in_order
from .conversion import Progress


def database_mean(
    path: str | os.PathLike[str], *, backend: str = "lmdb", progress: Progress | None = None
) -> tuple[np.ndarray, int]:
    """Return (mean of all records, float32 (C, H, W); their number). Encoded pictures count as they are stored.

    Raises: DataError for an empty or damaged database, or records of several shapes, naming the record;
    MissingDependency for encoded pictures without OpenCV.
    """
    shown, total = os.fspath(path), MeanSum()
    with closing(open_database(path, backend)) as source:
        # LevelDB counts its records by reading all keys.
        count = len(source) if backend == "lmdb" else None
        decoded = in_order(
            lambda record: (record[0], decode_datum(record[1], source=shown, key=record[0])[0]), source.records()
        )
        first: tuple[int, ...] | None = None
        for key, array in decoded:
            first = first or array.shape
            if array.shape != first:
                raise DataError(
                    f"channels x height x width are {array.shape}, of the records before {first}",
                    where=record_place(shown, key),
                    fix="convert the pictures with one size (convert_imageset -resize_height -resize_width)",
                )
            total.add(array[None])
            if progress:
                progress(total.count, count)
    return total.mean(), total.count


def channel_means(mean: np.ndarray) -> list[float]:
    """Return the mean of each channel of a mean picture (C, H, W), summed in order in float32 as Caffe does."""
    return [float(np.cumsum(plane.ravel(), dtype=np.float32)[-1] / np.float32(plane.size)) for plane in mean]
