"""`pycaffe-lms convert_cifar_data INPUT_FOLDER OUTPUT_FOLDER DB_TYPE`: CIFAR-10's binary files into databases."""

from __future__ import annotations

import argparse
import logging

from ...data.sets.conversion import WRITERS
from ...data.sets.datasets import make_cifar10
from ...errors import UsageError
from .. import flags
from ..conversion import converter
from ..progress import Progress

_log = logging.getLogger(__name__)

_ABOUT = """Convert CIFAR-10's binary version (data_batch_1.bin to data_batch_5.bin, test_batch.bin, plain or .gz) to
the databases cifar10_train_DB_TYPE and cifar10_test_DB_TYPE, keys of five digits. The Python version's files are
pickles and not read. `pycaffe-lms dataset cifar10` writes the mean picture too."""


def build_parser() -> flags.Parser:
    """Return the parser."""
    p = converter("convert_cifar_data", _ABOUT)
    p.add_argument("source", metavar="INPUT_FOLDER", help="folder with the binary files")
    p.add_argument("out", metavar="OUTPUT_FOLDER", help="folder to write to")
    p.add_argument("db_type", metavar="DB_TYPE", nargs="?", help="lmdb or leveldb; as -backend")
    return p


def run(args: argparse.Namespace) -> int:
    """Write both databases."""
    backend = args.db_type or args.backend
    if backend not in WRITERS:
        raise UsageError(f"there is no kind of database {backend!r}", fix="DB_TYPE is one of: " + ", ".join(WRITERS))
    with Progress(args.progress) as progress:
        made = make_cifar10(
            args.source, args.out, mean=False, backend=backend, overwrite=args.overwrite, progress=progress
        )
    for part, path in made.items():
        print(f"{part}: {path}")
    return 0
