"""`pycaffe-lms dataset imagenet -from DIR`: pictures in a folder per class into databases."""

from __future__ import annotations

import argparse
import logging

from ...data.sets.imagenet import make_imagenet
from .. import flags
from ..conversion import add_seed, converter
from ..progress import Progress
from .convert_imageset import add_encoding, add_size, picture_form

_log = logging.getLogger(__name__)

_ABOUT = """Make databases from pictures in a folder per class: DIR/train/CLASS/* and DIR/val/CLASS/*, or DIR/val/* with
a list of lines `name label`. It writes the lists train.txt, val.txt and synsets.txt (class 0, 1, ..), the databases
ilsvrc12_train_lmdb and ilsvrc12_val_lmdb and the mean picture, imagenet_mean.binaryproto, as the models read them.
The classes are numbered in the order of their names, unless -synsets or DIR/synsets.txt says otherwise.
A picture that cannot be read is reported and left out.

Pictures become 256 x 256 pixels; with -resize_shorter, as most newer models want them, they keep their proportions, and
there is no mean picture."""
_SIDE = 256


def build_parser() -> flags.Parser:
    """Return the parser."""
    p = converter("dataset imagenet", _ABOUT)
    p.add_argument("--from", dest="source", required=True, metavar="DIR", help="folder that holds train and val")
    p.add_argument("--out", default="data/ilsvrc12", metavar="DIR", help="folder to write to (default: %(default)s)")
    p.add_argument("--synsets", default=None, metavar="FILE", help="classes in the order of their labels, one a line")
    p.add_argument("--val_list", default=None, metavar="FILE", help="lines `name label` of the pictures in DIR/val")
    p.add_argument(
        "--name", default="ilsvrc12", metavar="NAME", help="beginning of the databases' names (default: %(default)s)"
    )
    add_size(p, default=f"{_SIDE}")
    add_encoding(p)
    add_seed(p, "the order of the pictures", default=0)
    return p


def run(args: argparse.Namespace) -> int:
    """Write lists, databases and the mean."""
    form = picture_form(args, default=_SIDE)
    with Progress(args.progress) as progress:
        made, done = make_imagenet(
            args.source,
            args.out,
            form,
            synsets=args.synsets,
            val_list=args.val_list,
            name=args.name,
            seed=args.seed,
            backend=args.backend,
            progress=progress,
            overwrite=args.overwrite,
        )
    if done.skipped:
        total = done.written + done.skipped
        _log.warning("%d of %d pictures could not be read and were left out.", done.skipped, total)
    if "val" not in made:
        _log.warning("There is no folder val in %s, so no database to test with was made.", args.source)
    for part, path in made.items():
        print(f"{part}: {path}")
    return 0
