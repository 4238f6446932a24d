"""`pycaffe-lms dataset volumes -list FILE`: volumes (NIfTI, npy) as HDF5 files."""

from __future__ import annotations

import argparse
from pathlib import Path

from ...data.sets.volumes import read_volume_list, write_volumes
from ...errors import UsageError
from ...lms.config import parse_size
from .. import flags
from ..progress import Progress, add_progress

_ABOUT = """Make HDF5 files, and the list of them that an HDF5Data layer reads, from volumes for nets in 3-D.

A line of -list is `VOLUME LABEL`: LABEL is a class, a whole number, or the path of a volume of labels. Volumes are
npy (D, H, W or C, D, H, W), .nii or .nii.gz (x, y, z become width, height, depth), all of one size. Files hold "data",
N x C x D x H x W, and "label". The list is written last: a killed run leaves none.

example of a layer:
  layer { name: "data" type: "HDF5Data" top: "data" top: "label"
          hdf5_data_param { source: "data/volumes/train.txt" batch_size: 4 } }"""


def build_parser() -> flags.Parser:
    """Return the parser."""
    p = flags.parser("dataset volumes", _ABOUT)
    p.add_argument("--list", required=True, metavar="FILE", help="text file of lines `VOLUME LABEL`")
    p.add_argument("--from", dest="source", default="", metavar="DIR", help="folder that the paths begin at")
    p.add_argument("--out", default="data/volumes", metavar="DIR", help="folder to write to (default: %(default)s)")
    p.add_argument(
        "--name", default="train", metavar="NAME", help="beginning of the files' names (default: %(default)s)"
    )
    p.add_argument(
        "--file_size", default="256MB", metavar="SIZE", help="about how large a file is (default: %(default)s)"
    )
    p.add_argument(
        "--canonical", action="store_true", help="turn NIfTI volumes so that x, y, z point right, forward, up"
    )
    p.add_argument("--overwrite", action="store_true", help="replace files that are there")
    add_progress(p)
    return p


def run(args: argparse.Namespace) -> int:
    """Write the files and their list."""
    made = _write(args)
    print(f"{args.name}: {made[-1]} ({len(made) - 1} files)")
    return 0


def _write(args: argparse.Namespace) -> list[Path]:
    if "/" in args.name or not args.name:
        raise UsageError(f"-name {args.name!r} is not the beginning of a file's name", fix="for example -name train")
    root = args.source + "/" if args.source and not args.source.endswith("/") else args.source
    with Progress(args.progress, every=100) as progress:
        return write_volumes(
            root,
            read_volume_list(args.list),
            args.out,
            args.name,
            source=args.list,
            file_bytes=parse_size(args.file_size, "-file_size"),
            canonical=args.canonical,
            overwrite=args.overwrite,
            progress=progress,
        )
