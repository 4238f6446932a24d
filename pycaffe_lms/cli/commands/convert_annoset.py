"""`pycaffe-lms convert_annoset ROOTFOLDER/ LISTFILE DB_NAME`: pictures with boxes of objects into a database."""

from __future__ import annotations

import argparse

from ...data.feed.image_list import ImageList
from ...data.sets.annoset import AnnotationForm, AnnotationList, convert_annoset
from ...data.sets.annotations import READERS, read_label_map
from ...errors import UsageError
from .. import flags
from ..conversion import add_seed, converter
from .convert_imageset import add_encoding, picture_form, write

_COMMON = (
    "anno_type label_type label_map_file shuffle resize_height resize_width min_dim max_dim gray encoded encode_type "
    "backend overwrite"
)
_ABOUT = """Convert pictures and their objects to a database of AnnotatedDatums, as SSD's convert_annoset does.

A line of LISTFILE is a picture, a space and its file of objects; with -anno_type classification a whole number in place
of the latter. ROOTFOLDER/ is put before each path. Files of objects are PASCAL VOC's (xml), COCO's with a file for each
picture (json), or lines `label xmin ymin xmax ymax` in pixels (txt). -label_map_file gives the number of each name:
item { name: "cat" label: 1 } for each; 0 is the background.
A picture that cannot be read is reported and left out; one without its file of objects is stored without objects.
Exit code: 0 also if some were left out, 1 if none could be read or a file of objects is wrong, 2 for wrong flags. The
database has another name until it is complete, so that a killed run leaves none."""


def build_parser() -> flags.Parser:
    """Return the parser."""
    p = converter("convert_annoset", _ABOUT, common=_COMMON)
    p.add_argument("root", metavar="ROOTFOLDER/", help='folder of the paths of the list; "" for none')
    p.add_argument("list", metavar="LISTFILE", help="text file of lines `picture annotation`")
    p.add_argument("database", metavar="DB_NAME", help="folder to write; must not exist")
    p.add_argument(
        "--anno_type",
        choices=("classification", "detection"),
        default="classification",
        help="whether a line has a label or a file of objects (default: %(default)s)",
    )
    p.add_argument(
        "--label_type",
        choices=tuple(READERS),
        default="xml",
        help="format of the files of objects (default: %(default)s)",
    )
    p.add_argument(
        "--label_map_file", default="", metavar="FILE", help="LabelMap as text: the number of each name (xml, json)"
    )
    p.add_argument("--check_label", action="store_true", help="refuse a label map that has a name twice")
    p.add_argument("--gray", action="store_true", help="store pictures with one channel")
    p.add_argument("--shuffle", action="store_true", help="store them in a random order")
    add_seed(p, "the order of -shuffle")
    for name, words in (
        ("min_dim", "enlarge a shorter side to at least this"),
        ("max_dim", "then reduce a longer side to this"),
    ):
        p.add_argument(f"--{name}", type=int, default=0, metavar="PIXELS", help=f"{words}; keeps the proportions")
    for name in ("width", "height"):
        p.add_argument(f"--resize_{name}", type=int, metavar="PIXELS", help=f"{name} to resize pictures to")
    p.add_argument("--check_size", action="store_true", help="stop at a picture of another size than the first")
    add_encoding(p)
    p.set_defaults(resize_shorter=None)
    return p


def run(args: argparse.Namespace) -> int:
    """Write the database."""
    picture = picture_form(args, gray=args.gray, check_size=args.check_size)
    if min(args.min_dim, args.max_dim) < 0 or (picture.size and (args.min_dim or args.max_dim)):
        given = f"-min_dim {args.min_dim} and -max_dim {args.max_dim}"
        raise UsageError(
            f"{given} with another size" if picture.size else f"{given} are not sizes",
            fix="give these in pixels, or -resize_height and -resize_width",
        )
    images: ImageList | AnnotationList
    labels: dict[str, int] = {}
    if args.anno_type == "classification":
        if args.label_map_file:
            raise UsageError("-label_map_file has no effect on labels", fix="add -anno_type detection, or leave it out")
        images = ImageList(args.list)
    else:
        if args.label_map_file:
            labels = read_label_map(args.label_map_file, check=args.check_label)
        elif args.label_type != "txt":
            raise UsageError(
                f"-label_type {args.label_type} needs the number of each name", fix="give -label_map_file FILE"
            )
        images = AnnotationList(args.list)
    form = AnnotationForm(picture, args.min_dim, args.max_dim, args.label_type, labels)
    return write(args, images, form, convert_annoset)
