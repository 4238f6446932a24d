"""`pycaffe-lms dataset NAME`: make the databases of a known data set (digits comes with the package).

A data set with flags of its own is a module `dataset_NAME` beside this one and a line in `OWN_FLAGS`.
"""

from __future__ import annotations

import importlib
from pathlib import Path

from ...data.sets.datasets import DATASETS
from ...errors import UsageError
from .. import flags
from ..conversion import converter
from ..progress import Progress

OWN_FLAGS = {
    "imagenet": "pictures in a folder per class, ImageNet or any others",
    "volumes": "volumes (NIfTI, npy) as HDF5 files",
}


def run(argv: list[str]) -> int:
    """Convert one data set into data/NAME (or -out)."""
    if argv and argv[0] in OWN_FLAGS:
        return importlib.import_module(f"pycaffe_lms.cli.commands.dataset_{argv[0]}").run(argv[1:])
    known = {name: d.description for name, d in DATASETS.items()} | {
        name: f"{what}; flags: pycaffe-lms dataset {name} --help" for name, what in OWN_FLAGS.items()
    }
    listing = "\n".join(f"  {name:<15}{what}" for name, what in known.items())
    about = f"Make the databases of a data set.\n\ndata sets:\n{listing}"
    p = converter("dataset", about)
    p.add_argument("name", choices=sorted(known), help="which data set, of the list above")
    p.add_argument("--from", dest="source", default=None, metavar="DIR", help="folder with the published files")
    p.add_argument("--out", default=None, metavar="DIR", help="folder to write to (default: data/NAME)")
    args = flags.parse(p, argv)
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
