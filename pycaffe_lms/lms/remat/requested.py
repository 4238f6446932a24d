"""Insert the rematerialization that a prototxt asks for, at any cost: `lms_param { policy: RECOMPUTE }`. Pure.

A value that is rematerialized before its next read is dead until then, so it is enough to plan a program that contains
these steps (`inner_program`). See also `remat/candidates.py` (what can be rematerialized) and `planner/evict.py`, which
rematerializes where that is cheaper than a copy.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from ...errors import PlanError
from ..cost.machine import Costs
from ..plan.plan import Plan
from ..program import Mode, Program, Step
from .candidates import Ordered, RematCandidates, ordered


@dataclass(frozen=True)
class RematRequests:
    """Name the values that a prototxt asks to rematerialize.

    Attributes:
        steps: forward steps, by index, whose values are dropped before step `turn` and rematerialized for later reads.
        turn: index of the first step after the forward pass.
        buffers: buffers of these values; they are never copied.
    """

    steps: frozenset[int] = frozenset()
    turn: int = 0
    buffers: frozenset[int] = frozenset()


class CannotRemat(Exception):
    """Signal that rematerializing step `made` before step `wanted` would give other values."""

    def __init__(self, made: int, wanted: int):
        super().__init__(made, wanted)
        self.made, self.wanted = made, wanted


def remat_order(program: Program, can: RematCandidates, remat_requests: RematRequests) -> Ordered:
    """Return the program in which each requested step runs again before the first read of its values from `turn` on.

    Values without such a read are not rematerialized.

    Raises:
        CannotRemat: an input of a requested step has changed by then.
    """
    maker = {b: r for r in sorted(remat_requests.steps) for b in can.makes[r]}
    order: list[tuple[int, bool]] = [(s, False) for s in range(remat_requests.turn)]
    done: set[int] = set()

    def ensure(r: int, wanted: int) -> None:
        if r in done:
            return
        done.add(r)
        if can.valid_until.get(r, -1) < wanted:
            raise CannotRemat(r, wanted)
        for x in can.reads[r]:
            if x in maker and maker[x] < r:
                ensure(maker[x], wanted)
        order.append((r, True))

    for t in range(remat_requests.turn, len(program.steps)):
        for a in program.steps[t].accesses:
            if a.mode is not Mode.OVERWRITE and a.buffer in maker:
                ensure(maker[a.buffer], t)
        order.append((t, False))
    return ordered(program, can.remats, order)


@dataclass(frozen=True)
class Inner:
    """Hold a program with requested rematerialization, and its costs, as input of the planners.

    Attributes:
        result: the program and its order in terms of the original one.
        costs, remats: seconds and rematerializing steps by index in the new program.
        again: steps of the new program that rematerialize -> the forward step they repeat, by the same indices.
    """

    result: Ordered
    costs: Costs
    remats: Mapping[int, Step]
    again: Mapping[int, int] = field(default_factory=dict)

    def outward(self, plan: Plan) -> Plan:
        """Return a plan of this program with `order` in terms of the original program."""
        order = self.result.order
        return replace(plan, order=tuple((order[i][0], order[i][1] or again) for i, again in plan.order))


def inner_program(program: Program, can: RematCandidates, costs: Costs, remat_requests: RematRequests) -> Inner:
    """Return the program to plan in place of `program`. Raises CannotRemat."""
    result = remat_order(program, can, remat_requests)
    first = {s: i for i, (s, again) in enumerate(result.order) if not again}
    return Inner(
        result,
        Costs(
            [costs.again[s] if again else costs.steps[s] for s, again in result.order],
            {i: costs.again[s] for i, (s, _) in enumerate(result.order) if s in costs.again},
            costs.machine,
        ),
        {i: can.remats[s] for i, (s, _) in enumerate(result.order) if s in can.remats},
        {i: first[s] for i, (s, again) in enumerate(result.order) if again},
    )


def check_uncopied(plan: Plan, remat_requests: RematRequests) -> None:
    """Raise PlanError if the plan copies a buffer that is to be rematerialized."""
    for op in plan.ops:
        if op.place is not None and op.place.buffer in remat_requests.buffers:
            raise PlanError(
                f"plan of {plan.program.name}, operation {op.id}: copies a value of a layer with lms_param "
                "{ policy: RECOMPUTE }",
                fix="a plan from a file must make it again, or the prototxt must not ask for it; else this is a bug",
            ).at(blob=plan.buffers[op.place.buffer].name)
