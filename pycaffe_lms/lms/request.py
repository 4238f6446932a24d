"""What a plan is asked for: a program, its managed buffers, and what is known of its steps."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

from .cost.machine import Costs
from .program import Buffer, Program, Step
from .remat.requested import RematRequests
from .rules import Rules


@dataclass(frozen=True)
class PlanRequest:
    """Ask for a plan. Whoever makes a plan, reads one from a file or predicts one is handed the same request.

    Args:
        program: the program in its own order.
        buffers: the managed buffers that it touches, by id.
        costs: seconds of its steps and copies.
        remats: index of a forward step -> the step that rematerializes its values; with those that `requested` needs.
        scratch: ids of buffers whose content never outlives a step.
        requested: values that layers request to rematerialize.
        first: rules to try before the others.
        below: seconds; only a plan that may take less, once its copies are reordered, is wanted.
    """

    program: Program
    buffers: Mapping[int, Buffer]
    costs: Costs
    remats: Mapping[int, Step] = field(default_factory=dict)
    scratch: frozenset[int] = frozenset()
    requested: RematRequests = field(default_factory=RematRequests)
    first: Rules | None = None
    below: float = math.inf
