"""Small data sets as LMDBs, ready for training.

Covers: the digits that come with the package; MNIST and CIFAR-10 from the files they are published as, with the keys
and values of Caffe's convert_mnist_data and convert_cifar_data.
Does not cover: downloading; lists of pictures (convert_imageset).
"""

from __future__ import annotations

import hashlib
import os
import zipfile
import zlib
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np

from pycaffe_lms.data.datum import encode_datum
from pycaffe_lms.data.lmdb_writer import write_lmdb
from pycaffe_lms.data.mean import MeanSum, save_mean
from pycaffe_lms.data.raw_files import IdxFile, find_raw_file, read_cifar
from pycaffe_lms.errors import DataError, Where

Progress = Callable[[int, int], None]
"""Called as progress(records done, records in all) every thousand records and at the end of each database."""

Labelled = Iterable[tuple[np.ndarray, int]]

DIGITS_FILE = Path(__file__).with_name("digits.npz")
DIGITS_SHA256 = "a19cb3d96bba7deace8ee5a513a6eb7bad0403d528f00bf4d351b6a7a55baa91"
"""Of the images' bytes followed by the labels'."""
DIGITS_TEST_RECORDS = 297


def load_digits() -> tuple[np.ndarray, np.ndarray]:
    """The digits of the UCI optical recognition set: images (1797, 1, 8, 8) uint8 gray, labels (1797,) uint8.

    Raises: DataError where the installed file is damaged. Source and licence: DIGITS.md beside this file.
    """
    where, fix = Where(file=str(DIGITS_FILE)), "install pycaffe-lms again"
    try:
        with open(DIGITS_FILE, "rb") as file, np.load(file, allow_pickle=False) as stored:
            images, labels = stored["images"], stored["labels"]
    except (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile, zlib.error) as error:
        raise DataError(f"cannot be read: {error}", where=where, fix=fix) from error
    if hashlib.sha256(images.tobytes() + labels.tobytes()).hexdigest() != DIGITS_SHA256:
        raise DataError("not the digits that belong to this version", where=where, fix=fix)
    return images[:, None], labels


