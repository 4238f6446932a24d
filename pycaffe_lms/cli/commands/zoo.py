"""`pycaffe-lms zoo [get NAME]`: the models that come with the package."""

from __future__ import annotations

import argparse
import logging
from pathlib import Path

from ...data.sets.zoo import HERE, ZooModel, unknown_model, write_model, zoo_models
from ...errors import UsageError
from .. import flags
from ..views.summary_text import text

_log = logging.getLogger(__name__)
_ABOUT = """List the models that come with the package, or write the files of some: net, solver, net for use, README.

`zoo` prints a table. forward: multiply-adds per item of the batch. memory: that of training at this batch without Large
Model Support; least: the least with it (-lms 1).
`zoo get NAME ..` writes the folder models/NAME; the paths in its solver begin at the current folder. Files that are
there already and whole stay as they are.

Commands that take a net or a solver take a model's name instead: `plan resnet-152`, `train digits`.
NAME/FILE names another file of its folder, such as resnet-50/deploy. If the current folder has a folder
models/NAME, that is taken."""
_HEAD = ("model", "parameters", "forward", "batch", "memory", "least", "what for")


def build_parser() -> flags.Parser:
    """Return the parser."""
    p = flags.parser("zoo", _ABOUT)
    p.add_argument(
        "action", nargs="?", metavar="ACTION", choices=("list", "get"), default="list", help="list (default) or get"
    )
    p.add_argument("names", nargs="*", metavar="NAME", help="which models to get")
    p.add_argument(
        "--out",
        default=HERE,
        metavar="DIR",
        help="write to DIR/NAME, and name that in the solver (default: %(default)s)",
    )
    p.add_argument("--overwrite", action="store_true", help="replace files that are there and differ")
    return p


def run(args: argparse.Namespace) -> int:
    """Print the table, or write folders and print where they are."""
    if (args.action == "get") != bool(args.names):
        found = "get needs a name" if args.action == "get" else "list takes no names"
        raise UsageError(found, fix="`pycaffe-lms zoo` lists the models, `pycaffe-lms zoo get NAME` writes one")
    if args.action == "list":
        print(text(_HEAD, [row for model in zoo_models().values() for row in _rows(model)], 45))
        return 0
    for name in args.names:
        if name not in zoo_models():
            raise unknown_model(name)
    for name in args.names:
        written, folder = write_model(name, args.out, overwrite=args.overwrite), Path(args.out, name)
        count = len(zoo_models()[name].files)
        said = f"{len(written)} files written" if written else f"there already, with all {count} files"
        print(f"{name}: {folder} ({said})")
        if (folder / "solver.prototxt").exists():
            # the name makes its data where they come with the package, and says how to make others
            solver = name if folder == Path(HERE, name) else folder / "solver.prototxt"
            _log.info("To train it: %s train %s", flags.PROG, solver)
    return 0


def _rows(model: ZooModel) -> list[list[str]]:
    """Return a line of the table for each training net."""
    return [
        [
            model.name if net.file == "train_val" else f"{model.name}/{net.file}",
            f"{net.parameters:,}",
            net.operations.partition(" a ")[0],
            str(net.batch),
            net.memory,
            net.least,
            model.purpose,
        ]
        for net in model.nets
    ]
