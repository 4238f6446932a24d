"""Pairs of digits for training Siamese nets: what Caffe's convert_mnist_siamese_data does.

See also: raw_files.py, which reads the pictures.
"""

from __future__ import annotations

import os
from collections.abc import Iterator

import numpy as np

from ..database.datum import encode_datum
from ..database.whole_folder import Record
from .conversion import Progress, random_pairs, told, write_database
from .raw_files import open_labelled


def convert_mnist_siamese(
    images_path: str | os.PathLike[str],
    labels_path: str | os.PathLike[str],
    path: str | os.PathLike[str],
    *,
    seed: int,
    backend: str = "leveldb",
    overwrite: bool = False,
    progress: Progress | None = None,
) -> tuple[int, int, int]:
    """Write as many pairs as the idx file holds pictures, keys %08d; returns the pictures' shape, (N, H, W).

    A record has two channels, two pictures drawn at random with replacement (a pair may be one picture twice), and
    label 1 where their labels agree, else 0. `seed` settles the pairs.
    Raises: DataError for absent or damaged files, and as `write_database`.
    """
    images, labels = open_labelled(images_path, labels_path)
    pixels, digits = np.stack(list(images)), np.array(list(labels))

    def records() -> Iterator[Record]:
        for number, (i, j) in enumerate(random_pairs(len(images), seed)):
            yield b"%08d" % number, encode_datum(pixels[[i, j]], int(digits[i] == digits[j]))

    write_database(path, told(records(), len(images), progress), backend=backend, overwrite=overwrite)
    return images.shape  # type: ignore[return-value]
