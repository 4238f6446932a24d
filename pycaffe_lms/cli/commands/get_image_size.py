"""`pycaffe-lms get_image_size ROOTFOLDER/ LISTFILE OUTFILE`: names and sizes of the pictures of a list."""

from __future__ import annotations

import argparse
import logging
from pathlib import PurePath

from ...data.sets.annoset import AnnotationList
from ...data.sets.imageset import with_slash
from ...data.transform.picture import decode_picture, read_picture
from ...data.transform.workers import in_order
from ...errors import DataError, Where
from ...formats.atomic import atomic_write
from ...formats.rawfile import open_text
from .. import flags

_log = logging.getLogger(__name__)

_ABOUT = """Write the name, height and width of the pictures that LISTFILE names, as SSD's get_image_size does: the
name_size_file of DetectionOutput and DetectionEvaluate.

A line of LISTFILE is a picture, a space and a label or a file of objects, which is not read. ROOTFOLDER/ is put before
each picture. Names are written without folder and ending.
Exit code: 0, 1 for a picture that cannot be read, 2 for wrong flags. A file that is there is replaced."""


def build_parser() -> flags.Parser:
    """Return the parser."""
    p = flags.parser("get_image_size", _ABOUT)
    p.add_argument("root", metavar="ROOTFOLDER/", help='folder of the paths of the list; "" for none')
    p.add_argument("list", metavar="LISTFILE", help="text file of lines `picture annotation`")
    p.add_argument("sizes", metavar="OUTFILE", help="text file to write: lines `name height width`")
    p.add_argument(
        "--name_id_file",
        default="",
        metavar="FILE",
        help="text file of lines `name number`: write numbers, as COCO has",
    )
    return p


def run(args: argparse.Namespace) -> int:
    """Write the file."""
    images, root = AnnotationList(args.list), with_slash(args.root)
    _log.info("A total of %d images.", len(images))
    names = [PurePath(path).stem for path in images.paths]
    if args.name_id_file:
        names = _numbers(args.name_id_file, names)

    def size(index: int) -> tuple[int, ...]:
        where, fix = images.place(index), "correct the line, or the root folder"
        data = read_picture(root + images.paths[index], where=where, fix=fix)
        return decode_picture(data, where=where, force_color=True).shape[1:]

    sizes = in_order(size, range(len(images)))
    lines = [f"{name} {height} {width}\n" for name, (height, width) in zip(names, sizes, strict=True)]
    atomic_write(args.sizes, "".join(lines).encode(), error=DataError)
    return 0


def _numbers(path: str, names: list[str]) -> list[str]:
    """Return the number that a file of lines `name number` has for each name. Raises: DataError."""
    found: dict[str, str] = {}
    with open_text(path, "the list of numbers") as file:
        for number, line in enumerate(file, 1):
            words = line.strip().rsplit(maxsplit=1)
            where = Where(file=path, line=number)
            if words and (len(words) == 1 or not words[1].isdecimal()):
                fix = "write `name number`"
                raise DataError(f"{line.strip()!r} is not a name and a whole number", where=where, fix=fix)
            if words and words[0] in found:
                raise DataError(f'"{words[0]}" is there twice', where=where, fix="remove one of the lines")
            if words:
                found[words[0]] = words[1]
    for name in names:
        if name not in found:
            raise DataError(f'there is no "{name}"', where=Where(file=path), fix=f"add a line `{name} number`")
    return [found[name] for name in names]
