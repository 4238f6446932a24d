"""Trains nets: the loop, the solver types, learning rate policies, snapshots.

`base.py` has the loop. `SOLVERS` maps each `type` of a solver file to its class.
"""

from __future__ import annotations

import difflib

from ..errors import SolverError
from ..formats.prototxt.parser import Lines
from ..proto.caffe_pb2 import SolverParameter
from .base import Solver
from .events import Observer
from .sgd import (
    AdaDeltaSolver,
    AdaGradSolver,
    AdamSolver,
    AdamWSolver,
    LionSolver,
    NesterovSolver,
    RMSPropSolver,
    SGDSolver,
)

__all__ = [
    "SOLVERS",
    "AdaDeltaSolver",
    "AdaGradSolver",
    "AdamSolver",
    "AdamWSolver",
    "LionSolver",
    "NesterovSolver",
    "Observer",
    "RMSPropSolver",
    "SGDSolver",
    "Solver",
    "solver_class",
]

_CLASSES = (
    SGDSolver,
    NesterovSolver,
    AdaGradSolver,
    RMSPropSolver,
    AdaDeltaSolver,
    AdamSolver,
    AdamWSolver,
    LionSolver,
)
SOLVERS: dict[str, type[SGDSolver]] = {cls.rule.type: cls for cls in _CLASSES}


def solver_class(param: SolverParameter, file: str | None = None, lines: Lines | None = None) -> type[SGDSolver]:
    """Return the class for a SolverParameter's `type`. file, lines: where it was read.

    Raises SolverError, with the known types, for another one."""
    if param.type not in SOLVERS:
        folded = {name.lower(): name for name in SOLVERS}
        near = difflib.get_close_matches(param.type.lower(), folded, n=1, cutoff=0.6)
        hint = f'; did you mean "{folded[near[0]]}"?' if near else ""
        raise SolverError(
            f'solver type "{param.type}" is not known{hint}', field="type", fix="use one of: " + ", ".join(SOLVERS)
        ).at(file=file, line=lines.field("type") if lines else None)
    return SOLVERS[param.type]
