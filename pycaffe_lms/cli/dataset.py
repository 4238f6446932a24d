"""`pycaffe-lms dataset NAME`: make the LMDBs of a known data set (digits comes with the package)."""

from __future__ import annotations

import sys
import time
from pathlib import Path

from ..data.datasets import DATASETS
from ..errors import UsageError
from . import flags


def run(argv: list[str]) -> int:
    """Convert one data set into data/NAME (or -out)."""
    listing = "\n".join(f"  {name:<10}{d.description}" for name, d in DATASETS.items())
    p = flags.parser("dataset", f"{__doc__}\n\ndata sets:\n{listing}")
    p.add_argument("name", choices=sorted(DATASETS), help="which data set")
    p.add_argument("--from", dest="source", default=None, help="folder with the published files (mnist, cifar10)")
    p.add_argument("--out", default=None, help="folder to write to (default: data/NAME)")
    p.add_argument("--overwrite", action="store_true", help="replace databases that are there")
    args = flags.parse(p, argv)
    dataset, out = DATASETS[args.name], Path(args.out or Path("data") / args.name)
    if dataset.needs_source and args.source is None:
        raise UsageError(
            f"dataset {args.name} is made from files that you have", fix=f"pycaffe-lms dataset {args.name} -from FOLDER"
        )
    out.mkdir(parents=True, exist_ok=True)
    sources = [args.source] if dataset.needs_source else []
    made = dataset.make(*sources, out, progress=_Progress(), overwrite=args.overwrite)
    for part, path in made.items():
        print(f"{part}: {path}")
    return 0


class _Progress:
    """A line on stderr at most every half second."""

    def __init__(self) -> None:
        self._last = time.monotonic()

    def __call__(self, done: int, total: int) -> None:
        now = time.monotonic()
        if now - self._last > 0.5:
            self._last = now
            print(f"Processed {done} of {total} records.", file=sys.stderr)
