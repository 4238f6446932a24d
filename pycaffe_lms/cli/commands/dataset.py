"""`pycaffe-lms dataset NAME`: make the databases of a known data set (digits comes with the package).

A data set with flags of its own is a command, `dataset NAME`, with a line in `cli/catalogue.py`.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from ...data.sets.datasets import DATASETS
from ...errors import UsageError
from .. import flags
from ..catalogue import COMMANDS
from ..conversion import converter
from ..progress import Progress

_ABOUT = """Make the databases of a data set. What is there already and whole is left as it is; damaged or other
databases are an error, unless -overwrite says to replace them."""
OWN_FLAGS = {
    words.removeprefix("dataset "): command.what for words, command in COMMANDS.items() if words.startswith("dataset ")
}


def build_parser() -> flags.Parser:
    """Return the parser of the data sets that share their flags."""
    known = {name: d.description for name, d in DATASETS.items()} | {
        name: f"{what}; flags: pycaffe-lms dataset {name} --help" for name, what in OWN_FLAGS.items()
    }
    listing = "\n".join(f"  {name:<15}{what}" for name, what in known.items())
    p = converter("dataset", f"{_ABOUT}\n\ndata sets:\n{listing}")
    p.add_argument("name", choices=sorted(known), help="which data set, of the list above")
    p.add_argument("--from", dest="source", default=None, metavar="DIR", help="folder with the published files")
    p.add_argument("--out", default=None, metavar="DIR", help="folder to write to (default: data/NAME)")
    return p


def run(args: argparse.Namespace) -> int:
    """Convert one data set into data/NAME (or -out)."""
    if args.name in OWN_FLAGS:
        raise UsageError(
            f"dataset {args.name} has flags of its own", fix=f"write the name first: pycaffe-lms dataset {args.name} .."
        )
    dataset, out = DATASETS[args.name], Path(args.out or Path("data") / args.name)
    if dataset.needs_source and args.source is None:
        raise UsageError(
            f"dataset {args.name} is made from files that you have", fix=f"pycaffe-lms dataset {args.name} -from FOLDER"
        )
    out.mkdir(parents=True, exist_ok=True)
    sources = [args.source] if dataset.needs_source else []
    with Progress(args.progress) as progress:
        made = dataset.make(*sources, out, backend=args.backend, progress=progress, overwrite=args.overwrite)
    for part, path in made.items():
        print(f"{part}: {path}")
    return 0
