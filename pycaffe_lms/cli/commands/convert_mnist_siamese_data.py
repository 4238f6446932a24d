"""`pycaffe-lms convert_mnist_siamese_data IMAGES LABELS DB_NAME`: MNIST's files into a database of pairs."""

from __future__ import annotations

import argparse
import logging

from ...data.sets.datasets import convert_mnist_siamese
from .. import flags
from ..conversion import add_seed, converter, seed_of
from ..progress import Progress

_log = logging.getLogger(__name__)

_ABOUT = """Convert idx files of pictures and of labels, plain or .gz, to a database of random pairs of pictures: two
channels, label 1 where both show the same digit, else 0. There are as many pairs as pictures."""


def build_parser() -> flags.Parser:
    """Return the parser."""
    p = converter("convert_mnist_siamese_data", _ABOUT, backend="leveldb")
    p.add_argument("images", metavar="IMAGES", help="idx file of pictures")
    p.add_argument("labels", metavar="LABELS", help="idx file of labels")
    p.add_argument("database", metavar="DB_NAME", help="folder to write; must not exist")
    add_seed(p, "the pairs")
    return p


def run(args: argparse.Namespace) -> int:
    """Write the database."""
    seed = seed_of(args)
    _log.info("Drawing pairs (-seed %d repeats them)", seed)
    with Progress(args.progress) as progress:
        count, rows, columns = convert_mnist_siamese(
            args.images,
            args.labels,
            args.database,
            seed=seed,
            backend=args.backend,
            overwrite=args.overwrite,
            progress=progress,
        )
    _log.info("A total of %d items.", count)
    _log.info("Rows: %d Cols: %d", rows, columns)
    return 0
