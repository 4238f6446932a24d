"""`pycaffe-lms upgrade_solver_proto_text INPUT OUTPUT`: an old solver prototxt in the current form."""

from __future__ import annotations

from ...formats.prototxt.parser import read_solver
from ...proto.caffe_pb2 import SolverParameter
from ..upgrade import text_as_it_is, upgrade

_ABOUT = """Write a solver prototxt in the current form: `type: "Adam"` for `solver_type: ADAM`, and its inline nets as
upgrade_net_proto_text does. Comments are not kept."""


def run(argv: list[str]) -> int:
    """Read any generation, write the current one."""
    return upgrade(
        "upgrade_solver_proto_text",
        _ABOUT,
        argv,
        lambda path: read_solver(path).message,
        lambda path: text_as_it_is(path, SolverParameter()),
    )
