"""Write ImageNet, or any set of pictures in a folder per class, as databases for training and testing.

DIR/train and DIR/val become the lists `path label` that Caffe's tools read, databases and the mean picture, with the
names that Caffe's models read.
See also: `imageset.py`, which writes the databases.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from ...errors import DataError, Where
from ...formats.atomic import atomic_write
from ...formats.rawfile import open_text
from ..feed.image_list import ImageList
from ..transform.mean import load_mean, save_mean
from .conversion import Progress, shuffled
from .database_mean import database_mean
from .imageset import Converted, PictureForm, make_imageset

ENDINGS = (".jpg", ".jpeg", ".png", ".bmp", ".ppm", ".pgm", ".webp", ".tif", ".tiff")
Line = tuple[str, int]
"""(path, label)."""


def read_synsets(path: str | os.PathLike[str]) -> list[str]:
    """Read the names of classes 0, 1, ...: the first word of each line; the rest is a description.

    Raises: DataError where the file cannot be read, names no class, or one twice.
    """
    where = Where(file=os.fspath(path))
    with open_text(path, "the list of classes") as file:
        names = [line.split()[0] for line in file.read().splitlines() if line.strip()]
    twice = {name for name in names if names.count(name) > 1} if len(set(names)) < len(names) else set()
    if twice or not names:
        found = f'the class "{min(twice)}" is listed twice' if twice else "no class is listed"
        raise DataError(found, where=where, fix="write one line per class, beginning with the name of its folder")
    return names


def find_classes(folder: str | os.PathLike[str]) -> list[str]:
    """Return the names of the folders in `folder` that begin with no dot, sorted by bytes as ImageNet's synsets are."""
    try:
        with os.scandir(folder) as entries:
            return sorted((e.name for e in entries if e.is_dir() and not e.name.startswith(".")), key=os.fsencode)
    except OSError as error:
        raise DataError(
            f"cannot read the folder: {error.strerror}", where=Where(file=os.fspath(folder)), fix="check the path"
        ) from error


def list_pictures(folder: str | os.PathLike[str], synsets: Sequence[str]) -> list[Line]:
    """Return ("CLASS/NAME", index of the class in `synsets`) of each picture, class by class, names sorted by bytes.

    Pictures are the files with one of ENDINGS, in any case. A class may have no folder here.
    Raises: DataError for a folder that is no class, or where there is no picture.
    """
    numbers, lines = {name: k for k, name in enumerate(synsets)}, []
    found = find_classes(folder)
    for name in sorted(found, key=lambda n: numbers.get(n, -1)):
        if name not in numbers:
            raise DataError(
                f'the folder "{name}" is none of the {len(numbers)} classes',
                where=Where(file=os.fspath(folder)),
                fix="remove it, or add it to the list of classes",
            )
        lines += [(f"{name}/{file}", numbers[name]) for file in _pictures(Path(folder, name))]
    if not lines:
        raise DataError(
            "no picture lies in a folder of its class here",
            where=Where(file=os.fspath(folder)),
            fix=f"lay pictures out as {os.path.join(os.fspath(folder), 'CLASS', 'NAME.jpg')}",
        )
    return lines


def write_lines(path: str | os.PathLike[str], lines: Sequence[str], *, overwrite: bool) -> None:
    """Write a text file, whole or not at all; a file with the same content is left alone.

    Raises: DataError where another file is there (unless `overwrite`), or for a line with a line break.
    """
    odd = next((line for line in lines if "\n" in line or "\r" in line), None)
    if odd is not None:
        raise DataError(f"a name with a line break cannot be listed: {odd!r}", fix="rename the file")
    content = "".join(f"{line}\n" for line in lines).encode("utf-8", "surrogateescape")
    if os.path.exists(path):
        if Path(path).read_bytes() == content:
            return
        if not overwrite:
            raise DataError(
                "exists already and says something else",
                where=Where(file=os.fspath(path)),
                fix="remove it, choose another folder, or replace it with -overwrite (overwrite=True)",
            )
    atomic_write(path, content, error=DataError)


def _pictures(folder: Path) -> list[str]:
    with os.scandir(folder) as entries:
        names = [e.name for e in entries if e.name.lower().endswith(ENDINGS) and not e.name.startswith(".")]
    return sorted(names, key=os.fsencode)


