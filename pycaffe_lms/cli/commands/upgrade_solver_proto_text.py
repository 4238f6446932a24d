"""`pycaffe-lms upgrade_solver_proto_text INPUT OUTPUT`: an old solver prototxt in the current form."""

from __future__ import annotations

import argparse

from ...formats.prototxt.parser import read_solver
from ...proto.caffe_pb2 import SolverParameter
from .. import flags
from ..upgrade import text_as_it_is, upgrade, upgrade_parser

_ABOUT = """Write a solver prototxt in the current form: `type: "Adam"` for `solver_type: ADAM`, and its inline nets as
upgrade_net_proto_text does. Comments are not kept."""


def build_parser() -> flags.Parser:
    """Return the parser."""
    return upgrade_parser("upgrade_solver_proto_text", _ABOUT)


def run(args: argparse.Namespace) -> int:
    """Read any generation, write the current one."""
    return upgrade(args, lambda path: read_solver(path).message, lambda path: text_as_it_is(path, SolverParameter()))
