"""Find the values of a program that can be rematerialized, and build and verify programs that do so. Pure.

A step can run again just before a later read if it overwrites what it writes and its inputs do not change until then.
`remats` maps the index of such a step to the step that rematerializes its values. `planner/evict.py` decides which of
them run; `remat/requested.py` inserts those that a prototxt asks for.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from ...errors import PlanError
from ..cost.machine import Costs
from ..program import Mode, Program, Step


@dataclass(frozen=True)
class Ordered:
    """Hold a program with rematerialization.

    Attributes:
        program: all steps in order of execution.
        order: for each of them, (index in the original program, whether it rematerializes). Every original step is
            there once, in its order.
    """

    program: Program
    order: tuple[tuple[int, bool], ...]

    @property
    def rematerialized(self) -> int:
        """Return the number of steps that rematerialize."""
        return sum(again for _, again in self.order)


def ordered(program: Program, remats: Mapping[int, Step], order: Iterable[tuple[int, bool]]) -> Ordered:
    """Return the program that runs `program`'s steps, and their `remats`, in the given order."""
    order = tuple(order)
    steps = tuple(remats[s] if again else program.steps[s] for s, again in order)
    return Ordered(Program(program.name, steps, program.live_out), order)


@dataclass(frozen=True)
class RematCandidates:
    """Tell which steps of a program can be rematerialized, and until when.

    Attributes:
        remats: step -> the step that rematerializes its values.
        scratch: ids of buffers whose content never outlives a step.
        same: steps of the program that rematerialize already (`remat/requested.py`); they change no value.
    """

    program: Program
    remats: Mapping[int, Step]
    scratch: frozenset[int]
    same: Collection[int] = ()

    @cached_property
    def writes(self) -> dict[int, list[int]]:
        """Return buffer -> the steps that write it, in order."""
        found: dict[int, list[int]] = {}
        for s, step in enumerate(self.program.steps):
            for a in step.accesses:
                if a.mode is not Mode.READ and s not in self.same:
                    found.setdefault(a.buffer, []).append(s)
        return found

    @cached_property
    def reads(self) -> dict[int, tuple[int, ...]]:
        """Return step -> the buffers that its rematerialization reads."""
        return {s: tuple(a.buffer for a in r.accesses if a.mode is Mode.READ) for s, r in self.remats.items()}

    @cached_property
    def makes(self) -> dict[int, tuple[int, ...]]:
        """Return step -> the buffers that its rematerialization writes, scratch excluded."""
        return {
            s: tuple(a.buffer for a in r.accesses if a.mode is not Mode.READ and a.buffer not in self.scratch)
            for s, r in self.remats.items()
        }

    def next_write(self, buffer: int, after: int) -> int:
        """Return the first step after step `after` that writes the buffer; the program's length if none does."""
        steps = self.writes.get(buffer, ())
        at = bisect_right(steps, after)
        return steps[at] if at < len(steps) else len(self.program.steps)

    @cached_property
    def valid_until(self) -> dict[int, int]:
        """Return step -> the last step before which its rematerialization still computes the same values."""
        found = {}
        for s, remat in self.remats.items():
            if any(a.mode is Mode.UPDATE for a in remat.accesses):
                continue
            touched = [a.buffer for a in remat.accesses if a.buffer not in self.scratch]
            if any(b in self.program.live_out for b in self.makes[s]):
                continue
            found[s] = min((self.next_write(b, s) for b in touched), default=-1)
        return found


@dataclass(frozen=True)
class CheckpointCandidates:
    """Find checkpoints of one program: values to keep or copy when most others are rematerialized.

    Later forward steps need only the values that are alive between two steps. Where these take few bytes, keeping them
    splits a chain of rematerialized steps in two: no step before the checkpoint runs again for a value after it.

    Attributes:
        sizes: bytes of the managed buffers.
    """

    can: RematCandidates
    costs: Costs
    sizes: Mapping[int, int]

    @cached_property
    def _cuts(self) -> list[tuple[float, int, tuple[int, ...]]]:
        """Return, after every rematerializable step: (seconds of these steps so far, bytes alive, buffers alive)."""
        steps = sorted(self.can.valid_until)
        maker: dict[int, int] = {}
        last: dict[int, int] = {}  # buffer -> the last of these steps that reads it
        for s in steps:
            last.update((b, s) for b in self.can.reads[s] if b in maker)
            if not any(b in self.sizes or b in self.can.writes for b in self.can.reads[s]):
                continue  # random numbers, made of a key alone: there is no chain to split before them
            for b in self.can.makes[s]:
                if b in self.sizes:
                    maker.setdefault(b, s)
        found, alive, seconds = [], set(), 0.0
        for s in steps:
            seconds += self.costs.again[s]
            alive |= {b for b in self.can.makes[s] if maker.get(b) == s}
            alive = {b for b in alive if last.get(b, -1) > s}
            found.append((seconds, sum(self.sizes[b] for b in alive), tuple(sorted(alive))))
        return found

    def checkpoints(self, parts: int) -> frozenset[int]:
        """Return the values alive at the narrowest point, the last if equal, of each of `parts` parts of equal time."""
        cuts = [cut for cut in self._cuts if cut[2]]
        total = self._cuts[-1][0] if self._cuts else 0.0
        chosen: set[int] = set()
        for i in range(parts):
            part = [cut for cut in cuts if total * i / parts < cut[0] <= total * (i + 1) / parts]
            if part:
                chosen.update(min(reversed(part), key=lambda cut: cut[1])[2])
        return frozenset(chosen)


def verify_remat(program: Program, result: Ordered, remats: Mapping[int, Step], scratch: frozenset[int]) -> None:
    """Raise PlanError unless `result` reads and leaves the same values as `program`.

    A value is identified by the step that computes it and the values which that step reads. A rematerialized value is
    the original one if its inputs are the same.
    """
    names: dict[object, int] = {}
    plain = [(s, False) for s in range(len(program.steps))]
    expected, survivors = _follow(program, plain, remats, scratch, names)
    found, surviving = _follow(program, result.order, remats, scratch, names)
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
    remats: Mapping[int, Step],
    scratch: frozenset[int],
    names: dict[object, int],
) -> tuple[list[tuple[tuple[int, int], ...]], dict[int, int]]:
    """Return (inputs of every original step, values that survive); equal values have equal numbers, from `names`."""
    value: dict[int, int] = {}
    made: dict[int, tuple[dict[int, int], dict[int, int]]] = {}  # step -> values (of its outputs, of all it touched)

    def number(what: object) -> int:
        return names.setdefault(what, len(names))

    def now(b: int) -> int:
        if b not in value:
            value[b] = number(("before", b))
        return value[b]

    seen = []
    for s, again in order:
        step = remats[s] if again else program.steps[s]
        inputs = tuple((a.buffer, now(a.buffer)) for a in step.accesses if a.mode is not Mode.OVERWRITE)
        outputs = [a.buffer for a in step.accesses if a.mode is not Mode.READ and a.buffer not in scratch]
        if again:
            before = made.get(s)
            for b in outputs:
                same = before is not None and b in before[0] and all(before[1].get(x) == v for x, v in inputs)
                value[b] = before[0][b] if before and same else number(("wrong", s, b, len(names)))
            continue
        seen.append(inputs)
        for b in outputs:
            value[b] = number((s, b, inputs))
        # a rematerialization may read what the forward step wrote (statistics): its outputs count as its inputs
        own = {b: value[b] for b in outputs}
        made[s] = own, dict(inputs) | own
    return seen, {b: value[b] for b in program.live_out if b in value and b not in scratch}
