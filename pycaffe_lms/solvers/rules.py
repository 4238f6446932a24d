"""Lists the solver types: how each updates parameters, which settings it reads, which values it refuses. Pure.

`RULES` is the table. The formulas are in `ops/update_rules.py`.
Source: BVLC/caffe, src/caffe/solvers (which settings, their ranges, the order of histories).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from ..errors import SolverError
from ..proto.caffe_pb2 import SolverParameter

# Settings that only some types use; `Rule.check` says what the others do with them.
OF_TYPES = ("momentum", "momentum2", "rms_decay", "delta")


@dataclass(frozen=True)
class Rule:
    """Describe a solver type.

    Args:
        type: its name in a solver file.
        operation: the rule that `ops.solver_update` is given.
        slots: number of histories of a parameter.
        squares: the slots that hold sums or means of squares, which are never negative.
        keep, keep2: names of the settings by which old histories are multiplied.
        delta: whether the setting of this name is used.
        corrected: whether the rate corrects the bias of histories that begin at zero (Adam).
        means: whether histories are means, so that what multiplies old ones must be in [0, 1).
    """

    type: str
    operation: str
    slots: int = 1
    squares: tuple[int, ...] = ()
    keep: str | None = None
    keep2: str | None = None
    delta: bool = False
    corrected: bool = False
    means: bool = False

    def uses(self, setting: str) -> bool:
        """Return whether one of OF_TYPES has an effect."""
        return setting in (self.keep, self.keep2) or (setting == "delta" and self.delta)

    def numbers(self, param: SolverParameter) -> tuple[float, float, float]:
        """Return (keep, keep2, delta), zero where unused."""
        keep, keep2 = (getattr(param, name) if name else 0.0 for name in (self.keep, self.keep2))
        return keep, keep2, param.delta if self.delta else 0.0

    def rate(self, rate: float, iteration: int, param: SolverParameter) -> float:
        """Return the learning rate of the update that follows `iteration` updates. rate: that of the policy."""
        if not self.corrected:
            return rate
        t = iteration + 1
        corrected: float = rate * math.sqrt(1 - param.momentum2**t) / (1 - param.momentum**t)
        return corrected

    def check(self, param: SolverParameter) -> None:
        """Raise SolverError for settings that this type cannot work with."""
        if self.squares and not self.uses("momentum") and param.momentum:
            raise SolverError(
                f"momentum {param.momentum:g} cannot be used with {self.type}",
                field="momentum",
                fix='delete momentum, or choose another type, such as "Adam"',
            )
        for name in filter(None, (self.keep, self.keep2)):
            value = getattr(param, name)
            if (self.squares or self.means) and not 0 <= value < 1:
                raise SolverError(
                    f"{name} {value:g} is outside of [0, 1)",
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
        Rule("AdamW", "adamw", slots=2, squares=(1,), keep="momentum", keep2="momentum2", delta=True, corrected=True),
        Rule("Lion", "lion", keep="momentum", keep2="momentum2", means=True),
    )
}
