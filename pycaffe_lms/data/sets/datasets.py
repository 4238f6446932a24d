"""Write small data sets as databases, ready for training.

Covers: the digits that come with the package; MNIST (also as pairs), Fashion-MNIST and CIFAR-10 from their published
files, with the keys and values of Caffe's convert_mnist_data, convert_mnist_siamese_data and convert_cifar_data; the
table of all such sets.
Does not cover: downloading; lists of pictures (imageset.py).
"""

from __future__ import annotations

import hashlib
import os
import zipfile
import zlib
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import NamedTuple

import numpy as np

from ...errors import DataError, Where
from ..database.datum import encode_datum
from ..database.whole_folder import Record
from ..transform.mean import MeanSum, save_mean
from .conversion import Progress, make_database, random_pairs, told
from .raw_files import find_raw_file, open_labelled, read_cifar
from .shapes import make_shapes

Labelled = Iterable[tuple[np.ndarray, int]]

DIGITS_FILE = Path(__file__).with_name("digits.npz")
DIGITS_SHA256 = "a19cb3d96bba7deace8ee5a513a6eb7bad0403d528f00bf4d351b6a7a55baa91"
"""The digest of the images' bytes followed by the labels'."""
DIGITS_TEST_RECORDS = 297


def load_digits() -> tuple[np.ndarray, np.ndarray]:
    """Load the digits of the UCI optical recognition set: images (1797, 1, 8, 8) uint8 gray, labels (1797,) uint8.

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
    """Return a bool for each of `labels`: whether the digit is for testing. 297 are, evenly spaced over each class.

    All writers are in both parts, as in a random split, but any program can repeat it: of a class of n digits with t
    for testing, those are numbers (2 i + 1) n // (2 t), i = 0 .. t - 1. t is n * 297 / 1797, rounded down; the classes
    that lose most by rounding (of equal ones the lower digit) have one more.
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
    out_dir: str | os.PathLike[str], *, backend: str = "lmdb", progress: Progress | None = None, overwrite: bool = False
) -> dict[str, Path]:
    """Write `digits_train_lmdb` (1,500 records) and `digits_test_lmdb` (297) into `out_dir`, keys %08d, in file order.

    Return {"train": path, "test": path}. `digits_test_rows` makes the split.
    backend: lmdb or leveldb, and the ending of the names.
    A database that is there with these very records is left as it is, as with all data sets.
    Raises: DataError where another or a damaged one is there (unless `overwrite`), or one cannot be written.
    """
    images, labels = load_digits()
    test = digits_test_rows(labels)
    paths = {}
    for part, rows in (("train", ~test), ("test", test)):
        records = zip(images[rows], labels[rows].tolist(), strict=True)
        paths[part] = Path(out_dir, f"digits_{part}_{backend}")
        _write(paths[part], records, int(rows.sum()), "%08d", backend, progress, overwrite)
    return paths


def make_mnist(
    source_dir: str | os.PathLike[str],
    out_dir: str | os.PathLike[str],
    *,
    name: str = "mnist",
    backend: str = "lmdb",
    progress: Progress | None = None,
    overwrite: bool = False,
) -> dict[str, Path]:
    """Write `mnist_train_lmdb` and `mnist_test_lmdb` from the four idx files (.gz or not) in `source_dir`, keys %08d.

    Return {"train": path, "test": path}. Records have the shape of the files' pictures, for MNIST 1 x 28 x 28; other
    sets in this format can be written with another `name`.
    backend: lmdb or leveldb, and the ending of the names.
    Raises: DataError for absent or damaged files, and as `make_digits`.
    """
    paths = {}
    for part, prefix in (("train", "train"), ("test", "t10k")):
        images = find_raw_file(source_dir, *(f"{prefix}-images{dot}idx3-ubyte" for dot in "-."))
        labels = find_raw_file(source_dir, *(f"{prefix}-labels{dot}idx1-ubyte" for dot in "-."))
        paths[part] = Path(out_dir, f"{name}_{part}_{backend}")
        convert_mnist(images, labels, paths[part], backend=backend, progress=progress, overwrite=overwrite)
    return paths


def convert_mnist(
    images_path: str | os.PathLike[str],
    labels_path: str | os.PathLike[str],
    path: str | os.PathLike[str],
    *,
    backend: str = "lmdb",
    progress: Progress | None = None,
    overwrite: bool = False,
) -> tuple[int, ...]:
    """Write an idx file of pictures with its file of labels as one database, keys %08d.

    Return the pictures' shape, (N, H, W).
    Raises: DataError for absent or damaged files, and as `make_digits`.
    """
    images, labels = open_labelled(images_path, labels_path)
    records = ((image[None], int(label)) for image, label in zip(images, labels, strict=True))
    _write(path, records, len(images), "%08d", backend, progress, overwrite)
    return images.shape


