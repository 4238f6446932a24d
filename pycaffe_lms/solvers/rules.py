"""Solver types as a table: how each updates, which settings it works with, what it refuses. Pure.

Source: BVLC/caffe, src/caffe/solvers (which settings, their ranges, the order of histories); the formulas are in
`ops/update_rules.py`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from ..errors import SolverError

# Settings that only some types use; what the others do with them is said in `check`.
OF_TYPES = ("momentum", "momentum2", "rms_decay", "delta")


@dataclass(frozen=True)
class Rule:
    """A solver type. type: its name in a solver file. operation: of `ops.solver_update`. slots: histories of a
    parameter. squares: those slots that hold sums or means of squares, which are never negative. keep, keep2: settings
    that say how much of a history stays. delta: whether that setting is used. corrected: whether the rate makes up for
    histories that begin at zero."""

    type: str
    operation: str
    slots: int = 1
    squares: tuple[int, ...] = ()
    keep: str | None = None
    keep2: str | None = None
    delta: bool = False
    corrected: bool = False

    def uses(self, setting: str) -> bool:
        """Whether one of OF_TYPES has an effect."""
        return setting in (self.keep, self.keep2) or (setting == "delta" and self.delta)

    def numbers(self, param) -> tuple[float, float, float]:
        """(keep, keep2, delta) of a SolverParameter, zero where unused."""
        values = (getattr(param, name) if name else 0.0 for name in (self.keep, self.keep2))
        return (*values, param.delta if self.delta else 0.0)

    def rate(self, rate: float, iteration: int, param) -> float:
        """What `rate`, the policy's, becomes in the update that follows `iteration` updates."""
        if not self.corrected:
            return rate
        t = iteration + 1
        return rate * math.sqrt(1 - param.momentum2**t) / (1 - param.momentum**t)

    def check(self, param) -> None:
        """Raise SolverError for settings that this type cannot work with."""
        if self.squares and not self.uses("momentum") and param.momentum:
            raise SolverError(
                f"momentum {param.momentum:g} cannot be used with {self.type}",
                field="momentum",
                fix='delete momentum, or choose another type, such as "Adam"',
            )
        for name in filter(None, (self.keep, self.keep2)):
            value = getattr(param, name)
            if self.squares and not 0 <= value < 1:
                raise SolverError(
                    f"{name} {value:g} is no share of a running mean",
                    field=name,
                    fix=f"{self.type} needs 0 <= {name} < 1",
                )
        if self.delta and param.delta < 0:
            raise SolverError(f"delta {param.delta:g} is negative", field="delta", fix="use a small positive number")


RULES = {
    rule.type: rule
    for rule in (
        Rule("SGD", "sgd", keep="momentum"),
        Rule("Nesterov", "nesterov", keep="momentum"),
        Rule("AdaGrad", "adagrad", squares=(0,), delta=True),
        Rule("RMSProp", "rmsprop", squares=(0,), keep="rms_decay", delta=True),
        Rule("AdaDelta", "adadelta", slots=2, squares=(0, 1), keep="momentum", delta=True),
        Rule("Adam", "adam", slots=2, squares=(1,), keep="momentum", keep2="momentum2", delta=True, corrected=True),
    )
}
