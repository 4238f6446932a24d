"""`pycaffe-lms convert_imageset ROOTFOLDER/ LISTFILE DB_NAME`: pictures that a list names into an LMDB or LevelDB."""

from __future__ import annotations

import argparse
import logging
from collections.abc import Callable, Sized

from ...data.feed.image_list import ImageList
from ...data.sets.conversion import shuffled
from ...data.sets.imageset import Converted, PictureForm, convert_imageset
from ...data.transform.picture import MAX_PICTURE_VALUES
from ...errors import UsageError
from .. import flags
from ..conversion import add_seed, converter, seed_of
from ..progress import Progress

_log = logging.getLogger(__name__)

_COMMON = "shuffle resize_height resize_width resize_shorter gray encoded encode_type backend overwrite"
_ABOUT = """Convert the pictures that LISTFILE names to a database of Datums, as Caffe's convert_imageset does.

A line of LISTFILE is a path, a space and the label, a whole number. ROOTFOLDER/ is put before each path; the last
slash of a folder may be missing, and what is no folder is put there as it stands.
A picture that cannot be read is reported and left out; their number is logged at the end. Of 2000 pictures and more
as many processes as there are CPUs (or OMP_NUM_THREADS) make the records; the database is the same for any number.
Exit code: 0 also if some were left out, 1 if none could be read, 2 for wrong flags. The database has another name until
it is complete, so that a killed run leaves none."""


def build_parser() -> flags.Parser:
    """Return the parser."""
    p = converter("convert_imageset", _ABOUT, common=_COMMON)
    p.add_argument("root", metavar="ROOTFOLDER/", help='folder of the paths of the list; "" for none')
    p.add_argument("list", metavar="LISTFILE", help="text file of lines `path label`")
    p.add_argument("database", metavar="DB_NAME", help="folder to write; must not exist")
    p.add_argument("--gray", action="store_true", help="store pictures with one channel")
    p.add_argument("--shuffle", action="store_true", help="store them in a random order")
    add_seed(p, "the order of -shuffle")
    add_size(p)
    p.add_argument("--check_size", action="store_true", help="stop at a picture of another size than the first")
    add_encoding(p)
    return p


def run(args: argparse.Namespace) -> int:
    """Write the database."""
    form = picture_form(args, gray=args.gray, check_size=args.check_size)
    return write(args, ImageList(args.list), form, convert_imageset)


def write(args: argparse.Namespace, images: Sized, form: object, convert: Callable[..., Converted]) -> int:
    """Write `images` by `convert`, in the order that -shuffle asks for, and return the exit code.

    Args:
        form: how `convert` stores a picture.
    """
    order = None
    if args.shuffle:
        seed = seed_of(args)
        _log.info("Shuffling data (-seed %d repeats this order)", seed)
        order = shuffled(len(images), seed)
    _log.info("A total of %d images.", len(images))
    with Progress(args.progress) as progress:
        done = convert(
            args.root,
            images,
            args.database,
            form,
            order=order,
            backend=args.backend,
            overwrite=args.overwrite,
            progress=progress,
        )
    if done.skipped:
        _log.warning("%d of %d pictures could not be read and were left out.", done.skipped, len(images))
    return 0


def add_size(p: argparse.ArgumentParser, default: str = "as they are") -> None:
    """Declare -resize_width, -resize_height and -resize_shorter; None if they are not given."""
    for name in ("width", "height"):
        p.add_argument(
            f"--resize_{name}",
            type=int,
            metavar="PIXELS",
            help=f"{name} to resize pictures to; 0: as they are (default: {default})",
        )
    p.add_argument(
        "--resize_shorter",
        type=int,
        metavar="PIXELS",
        help="resize the shorter side to this and keep the proportions, for nets that crop",
    )


def add_encoding(p: argparse.ArgumentParser) -> None:
    """Declare -encoded and -encode_type."""
    p.add_argument("--encoded", action="store_true", help="store picture files (JPEG, PNG, ..) instead of pixels")
    p.add_argument(
        "--encode_type", default="", metavar="TYPE", help="kind of picture file to store, such as jpg (sets -encoded)"
    )


def picture_form(
    args: argparse.Namespace, *, gray: bool = False, check_size: bool = False, default: int = 0
) -> PictureForm:
    """Return what -resize_width, -resize_height, -resize_shorter, -encoded and -encode_type say.

    Args:
        default: height and width if none of the three is given.

    Raises:
        UsageError: half a size, or two sizes.
    """
    shorter = args.resize_shorter
    if (args.resize_height, args.resize_width, shorter) == (None, None, None):
        height = width = default
    else:
        height, width = args.resize_height or 0, args.resize_width or 0
    if min(height, width) < 0 or (height == 0) != (width == 0):
        raise UsageError(
            f"-resize_height {height} and -resize_width {width} are not a size", fix="give both, in pixels, or neither"
        )
    if shorter is not None and (shorter < 1 or height):
        raise UsageError(
            f"-resize_shorter {shorter} " + ("with another size" if height else "is not a number of pixels"),
            fix="for example -resize_shorter 256, without -resize_height and -resize_width",
        )
    if max(height * width, (shorter or 0) ** 2) * 3 > MAX_PICTURE_VALUES:
        raise UsageError(
            f"pictures of {shorter or height} x {shorter or width} pixels are larger than any that is read",
            fix=f"at most {MAX_PICTURE_VALUES // 3} pixels",
        )
    if args.encode_type and not args.encoded:
        _log.info("encode_type specified, assuming encoded=true.")
    return PictureForm(
        gray=gray,
        size=(height, width) if height else None,
        shorter_side=shorter,
        encoded=args.encoded or bool(args.encode_type),
        encode_type=args.encode_type.lstrip("."),
        check_size=check_size,
    )