def convert_mnist_siamese(
    images_path: str | os.PathLike[str],
    labels_path: str | os.PathLike[str],
    path: str | os.PathLike[str],
    *,
    seed: int,
    backend: str = "leveldb",
    overwrite: bool = False,
    progress: Progress | None = None,
) -> tuple[int, ...]:
    """Write as many pairs as the idx file holds pictures, keys %08d; return the pictures' shape, (N, H, W).

    A record has two channels, two pictures drawn at random with replacement (a pair may be one picture twice), and
    label 1 where their labels agree, else 0. `seed` determines the pairs.
    Raises: DataError for absent or damaged files, and as `make_digits`.
    """
    images, labels = open_labelled(images_path, labels_path)
    pixels, digits = np.stack(list(images)), np.array(list(labels))

    def records() -> Iterator[Record]:
        for number, (i, j) in enumerate(random_pairs(len(images), seed)):
            yield b"%08d" % number, encode_datum(pixels[[i, j]], int(digits[i] == digits[j]))

    make_database(path, told(records(), len(images), progress), backend=backend, overwrite=overwrite)
    return images.shape


def make_cifar10(
    source_dir: str | os.PathLike[str],
    out_dir: str | os.PathLike[str],
    *,
    mean: bool = True,
    backend: str = "lmdb",
    progress: Progress | None = None,
    overwrite: bool = False,
) -> dict[str, Path]:
    """Write `cifar10_train_lmdb`, `cifar10_test_lmdb` (keys %05d) and, with `mean`, `mean.binaryproto`.

    Return {"train": path, "test": path, "mean": path}. Records are 3 x 32 x 32 as published: red, green, blue. The mean
    is that of the training pictures.
    source_dir: data_batch_1.bin to data_batch_5.bin and test_batch.bin, or else any train*.bin and test*.bin, each
    plain or .gz; several are taken in the order of their names.
    backend: lmdb or leveldb, and the ending of the names.
    Raises: DataError for absent or damaged files, and as `make_digits`; an existing mean file is replaced.
    """
    paths, total = {}, MeanSum()
    for part, patterns in (("train", ("data_batch_*", "train*")), ("test", ("test_batch", "test*"))):
        files = _cifar_files(source_dir, patterns)
        records: Labelled = (record for file in files for record in read_cifar(file))
        if mean and part == "train":
            records = _summed(records, total)
        paths[part] = Path(out_dir, f"cifar10_{part}_{backend}")
        # The number of records of a .gz is known only at its end; counting them first is cheap beside the writing.
        count = sum(1 for file in files for _ in read_cifar(file))
        _write(paths[part], records, count, "%05d", backend, progress, overwrite)
    if mean:
        paths["mean"] = Path(out_dir, "mean.binaryproto")
        save_mean(paths["mean"], total.mean())
    return paths


class Dataset(NamedTuple):
    """Describe a data set. `make(out_dir)`, or `make(source_dir, out_dir)` where `needs_source`, writes it; both take
    `backend`, `progress` and `overwrite`."""

    make: Callable[..., dict[str, Path]]
    needs_source: bool
    description: str


DATASETS: dict[str, Dataset] = {
    "digits": Dataset(make_digits, False, "1,797 handwritten digits, 1 x 8 x 8; comes with the package"),
    "shapes": Dataset(
        make_shapes,
        False,
        "2,400 drawn pictures with boxes of objects, 3 x 96 x 96",
    ),
    "mnist": Dataset(make_mnist, True, "70,000 handwritten digits, 1 x 28 x 28; needs four idx files"),
    "fashion-mnist": Dataset(
        partial(make_mnist, name="fashion_mnist"),
        True,
        "70,000 articles of clothing in the files of MNIST, 1 x 28 x 28",
    ),
    "cifar10": Dataset(make_cifar10, True, "60,000 colour pictures, 3 x 32 x 32; needs the binary version"),
}
"""Name on the command line -> data set."""


def _cifar_files(source_dir: str | os.PathLike[str], patterns: tuple[str, ...]) -> list[Path]:
    for pattern in patterns:
        found = {path.name.removesuffix(".gz"): path for path in Path(source_dir).glob(pattern + ".bin.gz")}
        found.update((path.name, path) for path in Path(source_dir).glob(pattern + ".bin"))  # plain rather than .gz
        if found:
            return [found[name] for name in sorted(found)]
    if Path(source_dir, "data_batch_1").exists():
        raise DataError(
            "this is CIFAR-10's Python version; its files are pickles, which could run anything and are not read",
            where=Where(file=os.fspath(source_dir)),
            fix="download and unpack the binary version, cifar-10-binary.tar.gz",
        )
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
    path: str | os.PathLike[str],
    records: Labelled,
    count: int,
    key_format: str,
    backend: str,
    progress: Progress | None,
    overwrite: bool,
) -> None:
    serialized = (
        ((key_format % index).encode(), encode_datum(image, label)) for index, (image, label) in enumerate(records)
    )
    make_database(path, told(serialized, count, progress), backend=backend, overwrite=overwrite)
