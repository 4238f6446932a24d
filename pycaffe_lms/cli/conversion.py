"""Share between the commands that write databases: their flags, a seed."""

from __future__ import annotations

import argparse
import logging
import secrets

from ..data.sets.conversion import WRITERS
from . import flags
from .progress import add_progress

_log = logging.getLogger(__name__)


def converter(words: str, about: str, *, backend: str = "lmdb", common: str = "") -> flags.Parser:
    """Return a parser with -backend, -overwrite and -progress. common: as for `flags.parser`."""
    p = flags.parser(words, about, common)
    p.add_argument(
        "--backend", choices=sorted(WRITERS), default=backend, help="kind of database to write (default: %(default)s)"
    )
    p.add_argument(
        "--overwrite", action="store_true", help="replace a database that is there once the new one is complete"
    )
    add_progress(p)
    return p


def add_seed(p: argparse.ArgumentParser, what: str, default: int | None = None) -> None:
    """Declare -seed, which settles `what`."""
    shown = "another one each time" if default is None else default
    p.add_argument("--seed", type=int, default=default, metavar="N", help=f"seed of {what} (default: {shown})")


def seed_of(args: argparse.Namespace) -> int:
    """Return -seed, or a new one."""
    return secrets.randbits(31) if args.seed is None else args.seed
