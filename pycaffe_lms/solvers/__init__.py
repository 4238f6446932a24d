"""Training loops: learning rate policies and solver types (pure), SGD and its kin, snapshots."""

from __future__ import annotations

import difflib

from ..errors import SolverError
from ..formats.prototxt.parser import Lines
from .adaptive import AdaDeltaSolver, AdaGradSolver, AdamSolver, NesterovSolver, RMSPropSolver
from .base import Solver
from .events import Observer
from .sgd import SGDSolver

_CLASSES = (SGDSolver, NesterovSolver, AdaGradSolver, RMSPropSolver, AdaDeltaSolver, AdamSolver)
SOLVERS: dict[str, type[SGDSolver]] = {cls.rule.type: cls for cls in _CLASSES}

__all__ = [*(cls.__name__ for cls in _CLASSES), "SOLVERS", "Observer", "Solver", "solver_class"]


def solver_class(param, file: str | None = None, lines: Lines | None = None) -> type[SGDSolver]:
    """The class for a SolverParameter's `type`; file and lines: where it was read. Raises SolverError with the known
    types."""
    if param.type not in SOLVERS:
        folded = {name.lower(): name for name in SOLVERS}
        near = difflib.get_close_matches(param.type.lower(), folded, n=1, cutoff=0.6)
        hint = f'; did you mean "{folded[near[0]]}"?' if near else ""
        raise SolverError(
            f'solver type "{param.type}" is not known{hint}', field="type", fix="use one of: " + ", ".join(SOLVERS)
        ).at(file=file, line=lines.field("type") if lines else None)
    return SOLVERS[param.type]
