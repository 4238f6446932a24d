"""`pycaffe-lms compute_image_mean INPUT_DB [OUTPUT_FILE]`: the mean picture of a database."""

from __future__ import annotations

import argparse
import logging

from ...data.sets.conversion import WRITERS
from ...data.sets.database_mean import channel_means, database_mean
from ...data.transform.mean import save_mean
from .. import flags
from ..progress import Progress, add_progress

_log = logging.getLogger(__name__)

_ABOUT = """Compute the mean picture of a database and the means of its channels, as Caffe's compute_image_mean does.

Without OUTPUT_FILE (mean.binaryproto, say) only the means of the channels are printed, the values for
transform_param.mean_value."""


def build_parser() -> flags.Parser:
    """Return the parser."""
    p = flags.parser("compute_image_mean", _ABOUT)
    p.add_argument("database", metavar="INPUT_DB", help="database of Datums of one size")
    p.add_argument(
        "output", metavar="OUTPUT_FILE", nargs="?", help="binaryproto to write; one that is there is replaced"
    )
    p.add_argument("--backend", choices=sorted(WRITERS), default="lmdb", help="kind of database (default: %(default)s)")
    add_progress(p)
    return p


def run(args: argparse.Namespace) -> int:
    """Log the channels' means; write the file."""
    flags.check_place(args.output or "", "OUTPUT_FILE")
    _log.info("Starting iteration")
    with Progress(args.progress, every=10000) as progress:
        mean, _ = database_mean(args.database, backend=args.backend, progress=progress)
    if args.output is not None:
        _log.info("Write to %s", args.output)
        save_mean(args.output, mean)
    _log.info("Number of channels: %d", mean.shape[0])
    for channel, value in enumerate(channel_means(mean)):
        _log.info("mean_value channel [%d]: %g", channel, value)
    return 0
