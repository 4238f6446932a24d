"""`pycaffe-lms diff OLD NEW`: what differs between two nets or two solvers."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from typing import Any

from ...data.sets.zoo import find_model
from ...errors import CaffeError
from ...formats.prototxt.message_diff import Change, Differences, compare
from ...formats.prototxt.parser import Parsed, kind_of, read_net, read_solver
from ...proto.caffe_pb2 import NetParameter
from .. import flags

_ZOO_FILE = {"auto": "train_val", "net": "train_val", "solver": "solver"}
_MARKS = {"added": "+", "removed": "-", "moved": ">", "changed": "~"}
_ABOUT = """Print what differs between two prototxts of nets, or of solvers: layers added (+), removed (-), moved (>)
and changed (~), each changed field with its old and its new value.

The meaning is compared: files of older generations are upgraded first, and a field that is written with its default
equals one that is not written. Layers are matched by name.
Exit code: 0 no difference, 1 differences, 2 a file cannot be read or the words are wrong."""


def build_parser() -> flags.Parser:
    """Return the parser."""
    p = flags.parser("diff", _ABOUT)
    p.add_argument("old", metavar="OLD", help="prototxt of a net or a solver, or a model of the zoo")
    p.add_argument("new", metavar="NEW", help="prototxt of the same kind, compared with it")
    p.add_argument(
        "--kind",
        choices=("auto", "net", "solver"),
        default="auto",
        help="what the files are; auto: as their fields say (default)",
    )
    return p


def run(args: argparse.Namespace) -> int:
    """Print the differences; return 1 if there are some."""
    try:
        args.old, args.new = (find_model(text, _ZOO_FILE[args.kind]) for text in (args.old, args.new))
        kind = kind_of(args.old, args.new) if args.kind == "auto" else args.kind
        read = read_solver if kind == "solver" else read_net
        old, new = read(args.old), read(args.new)
    except CaffeError as error:
        error.exit_code = 2  # 1 says that the files differ, as in other programs that compare
        raise
    differences = compare(old.message, new.message)
    for line in _lines(differences, old, new):
        print(line)
    return 1 if differences else 0


def _lines(found: Differences, old: Parsed[Any], new: Parsed[Any]) -> Iterator[str]:
    """Yield the lines to print."""
    if not found:
        return
    yield f"--- {old.filename}"
    yield f"+++ {new.filename}"
    yield from (f"~ {_change(c)}" for c in found.fields)
    for layer in found.layers:
        yield f'{_MARKS[layer.what]} layer "{layer.name}" ({layer.type})' + (" moved" if layer.what == "moved" else "")
        yield from (f"    {_change(c)}" for c in layer.fields)
    if isinstance(new.message, NetParameter):
        counts = ", ".join(f"{sum(x.what == what for x in found.layers)} {what}" for what in _MARKS)
        yield f"layers: {counts}"


def _change(c: Change) -> str:
    return f"{c.path}: {c.old} -> {c.new}"
