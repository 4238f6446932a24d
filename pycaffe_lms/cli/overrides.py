"""Declare -set, and read nets and solvers with what it overrides."""

from __future__ import annotations

import argparse

from ..formats.prototxt.overrides import override_net, override_solver
from ..formats.prototxt.parser import Parsed, read_net, read_solver
from ..proto.caffe_pb2 import NetParameter, SolverParameter


def add_set(p: argparse.ArgumentParser, of: str, example: str) -> None:
    """Declare -set. of: what has the fields; example: a path and a value."""
    p.add_argument(
        "--set",
        action="append",
        default=[],
        metavar="FIELD=VALUE",
        help=f"override a field of {of}, such as {example}; may be repeated; layer.NAME.FIELD is a field of a layer, a "
        "path leads through messages, and of a repeated field a comma list replaces all values",
    )


def net_of(args: argparse.Namespace) -> Parsed[NetParameter]:
    """Return the net of -model, with what -set says. Raises PrototxtError, UsageError."""
    return override_net(read_net(args.model, judge=False), args.set)


def solver_of(args: argparse.Namespace) -> Parsed[SolverParameter]:
    """Return the solver of -solver, with what -set says. Raises PrototxtError, UsageError."""
    parsed = read_solver(args.solver)
    return override_solver(parsed, args.set) if args.set else parsed
