"""Write the pictures that a list names as a database, as Caffe's convert_imageset does.

Keys and Datums, raw or encoded, are Caffe's. Several processes decode, or threads if the pictures are few; records are
in order. Pictures that cannot be read are reported and left out.
See also: image_list.py, which reads the list; imagenet.py for folders of pictures.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from typing import Protocol, TypeVar

import numpy as np

from ...errors import DataError, Where
from ...ops.cpu.threads import thread_count
from ..database.datum import encode_datum, encode_picture_datum
from ..database.whole_folder import Record
from ..feed.image_list import ImageList
from ..transform.picture import (
    decode_pixels,
    decodes,
    encode_pixels,
    planes_shape,
    require_opencv,
    resize_pixels,
    shorter_side_size,
    stored_channels,
    to_planes,
    usual_jpeg_shape,
)
from ..transform.processes import in_order_by_processes
from ..transform.workers import in_order, keep_freed_memory
from .conversion import Progress, differs, open_present, say_present, spots, write_database

_log = logging.getLogger(__name__)
_Item = TypeVar("_Item")

_MANY = 2000
"""Pictures from which processes pay, for these take a third of a second to start."""


@dataclass(frozen=True)
class PictureForm:
    """Set how pictures are stored.

    Attributes:
        gray: one channel, else three (blue, green, red).
        size: (height, width) to resize to; None keeps each picture as it is.
        shorter_side: instead of `size`, pixels of the shorter side after resizing with the same proportions.
        encoded: store the bytes of a picture file; the original ones where nothing has to change.
        encode_type: kind of that file (jpg, png, ..); "" takes the ending of the picture's name.
        check_size: all pictures must have one shape.
    """

    gray: bool = False
    size: tuple[int, int] | None = None
    shorter_side: int | None = None
    encoded: bool = False
    encode_type: str = ""
    check_size: bool = False


@dataclass(frozen=True)
class Converted:
    """Count pictures."""

    written: int
    skipped: int


@dataclass(frozen=True)
class MadeRecord:
    """Hold a record with the picture's shape (C, H, W), or the reason why there is none. line: index in the list."""

    line: int
    record: Record | None
    shape: tuple[int, ...] = ()
    reason: str = ""


def convert_imageset(
    root: str,
    images: ImageList,
    path: str | os.PathLike[str],
    form: PictureForm | None = None,
    *,
    order: Sequence[int] | np.ndarray | None = None,
    backend: str = "lmdb",
    overwrite: bool = False,
    progress: Progress | None = None,
) -> Converted:
    """Write the pictures of `images` as the database `path`.

    The key of the picture in place n is n in eight digits, "_" and the name as listed. A picture that cannot be read is
    logged and left out; its number stays unused.

    Args:
        root: put before each name, a folder with or without its last slash; another text as it stands.
        order: indices of the lines in the order of the records; None keeps the list's order.
    Raises: DataError where not one picture can be read, pictures differ in size (with `check_size`) or cannot be
    encoded, and as `write_database`; MissingDependency without OpenCV.
    """
    root, form = with_slash(root), form or PictureForm()
    require_opencv()
    return write_pictures(
        images,
        path,
        partial(_make, root, form),
        partial(_listed, images),
        by_processes=True,
        root=root,
        order=order,
        check_size=form.check_size,
        backend=backend,
        overwrite=overwrite,
        progress=progress,
    )


class Listed(Protocol):
    """Describe a list of pictures: their names, the list's file, and the place of each for errors."""

    paths: list[str]
    source: str

    def place(self, index: int) -> Where: ...


def with_slash(root: str) -> str:
    """Return the root of a list's names; a folder ends in a slash, another text stays as it stands."""
    return root + "/" if root and not root.endswith(("/", os.sep)) and os.path.isdir(root) else root