def make_imagenet(
    source_dir: str | os.PathLike[str],
    out_dir: str | os.PathLike[str],
    form: PictureForm,
    *,
    synsets: str | os.PathLike[str] | None = None,
    val_list: str | os.PathLike[str] | None = None,
    name: str = "ilsvrc12",
    seed: int = 0,
    backend: str = "lmdb",
    progress: Progress | None = None,
    overwrite: bool = False,
) -> tuple[dict[str, Path], Converted]:
    """Write lists, databases and the mean of pictures in a folder per class; return their paths and the counts.

    What is there and whole is left as it is (`check_imageset`).

    Into `out_dir` go `synsets.txt`, `train.txt`, `val.txt`, NAME_train_BACKEND, NAME_val_BACKEND and, where `form` has
    a size, `imagenet_mean.binaryproto` of the training pictures.

    Args:
        source_dir: holds train/CLASS/* and, for testing, val/CLASS/*; or val/* with `val_list`.
        synsets: file with the classes in the order of their labels (default: synsets.txt in source_dir, else the
            folders of train, sorted).
        val_list: file with lines `name label` (default: val.txt in source_dir).
        seed: determines the order of records in both databases.
    Raises: DataError for absent folders and lists, labels beyond the classes, and files that are there and differ.
    """
    source, out = Path(source_dir), Path(out_dir)
    classes = _classes(source, synsets)
    parts = {"train": list_pictures(source / "train", classes)}
    if (source / "val").is_dir():
        parts["val"] = _val_lines(source, classes, val_list)
    paths = {part: out / f"{name}_{part}_{backend}" for part in parts}
    present = [part for part, path in paths.items() if os.path.lexists(path) and not overwrite]
    out.mkdir(parents=True, exist_ok=True)
    write_lines(out / "synsets.txt", classes, overwrite=overwrite)
    written = skipped = 0
    for part in sorted(parts, key=present.count, reverse=True):  # checks first: writing may take hours
        lines, listed = parts[part], out / f"{part}.txt"
        write_lines(listed, [f"{file} {label}" for file, label in lines], overwrite=overwrite)
        done = make_imageset(
            f"{source / part}{os.sep}",
            ImageList(listed),
            paths[part],
            form,
            order=shuffled(len(lines), seed),
            backend=backend,
            overwrite=overwrite,
            progress=progress,
        )
        written, skipped = written + done.written, skipped + done.skipped
    if form.size is not None:
        paths["mean"] = out / "imagenet_mean.binaryproto"
        if "train" in present and paths["mean"].exists():
            load_mean(paths["mean"])  # an error where it is damaged
        else:
            save_mean(paths["mean"], database_mean(paths["train"], backend=backend, progress=progress)[0])
    return paths, Converted(written, skipped)


def _classes(source: Path, synsets: str | os.PathLike[str] | None) -> list[str]:
    if synsets is None and (source / "synsets.txt").is_file():
        synsets = source / "synsets.txt"
    if synsets is not None:
        return read_synsets(synsets)
    classes = find_classes(source / "train")
    odd = next((name for name in classes if len(name.split()) != 1), None)
    if odd is not None:
        raise DataError(
            f"the name of the class {odd!r} has spaces, so that no list of classes can hold it",
            where=Where(file=str(source / "train" / odd)),
            fix="rename the folder",
        )
    return classes


def _val_lines(source: Path, classes: list[str], val_list: str | os.PathLike[str] | None) -> list[Line]:
    folder, beside = source / "val", source / "val.txt"
    if val_list is None and find_classes(folder):
        return list_pictures(folder, classes)
    if val_list is None and not beside.is_file():
        raise DataError(
            "no folder per class, and no list that tells the classes of the pictures",
            where=Where(file=str(folder)),
            fix=f"put lines `name label` into {beside}, as Caffe's val.txt has them, or name a file with -val_list",
        )
    images = ImageList(val_list or beside)
    for index, label in enumerate(images.labels):
        if not 0 <= label < len(classes):
            raise DataError(
                f"label {label}, but there are {len(classes)} classes",
                where=images.place(index),
                fix="take the list and the classes from the same source; labels begin at 0",
            )
    return list(zip(images.paths, images.labels.tolist(), strict=True))
