"""ImageNet, or any set of pictures in a folder per class, as databases for training and testing.

Covers: DIR/train and DIR/val to lists, databases and the mean picture, with the names that Caffe's models read.
See also: class_folders.py (the lists), imageset.py (the databases).
"""

from __future__ import annotations

import os
from pathlib import Path

from ...errors import DataError, Where
from ..feed.image_list import ImageList
from ..transform.mean import save_mean
from .class_folders import Line, find_classes, list_pictures, read_synsets, write_lines
from .conversion import Progress, shuffled
from .database_mean import database_mean
from .imageset import Converted, PictureForm, convert_imageset


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
    """Write `synsets.txt`, `train.txt`, `val.txt`, NAME_train_BACKEND, NAME_val_BACKEND and, where `form` has a size,
    `imagenet_mean.binaryproto` of the training pictures into `out_dir`; return their paths and how many pictures.

    source_dir: train/CLASS/* and, unless there is nothing to test with, val/CLASS/*; or val/* with `val_list`, lines
    `name label` (default: val.txt in source_dir). synsets: file with the classes in the order of their labels (default:
    synsets.txt in source_dir, else the folders of train, sorted). Both databases are in an order that `seed` settles.
    Raises: DataError for absent folders and lists, labels beyond the classes, and what is there already.
    """
    source, out = Path(source_dir), Path(out_dir)
    classes = _classes(source, synsets)
    parts = {"train": list_pictures(source / "train", classes)}
    if (source / "val").is_dir():
        parts["val"] = _val_lines(source, classes, val_list)
    paths = {part: out / f"{name}_{part}_{backend}" for part in parts}
    for path in paths.values():
        if path.exists() and not overwrite:  # before hours of work on the other one
            raise DataError(
                "exists already",
                where=Where(file=str(path)),
                fix="remove it, choose another name, or allow overwriting",
            )
    out.mkdir(parents=True, exist_ok=True)
    write_lines(out / "synsets.txt", classes, overwrite=overwrite)
    written = skipped = 0
    for part, lines in parts.items():
        listed = out / f"{part}.txt"
        write_lines(listed, [f"{file} {label}" for file, label in lines], overwrite=overwrite)
        done = convert_imageset(
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
        mean, _ = database_mean(paths["train"], backend=backend, progress=progress)
        paths["mean"] = out / "imagenet_mean.binaryproto"
        save_mean(paths["mean"], mean)
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