def write_pictures(
    images: Listed,
    path: str | os.PathLike[str],
    make: Callable[[_Item], MadeRecord],
    item: Callable[[int, int], _Item],
    *,
    root: str,
    by_processes: bool = False,
    order: Sequence[int] | np.ndarray | None = None,
    check_size: bool = False,
    backend: str = "lmdb",
    overwrite: bool = False,
    progress: Progress | None = None,
) -> Converted:
    """Write the records that make(item(place, line)) gives, made by several threads, as the database `path`.

    by_processes: by several processes instead if there are many; `make`, a module's function or a `partial` of one, and
    the items are pickled.
    Raises: DataError where not one picture can be read, or pictures differ in size (with `check_size`), and as
    `write_database` and `make`.
    """
    counts, total = {"written": 0, "skipped": 0}, len(images.paths)
    keep_freed_memory()
    lines = range(total) if order is None else order
    items = (item(place, int(lines[place])) for place in range(len(lines)))
    threads = thread_count()
    if by_processes and threads > 1 and len(lines) >= _MANY:
        made = in_order_by_processes(make, items, threads)
    else:
        made = in_order(make, items)

    def told(records: Iterator[Record | None]) -> Iterator[Record]:
        for record in records:
            if record is not None:
                yield record
            if progress:
                progress(counts["written"], total - counts["skipped"])
        if not counts["written"]:
            raise DataError(
                f"not one of the {total} pictures could be read",
                where=Where(file=images.source),
                fix=f"check the root folder, {root!r}, which is put before each name of the list",
            )

    with closing(made), closing(_records(root, images, made, check_size, counts)) as records:
        write_database(path, told(records), backend=backend, overwrite=overwrite)
    return Converted(**counts)


def make_imageset(
    root: str,
    images: ImageList,
    path: str | os.PathLike[str],
    form: PictureForm,
    *,
    order: Sequence[int] | np.ndarray,
    backend: str = "lmdb",
    overwrite: bool = False,
    progress: Progress | None = None,
) -> Converted:
    """Write the database as `convert_imageset`, or check the one that is there as `check_imageset`."""
    if os.path.lexists(path) and not overwrite:
        return check_imageset(root, images, path, form, order=order, backend=backend)
    return convert_imageset(
        root, images, path, form, order=order, backend=backend, overwrite=overwrite, progress=progress
    )


def check_imageset(
    root: str,
    images: ImageList,
    path: str | os.PathLike[str],
    form: PictureForm,
    *,
    order: Sequence[int] | np.ndarray,
    backend: str = "lmdb",
) -> Converted:
    """Check that the database `path` is what `convert_imageset` would write, and log that; return the counts.

    It has a record for every picture that can be read; a hundred of them, evenly spaced, are made again and compared.
    Raises: DataError for a damaged or another database.
    """
    with closing(open_present(path, backend)) as source:
        count = len(source)
        missing: set[int] = set()
        if count != len(images):
            missing = set(range(len(images))) - {_place(key) for key, _ in source.records()}
        if count + len(missing) != len(images):
            raise differs(path, f"{count} records for {len(images)} pictures")
        for place in sorted(missing):
            if _make(root, form, _listed(images, place, int(order[place]))).record is not None:
                raise differs(path, f"{images.paths[order[place]]} is not in it")
        compared = spots(count)
        for number in compared:
            source.seek(number)
            found = source.next()
            place = _place(found[0])
            there = 0 <= place < len(images)
            if not there or found != _make(root, form, _listed(images, place, int(order[place]))).record:
                raise differs(path, f"record {number}, {found[0].decode(errors='replace')}, is another one")
    left_out = f", {len(missing)} pictures left out" if missing else ""
    say_present(path, f"{count} records{left_out}; {len(compared)} were compared with their pictures")
    return Converted(count, len(missing))


def _place(key: bytes) -> int:
    """Return the place that a key begins with; -1 for a key of another kind."""
    return int(key[:8]) if key[:8].isdigit() else -1


def _records(
    root: str,
    images: Listed,
    all_made: Iterable[MadeRecord],
    check_size: bool,
    counts: dict[str, int],
) -> Generator[Record | None, None, None]:
    """Yield the records in order, None for each picture that is left out."""
    first: tuple[int, ...] | None = None
    for made in all_made:
        if made.record is None:
            counts["skipped"] += 1
            _log.error("Could not open or find file %s (left out): %s", root + images.paths[made.line], made.reason)
            yield None
            continue
        first = first or made.shape
        if check_size and made.shape != first:
            raise DataError(
                f"channels x height x width are {made.shape}, of the first picture {first}",
                where=images.place(made.line),
                fix="resize all with -resize_height and -resize_width, or leave out -check_size",
            )
        counts["written"] += 1
        yield made.record


