"""Values that are made again because somebody said so, whatever they cost: `lms_param { policy: RECOMPUTE }`. Pure.

A value that a replay overwrites before its next read is dead until then, so all that is needed is a program with these
replays in it; what plans programs does the rest. See also: `replays.py`, `evict.py`, which replays where that pays.
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
    """steps: forward steps, by index, whose values are dropped before step `turn` and made again when they are read
    from there on. buffers: those values'; they are never copied."""

    steps: frozenset[int] = frozenset()
    turn: int = 0
    buffers: frozenset[int] = frozenset()


class CannotRemat(Exception):
    """What step `made` made is not what its replay would make before step `wanted`."""

    def __init__(self, made: int, wanted: int):
        super().__init__(made, wanted)
        self.made, self.wanted = made, wanted


def remat_order(program: Program, can: RematCandidates, remat_requests: RematRequests) -> Ordered:
    """The program with a replay of each of the steps before the first read of what it makes from `turn` on; values that
    nobody reads there are not made again. Raises CannotRemat."""
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
    return ordered(program, can.replays, order)


@dataclass(frozen=True)
class Inner:
    """A program with remakes as the program that is planned. again: its steps that are replays -> the forward they
    repeat, both by its own indices."""

    result: Ordered
    costs: Costs
    replays: Mapping[int, Step]
    again: Mapping[int, int] = field(default_factory=dict)

    def outward(self, plan: Plan) -> Plan:
        """A plan of it as one of the original program."""
        order = self.result.order
        return replace(plan, order=tuple((order[i][0], order[i][1] or again) for i, again in plan.order))


def inner_program(program: Program, can: RematCandidates, costs: Costs, remat_requests: RematRequests) -> Inner:
    """What is planned in place of `program`. Raises CannotRemat."""
    result = remat_order(program, can, remat_requests)
    first = {s: i for i, (s, again) in enumerate(result.order) if not again}
    return Inner(
        result,
        Costs(
            [costs.again[s] if again else costs.steps[s] for s, again in result.order],
            {i: costs.again[s] for i, (s, _) in enumerate(result.order) if s in costs.again},
            costs.machine,
        ),
        {i: can.replays[s] for i, (s, _) in enumerate(result.order) if s in can.replays},
        {i: first[s] for i, (s, again) in enumerate(result.order) if again},
    )


def check_uncopied(plan: Plan, remat_requests: RematRequests) -> None:
    """Raise PlanError where the plan copies what is to be made again."""
    for op in plan.ops:
        if op.place is not None and op.place.buffer in remat_requests.buffers:
            raise PlanError(
                f"plan of {plan.program.name}, operation {op.id}: copies a value of a layer with lms_param "
                "{ policy: RECOMPUTE }",
                fix="a plan from a file must make it again, or the prototxt must not ask for it; else this is a bug",
            ).at(blob=plan.buffers[op.place.buffer].name)
