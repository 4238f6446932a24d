"""The two queues of copies of a plan, as they may be changed: who is copied when, in which pieces. Pure.

Copies only move back: a piece that is put off is issued at the step of the copy that it lets pass. So the memory that a
copy needs is free when it is issued, as it was before, and all that is to be seen to is that nobody needs it yet.
See also: `passing.py`, which says who passes whom; `emit.py`, which makes operations of the result.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from .machine import Costs
from .plan import COMPUTE, COPY_IN, COPY_OUT, HOST, Kind, Op, Piece, Plan
from .planner import emitted
from .stays import Residence
from .timing import Task, copy_task, step_seconds


@dataclass(frozen=True, slots=True)
class Copy:
    """A piece of the copy in or out of a residence, or all of it. step: at which it is issued; made: at which the copy
    was before anything was put off. wanted: the first step that needs what it brings, or the memory that it leaves.
    fixed: it is not to be put off. whole: it is not to be cut."""

    stay: int
    out: bool
    step: int
    made: int
    wanted: int
    nbytes: int
    offset: int = 0
    fixed: bool = False
    whole: bool = False


class Queues:
    """Tasks in issue order. Keys below the number of steps are those of steps, of copies from there on; the last piece
    of a copy keeps the key of the whole, so that who waits for it waits for its end."""

    def __init__(self, stays: Sequence[Residence], copies: dict[int, Copy], tasks: dict[int, Task],
                 groups: dict[tuple[int, int], list[int]], steps: int):  # fmt: skip
        self.stays, self.copies, self.tasks, self._groups, self.steps = stays, copies, tasks, groups, steps
        self.order: list[int] = []
        for s in range(steps):
            self.order += groups.get((COPY_IN, s), ())
            self.order.append(s)
            self.order += groups.get((COPY_OUT, s), ())

    def passed(self, passer: int, passed: Sequence[int], cut: int, costs: Costs) -> Queues:
        """The same, but those of `passed` are issued behind `passer`; of the first only what is behind `cut` bytes."""
        copies, tasks, groups = dict(self.copies), dict(self.tasks), dict(self._groups)
        to = self.copies[passer].step
        stream = self.tasks[passer].stream

        def put(key: int, copy: Copy) -> None:
            if copies[key].nbytes != copy.nbytes:
                tasks[key] = copy_task(key, stream, copy.nbytes, tasks[key].after, costs.machine)
            copies[key] = copy

        target = (stream, to)
        for key in passed:
            copy = copies[key]
            source = (stream, copy.step)
            groups[source] = [k for k in groups[source] if k != key]
            if cut:
                first = max(tasks) + 1
                copies[first], tasks[first] = copy, tasks[key]._replace(key=first)
                put(first, replace(copy, nbytes=cut))
                groups[source] = self._sorted([*groups[source], first], copies, copy.out)
                copy = replace(copy, nbytes=copy.nbytes - cut, offset=copy.offset + cut)
                cut = 0
            later = next((k for k in groups[target] if copies[k].stay == copy.stay), None)
            if later is None:
                put(key, replace(copy, step=to))
                groups[target] = self._sorted([*groups[target], key], copies, copy.out)
            else:  # two pieces at one step are one
                del copies[key]
                put(later, replace(copies[later], nbytes=copy.nbytes + copies[later].nbytes, offset=copy.offset))
        return Queues(self.stays, copies, tasks, groups, self.steps)

    def _sorted(self, keys: Sequence[int], copies: Mapping[int, Copy], out: bool) -> list[int]:
        """In the order in which `emit` issues the copies of a step."""

        def place(key: int):
            c = copies[key]
            stay = self.stays[c.stay]
            return (c.step != c.made, c.made, stay.last, c.stay) if out else (stay.first, c.stay)

        return sorted(keys, key=place)

    def residences(self) -> list[Residence]:
        """The residences with their copies as they are now."""
        pieces: dict[tuple[int, bool], list[Copy]] = {}
        for copy in self.copies.values():
            pieces.setdefault((copy.stay, copy.out), []).append(copy)
        found = list(self.stays)
        for (i, out), mine in pieces.items():
            mine.sort(key=lambda copy: copy.offset)
            made = tuple(Piece(copy.step, copy.nbytes) for copy in mine)
            if out:
                found[i] = replace(found[i], departures=made if len(made) > 1 or made[0].step != mine[0].made else ())
            else:
                found[i] = replace(found[i], issue=made[0].step, arrivals=made if len(made) > 1 else ())
        return found


def queues_of(plan: Plan, stays: Sequence[Residence], offsets: Sequence[int], costs: Costs) -> Queues:
    """The queues of a plan whose copies are whole; stays, offsets: its residences."""
    made = emitted(plan.program, plan.buffers, stays, offsets, plan.paging)
    steps, seconds = len(plan.program.steps), step_seconds(plan, costs)
    needed = _needed(made.ops, made.after)
    hosted = {a.buffer for step in plan.program.steps if step.host for a in step.accesses}
    left = {op.id for op in plan.abiding}
    key = {op.id: op.step if op.place is None else steps + op.id for op in made.ops}
    at = {(COPY_IN, r.buffer, r.issue): i for i, r in enumerate(stays) if r.fetched}
    at |= {(COPY_OUT, r.buffer, r.written): i for i, r in enumerate(stays) if r.saved}
    copies: dict[int, Copy] = {}
    tasks: dict[int, Task] = {}
    groups: dict[tuple[int, int], list[int]] = {}
    for op, after in zip(made.ops, made.after, strict=True):
        k, keys = key[op.id], tuple(key[a] for a in after if made.ops[a].stream != HOST)
        if op.place is None:
            tasks[k] = Task(k, HOST if op.kind is Kind.HOST else COMPUTE, seconds[op.step], 0.0, keys)
            continue
        i, out, buffer = at[op.stream, op.place.buffer, op.step], op.kind is Kind.OUT, plan.buffers[op.place.buffer]
        # who makes the next value there waits for it; or it would not be at the front, where it need not be made
        fixed = (not out and buffer.id in hosted) or op.id in left
        copies[k] = Copy(
            i, out, op.step, op.step, needed.get(op.id, steps), buffer.nbytes, fixed=fixed, whole=bool(buffer.halved)
        )
        tasks[k] = copy_task(k, op.stream, 0 if op.id in left else buffer.copied, keys, costs.machine)
        groups.setdefault((op.stream, op.step), []).append(k)
    return Queues(stays, copies, tasks, groups, steps)


def _needed(ops: Sequence[Op], after: Sequence[frozenset[int]]) -> dict[int, int]:
    """Copy -> the first step at which somebody must come after it, by ids."""
    found: dict[int, int] = {}
    for op, others in zip(ops, after, strict=True):
        for a in others:
            found[a] = min(found.get(a, op.step), op.step)
    return found