@dataclass(frozen=True)
class _ListedPicture:
    """Hold the place of a record in the database, and what the list says. line: index in the list."""

    place: int
    line: int
    name: str
    label: int
    where: Where


def _listed(images: ImageList, place: int, line: int) -> _ListedPicture:
    return _ListedPicture(place, line, images.paths[line], int(images.labels[line]), images.place(line))


def _make(root: str, form: PictureForm, listed: _ListedPicture) -> MadeRecord:
    """Read, decode, resize and encode one picture. Runs in any thread or process."""
    line, name, label, where = listed.line, listed.name, listed.label, listed.where
    try:
        with open(root + name, "rb") as file:
            data = file.read()
        kept = _kept_shape(form, name, data)
        if kept is None:
            pixels = decode_pixels(data, where=where, force_color=not form.gray, force_gray=form.gray)
            shape = planes_shape(pixels)
            size = form.size if form.shorter_side is None else shorter_side_size(shape, form.shorter_side)
    except (OSError, ValueError) as error:  # ValueError: a name with a zero byte
        return MadeRecord(line, None, reason=getattr(error, "strerror", None) or str(error))
    except DataError as error:
        return MadeRecord(line, None, reason=error.message)
    if kept is not None:
        return MadeRecord(line, _record(listed, encode_picture_datum(data, label)), kept)
    fits = size is None or (size == shape[1:] and stored_channels(data) == shape[0])
    if size is not None:
        pixels = resize_pixels(pixels, size)
    if form.encoded:
        kind = form.encode_type or kind_of_name(name, where)
        # Caffe: the file's own bytes where its kind is right and no size is given, even of a gray picture in a set of
        # colour; io.cpp. With a size, other channels than the set's count as a change.
        if not fits or not is_kind(name, kind):
            data = encode_pixels(pixels, kind, where=where)
        value = encode_picture_datum(data, label)
    else:
        value = encode_datum(to_planes(pixels), label, say_raw=True)
    return MadeRecord(line, _record(listed, value), planes_shape(pixels))


def _record(listed: _ListedPicture, value: bytes) -> Record:
    return os.fsencode(f"{listed.place:08d}_{listed.name}"), value


def _kept_shape(form: PictureForm, name: str, data: bytes) -> tuple[int, int, int] | None:
    """Return the shape (C, H, W) of a JPEG whose bytes are stored as they are; None where pixels are needed to tell."""
    kind = form.encode_type or _ending(name)
    if not form.encoded or kind is None or not is_kind(name, kind):
        return None
    shape = usual_jpeg_shape(data, gray=form.gray)
    if shape is None:
        return None
    if form.shorter_side is not None:
        fits, sized = min(shape[1:]) == form.shorter_side, True
    else:
        fits, sized = form.size in (None, shape[1:]), form.size is not None
    if not fits or (sized and stored_channels(data) != shape[0]):
        return None
    return shape if decodes(data, shape) else None


def _ending(name: str) -> str | None:
    """Return the ending of a file's name in small letters; None without one."""
    _, dot, ending = name.rpartition(".")
    return ending.lower() if dot and "/" not in ending else None


def kind_of_name(name: str, where: Where) -> str:
    """Return a picture's kind by the ending of its name. Raises: DataError for a name without one."""
    ending = _ending(name)
    if ending is None:
        raise DataError(
            "the name does not tell what kind of picture this is",
            where=where,
            fix="name the kind to store with -encode_type, for example jpg",
        )
    return ending


def is_kind(name: str, kind: str) -> bool:
    """Return whether a file of this name is of `kind`. Caffe: a .jpeg is a jpg, but a .jpg is no jpeg; io.cpp."""
    ending, kind = name.rpartition(".")[2].lower(), kind.lower()
    return ending == kind or (ending == "jpeg" and kind == "jpg")
