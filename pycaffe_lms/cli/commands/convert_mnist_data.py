"""`pycaffe-lms convert_mnist_data IMAGES LABELS DB_NAME`: MNIST's files into an LMDB or LevelDB."""

from __future__ import annotations

import argparse
import logging

from ...data.sets.datasets import convert_mnist
from .. import flags
from ..conversion import converter
from ..progress import Progress

_log = logging.getLogger(__name__)

_ABOUT = """Convert idx files of pictures and of labels, plain or .gz, to a database of Datums, keys of eight digits.

Files in this format are MNIST's, Fashion-MNIST's and others'. `pycaffe-lms dataset mnist` converts all four at once."""


def build_parser() -> flags.Parser:
    """Return the parser."""
    p = converter("convert_mnist_data", _ABOUT)
    p.add_argument("images", metavar="IMAGES", help="idx file of pictures")
    p.add_argument("labels", metavar="LABELS", help="idx file of labels")
    p.add_argument("database", metavar="DB_NAME", help="folder to write; must not exist")
    return p


def run(args: argparse.Namespace) -> int:
    """Write the database."""
    with Progress(args.progress) as progress:
        count, rows, columns = convert_mnist(
            args.images, args.labels, args.database, backend=args.backend, overwrite=args.overwrite, progress=progress
        )
    _log.info("A total of %d items.", count)
    _log.info("Rows: %d Cols: %d", rows, columns)
    return 0