def digits_test_rows(labels: np.ndarray) -> np.ndarray:
    """Which of the digits (bool, as long as `labels`) are for testing: 297, evenly spaced over each class.

    So all writers are in both parts, as in a random split, but any program can repeat it: of a class of n digits with
    t for testing, numbers (2 i + 1) n // (2 t), i = 0 .. t - 1. t is n * 297 / 1797, rounded down; the classes that
    lose most by rounding (the lower digit first) give one more.
    """
    counts = np.bincount(labels, minlength=10)
    share, rest = np.divmod(counts * DIGITS_TEST_RECORDS, len(labels))
    share[np.argsort(-rest, kind="stable")[: DIGITS_TEST_RECORDS - share.sum()]] += 1
    rows = np.zeros(len(labels), bool)
    for digit, take in enumerate(share):
        mine = np.flatnonzero(labels == digit)
        rows[mine[(2 * np.arange(take) + 1) * len(mine) // (2 * take)]] = True
    return rows


def make_digits(
    out_dir: str | os.PathLike, *, progress: Progress | None = None, overwrite: bool = False
) -> dict[str, Path]:
    """Write `digits_train_lmdb` (1,500 records) and `digits_test_lmdb` (297) into `out_dir`, keys %08d, in file order.

    Returns {"train": path, "test": path}. Split: `digits_test_rows`.
    Raises: DataError where a database exists (unless `overwrite`) or cannot be written.
    """
    images, labels = load_digits()
    test = digits_test_rows(labels)
    paths = {}
    for part, rows in (("train", ~test), ("test", test)):
        records = zip(images[rows], labels[rows].tolist(), strict=True)
        paths[part] = Path(out_dir, f"digits_{part}_lmdb")
        _write(paths[part], records, int(rows.sum()), "%08d", progress, overwrite)
    return paths


def make_mnist(
    source_dir: str | os.PathLike,
    out_dir: str | os.PathLike,
    *,
    progress: Progress | None = None,
    overwrite: bool = False,
) -> dict[str, Path]:
    """Write `mnist_train_lmdb` and `mnist_test_lmdb` from the four idx files (.gz or not) in `source_dir`, keys %08d.

    Records are 1 x 28 x 28 (whatever the files hold: other sets in this format do as well). Returns {"train": path,
    "test": path}.
    Raises: DataError for absent or damaged files, and as `make_digits`.
    """
    paths = {}
    for part, prefix in (("train", "train"), ("test", "t10k")):
        images = IdxFile(find_raw_file(source_dir, *(f"{prefix}-images{dot}idx3-ubyte" for dot in "-.")), 3)
        labels = IdxFile(find_raw_file(source_dir, *(f"{prefix}-labels{dot}idx1-ubyte" for dot in "-.")), 1)
        if len(images) != len(labels):
            raise DataError(
                f"{len(labels)} labels for the {len(images)} pictures of {images.path}",
                where=Where(file=str(labels.path)),
                fix="take both files from the same data set",
            )
        records = ((image[None], int(label)) for image, label in zip(images, labels, strict=True))
        paths[part] = Path(out_dir, f"mnist_{part}_lmdb")
        _write(paths[part], records, len(images), "%08d", progress, overwrite)
    return paths


def make_cifar10(
    source_dir: str | os.PathLike,
    out_dir: str | os.PathLike,
    *,
    progress: Progress | None = None,
    overwrite: bool = False,
) -> dict[str, Path]:
    """Write `cifar10_train_lmdb`, `cifar10_test_lmdb` (keys %05d) and `mean.binaryproto` of the training pictures.

    source_dir: data_batch_1.bin to data_batch_5.bin and test_batch.bin, or else any train*.bin and test*.bin, each
    plain or .gz; several are taken in the order of their names. Records are 3 x 32 x 32 as published: red, green, blue.
    Returns {"train": path, "test": path, "mean": path}.
    Raises: DataError for absent or damaged files, and as `make_digits`; an existing mean file is replaced.
    """
    paths, total = {"mean": Path(out_dir, "mean.binaryproto")}, MeanSum()
    for part, patterns in (("train", ("data_batch_*", "train*")), ("test", ("test_batch", "test*"))):
        files = _cifar_files(source_dir, patterns)
        records: Labelled = (record for file in files for record in read_cifar(file))
        if part == "train":
            records = _summed(records, total)
        paths[part] = Path(out_dir, f"cifar10_{part}_lmdb")
        # How many a .gz holds is known at its end only; a first pass is cheap beside the writing.
        count = sum(1 for file in files for _ in read_cifar(file))
        _write(paths[part], records, count, "%05d", progress, overwrite)
    save_mean(paths["mean"], total.mean())
    return paths


class Dataset(NamedTuple):
    """`make(out_dir)`, or `make(source_dir, out_dir)` where `needs_source`; both take `progress` and `overwrite`."""

    make: Callable[..., dict[str, Path]]
    needs_source: bool
    description: str


DATASETS: dict[str, Dataset] = {
    "digits": Dataset(make_digits, False, "1,797 handwritten digits, 1 x 8 x 8; comes with the package"),
    "mnist": Dataset(make_mnist, True, "70,000 handwritten digits, 1 x 28 x 28; needs the four idx files"),
    "cifar10": Dataset(make_cifar10, True, "60,000 colour pictures, 3 x 32 x 32; needs the binary version"),
}
"""Name -> how to make it, for the command line."""


def _cifar_files(source_dir: str | os.PathLike, patterns: tuple[str, ...]) -> list[Path]:
    for pattern in patterns:
        found = {path.name.removesuffix(".gz"): path for path in Path(source_dir).glob(pattern + ".bin.gz")}
        found.update((path.name, path) for path in Path(source_dir).glob(pattern + ".bin"))  # plain rather than .gz
        if found:
            return [found[name] for name in sorted(found)]
    raise DataError(
        f"no {patterns[0]}.bin and no {patterns[0]}.bin.gz in this folder",
        where=Where(file=os.fspath(source_dir)),
        fix="unpack CIFAR-10's binary version there",
    )


def _summed(records: Labelled, total: MeanSum) -> Iterator[tuple[np.ndarray, int]]:
    for image, label in records:
        total.add(image[None])
        yield image, label


def _write(
    path: Path, records: Labelled, count: int, key_format: str, progress: Progress | None, overwrite: bool
) -> None:
    def serialized() -> Iterator[tuple[bytes, bytes]]:
        for index, (image, label) in enumerate(records):
            if progress and index and index % 1000 == 0:
                progress(index, count)
            yield (key_format % index).encode(), encode_datum(image, label)

    write_lmdb(path, serialized(), overwrite=overwrite)
    if progress:
        progress(count, count)
