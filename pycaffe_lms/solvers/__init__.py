"""Training loops: learning rate policies (pure), SGD and its kin, snapshots."""

from __future__ import annotations

from ..errors import SolverError
from .base import Solver
from .sgd import SGDSolver

SOLVERS: dict[str, type[Solver]] = {"SGD": SGDSolver}


def solver_class(param) -> type[Solver]:
    """The class for a SolverParameter's `type`. Raises SolverError with the known ones."""
    if param.type not in SOLVERS:
        raise SolverError(f'solver type "{param.type}" is not known', fix="use one of: " + ", ".join(SOLVERS))
    return SOLVERS[param.type]
