"""`pycaffe-lms dataset NAME`: make the databases of a known data set (digits comes with the package)."""

from __future__ import annotations

from pathlib import Path

from ..data.datasets import DATASETS
from ..errors import UsageError
from . import flags
from .conversion import converter
from .progress import Progress


def run(argv: list[str]) -> int:
    """Convert one data set into data/NAME (or -out)."""
    listing = "\n".join(f"  {name:<15}{d.description}" for name, d in DATASETS.items())
    p = converter("dataset", f"{__doc__}\n\ndata sets:\n{listing}", "pycaffe-lms dataset mnist -from ~/Downloads/mnist")
    p.add_argument("name", choices=sorted(DATASETS), help="which data set")
    p.add_argument("--from", dest="source", default=None, metavar="DIR", help="folder with the published files")
    p.add_argument("--out", default=None, metavar="DIR", help="folder to write to (default: data/NAME)")
    args = flags.parse(p, argv)
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
