"""Which values of a program can be made again instead of being kept, and a program with such replays in it. Pure.

A step that overwrites what it writes, from values that nobody changes before they are wanted again, can be run once
more just before that. `replays` says how: for steps of the program, by index, the step that does it.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from ...errors import PlanError
from ..program import Mode, Program, Step


@dataclass(frozen=True)
class Ordered:
    """What runs: steps of the original program by index, in order, each once, and replays (True) of some in between."""

    program: Program  # as it runs
    order: tuple[tuple[int, bool], ...]

    @property
    def replayed(self) -> int:
        return sum(again for _, again in self.order)


def ordered(program: Program, replays: Mapping[int, Step], order: Iterable[tuple[int, bool]]) -> Ordered:
    """The program of that order."""
    order = tuple(order)
    steps = tuple(replays[s] if again else program.steps[s] for s, again in order)
    return Ordered(Program(program.name, steps, program.live_out), order)


@dataclass(frozen=True)
class RematCandidates:
    """Questions about a program's values. scratch: ids of buffers whose content never outlives a step. same: steps of
    the program that only make values again, see `remake.py`: they change nothing."""

    program: Program
    replays: Mapping[int, Step]
    scratch: frozenset[int]
    same: Collection[int] = ()

    @cached_property
    def writes(self) -> dict[int, list[int]]:
        """Buffer -> the steps that write it."""
        found: dict[int, list[int]] = {}
        for s, step in enumerate(self.program.steps):
            for a in step.accesses:
                if a.mode is not Mode.READ and s not in self.same:
                    found.setdefault(a.buffer, []).append(s)
        return found

    @cached_property
    def reads(self) -> dict[int, tuple[int, ...]]:
        """RematCandidates step -> the buffers that its replay reads."""
        return {s: tuple(a.buffer for a in r.accesses if a.mode is Mode.READ) for s, r in self.replays.items()}

    @cached_property
    def makes(self) -> dict[int, tuple[int, ...]]:
        """RematCandidates step -> the buffers that its replay writes, its own workspace aside."""
        return {
            s: tuple(a.buffer for a in r.accesses if a.mode is not Mode.READ and a.buffer not in self.scratch)
            for s, r in self.replays.items()
        }

    def next_write(self, buffer: int, after: int) -> int:
        """The first step behind `after` that writes the buffer; the program's length if none."""
        steps = self.writes.get(buffer, ())
        at = bisect_right(steps, after)
        return steps[at] if at < len(steps) else len(self.program.steps)

    @cached_property
    def valid_until(self) -> dict[int, int]:
        """RematCandidates step -> the last step before which its replay still makes what the step made."""
        found = {}
        for s, replay in self.replays.items():
            if any(a.mode is Mode.UPDATE for a in replay.accesses):
                continue
            touched = [a.buffer for a in replay.accesses if a.buffer not in self.scratch]
            if any(b in self.program.live_out for b in self.makes[s]):
                continue
            found[s] = min((self.next_write(b, s) for b in touched), default=-1)
        return found


def verify_remat(program: Program, result: Ordered, replays: Mapping[int, Step], scratch: frozenset[int]) -> None:
    """Raise PlanError unless every step of the original program finds the values it would find there, and what must
    survive is the same. Values are named by the step that made them and what it read; a replay's are its step's."""
    names: dict[object, int] = {}
    plain = [(s, False) for s in range(len(program.steps))]
    expected, survivors = _follow(program, plain, replays, scratch, names)
    found, surviving = _follow(program, result.order, replays, scratch, names)
    if [s for s, again in result.order if not again] != list(range(len(program.steps))):
        raise PlanError(f"plan of {program.name}: the steps are not those of the program", fix="this is a planner bug")
    for s, (want, have) in enumerate(zip(expected, found, strict=True)):
        if want != have:
            raise PlanError(
                f"plan of {program.name}, step {program.steps[s].name}: a value is not the one that the program makes",
                fix="this is a bug in the planner, or an edited plan",
            )
    if survivors != surviving:
        raise PlanError(f"plan of {program.name}: another value survives", fix="this is a bug in the planner")


def _follow(
    program: Program,
    order: Sequence[tuple[int, bool]],
    replays: Mapping[int, Step],
    scratch: frozenset[int],
    names: dict[object, int],
):
    """(what every original step reads, what survives), with values as numbers: equal ones are equal values."""
    value: dict[int, int] = {}
    made: dict[int, dict[int, tuple[int, int]]] = {}  # step -> buffer -> (value, of which inputs)

    def number(what: object) -> int:
        return names.setdefault(what, len(names))

    def now(b: int) -> int:
        if b not in value:
            value[b] = number(("before", b))
        return value[b]

    seen = []
    for s, again in order:
        step = replays[s] if again else program.steps[s]
        inputs = tuple((a.buffer, now(a.buffer)) for a in step.accesses if a.mode is not Mode.OVERWRITE)
        outputs = [a.buffer for a in step.accesses if a.mode is not Mode.READ and a.buffer not in scratch]
        if again:
            before = made.get(s)
            for b in outputs:
                same = before is not None and b in before and _agrees(inputs, before[-1])
                value[b] = before[b] if same else number(("wrong", s, b, len(names)))
            continue
        seen.append(inputs)
        for b in outputs:
            value[b] = number((s, b, inputs))
        # a replay may read what the forward wrote (statistics): that belongs to what it was made from
        made[s] = {b: value[b] for b in outputs}
        made[s][-1] = dict(inputs) | {b: value[b] for b in outputs}
    return seen, {b: value[b] for b in program.live_out if b in value and b not in scratch}


def _agrees(inputs, known: Mapping[int, int]) -> bool:
    return all(known.get(b) == v for b, v in inputs)
