"""What the commands that write databases share: their flags, a seed, help with an example."""

from __future__ import annotations

import argparse
import logging
import secrets

from ..data.conversion import WRITERS
from . import flags
from .progress import add_progress

_log = logging.getLogger(__name__)


def converter(action: str, what: str, example: str, *, backend: str = "lmdb") -> argparse.ArgumentParser:
    """A parser with -backend, -overwrite and -progress; `example` ends its help."""
    p = flags.parser(action, what)
    p.epilog = f"example:\n  {example}"
    p.add_argument(
        "--backend", choices=sorted(WRITERS), default=backend, help="kind of database (default: %(default)s)"
    )
    p.add_argument("--overwrite", action="store_true", help="replace a database that is there")
    add_progress(p)
    return p


def add_seed(p: argparse.ArgumentParser, what: str, default: int | None = None) -> None:
    """-seed."""
    shown = "another one each time" if default is None else default
    p.add_argument("--seed", type=int, default=default, help=f"settles {what} (default: {shown})")


def seed_of(args: argparse.Namespace) -> int:
    """-seed, or a new one."""
    return secrets.randbits(31) if args.seed is None else args.seed
