"""`pycaffe-lms parse_log LOGFILE OUTPUT_DIR`: the log of a training run as two CSV files."""

from __future__ import annotations

import argparse
import csv
import io
import logging
from pathlib import Path

from ...errors import DataError, UsageError
from ...formats.atomic import atomic_write
from ...formats.training_log import Row, columns, read_training_log
from .. import flags

_log = logging.getLogger(__name__)
_ABOUT = """Write what a training run logged of its outputs as tables, as Caffe's parse_log.py does:
OUTPUT_DIR/LOGFILE.train and OUTPUT_DIR/LOGFILE.test.

Columns: NumIters, Seconds since the start, LearningRate (that of the row's iteration), then the outputs by name.
Logs of this package and of Caffe. A table without rows is not written."""


def build_parser() -> flags.Parser:
    """Return the parser."""
    p = flags.parser("parse_log", _ABOUT)
    p.add_argument("logfile", metavar="LOGFILE", help="what `train` wrote to stderr")
    p.add_argument("output_dir", metavar="OUTPUT_DIR", help="folder for the two files, which are replaced")
    p.add_argument("--verbose", action="store_true", help="say which files were written")
    p.add_argument("--delimiter", default=",", metavar="CHARACTER", help="between columns (default: a comma)")
    return p


def run(args: argparse.Namespace) -> int:
    """Write the files."""
    delimiter = {"\\t": "\t"}.get(args.delimiter, args.delimiter)
    if len(delimiter) != 1 or delimiter in '"\r\n':
        raise UsageError(f"-delimiter {args.delimiter!r} is not one character", fix="for example -delimiter ';'")
    log = read_training_log(args.logfile)
    for which, rows in (("train", log.train), ("test", log.test)):
        path = Path(args.output_dir) / f"{Path(args.logfile).name}.{which}"
        if rows:
            atomic_write(path, _csv(rows, delimiter), error=DataError)
        if args.verbose:
            print(f"Wrote {path}" if rows else f"Not writing {path}; no lines to write")
    return 0


def _csv(rows: list[Row], delimiter: str) -> bytes:
    text = io.StringIO(newline="")
    writer = csv.DictWriter(text, columns(rows), delimiter=delimiter)
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue().encode()
