"""Pictures in a folder per class, as ImageNet comes, to the lists `path label` that Caffe's tools read.

Covers: the order of classes (synsets), lists of the pictures, lists that others have written.
Does not cover: the databases (imagenet.py).
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from ...errors import DataError, Where
from ...formats.atomic import atomic_write

ENDINGS = (".jpg", ".jpeg", ".png", ".bmp", ".ppm", ".pgm", ".webp", ".tif", ".tiff")
Line = tuple[str, int]
"""Path and label."""


def read_synsets(path: str | os.PathLike[str]) -> list[str]:
    """The first word of each line (what follows it is a description): the name of class 0, 1, ...

    Raises: DataError where the file cannot be read, names no class, or one twice.
    """
    where = Where(file=os.fspath(path))
    try:
        text = Path(path).read_text(encoding="utf-8", errors="surrogateescape")
    except OSError as error:
        raise DataError(
            f"cannot read the list of classes: {error.strerror}", where=where, fix="check the path"
        ) from error
    names = [line.split()[0] for line in text.splitlines() if line.strip()]
    twice = {name for name in names if names.count(name) > 1} if len(set(names)) < len(names) else set()
    if twice or not names:
        found = f'the class "{min(twice)}" is listed twice' if twice else "no class is listed"
        raise DataError(found, where=where, fix="write one line per class, beginning with the name of its folder")
    return names


def find_classes(folder: str | os.PathLike[str]) -> list[str]:
    """The folders in `folder`, those that begin with a dot apart, sorted by bytes as ImageNet's synsets are."""
    try:
        with os.scandir(folder) as entries:
            return sorted((e.name for e in entries if e.is_dir() and not e.name.startswith(".")), key=os.fsencode)
    except OSError as error:
        raise DataError(
            f"cannot read the folder: {error.strerror}", where=Where(file=os.fspath(folder)), fix="check the path"
        ) from error


def list_pictures(folder: str | os.PathLike[str], synsets: Sequence[str]) -> list[Line]:
    """("CLASS/NAME", number of the class in `synsets`) of each picture, class by class, names sorted by bytes.

    Pictures are the files with one of ENDINGS, in any case; others do not count. A class may have no folder here.
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
    """Write a text file, whole or not at all; one that holds the same already is left alone.

    Raises: DataError where another one is there (unless `overwrite`), or for a line that would be two.
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
                fix="remove it, choose another folder, or allow overwriting",
            )
    atomic_write(path, content, error=DataError)


def _pictures(folder: Path) -> list[str]:
    with os.scandir(folder) as entries:
        names = [e.name for e in entries if e.name.lower().endswith(ENDINGS) and not e.name.startswith(".")]
    return sorted(names, key=os.fsencode)
