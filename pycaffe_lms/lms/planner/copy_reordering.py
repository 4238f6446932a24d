"""The two queues of copies of a plan, as they may be changed: who is copied when, in which pieces. Pure.

Copies only move back: a piece that is put off is issued at the step of the copy that it lets pass. So the memory that a
copy needs is free when it is issued, as it was before, and all that is to be seen to is that nobody needs it yet.
See also: `passing.py`, which says who passes whom; `emit.py`, which makes operations of the result.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from ..cost.machine import Costs
from ..cost.timing import Task, copy_task, follow, step_seconds, time_plan
from ..layout.packing import Packing
from ..plan.live_ranges import LiveRange, live_ranges_of
from ..plan.plan import COMPUTE, COPY_IN, COPY_OUT, HOST, Op, OpKind, Piece, Plan
from .lookahead import emitted, finish


@dataclass(frozen=True, slots=True)
class QueuedCopy:
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


class CopyQueues:
    """Tasks in issue order. Keys below the number of steps are those of steps, of copies from there on; the last piece
    of a copy keeps the key of the whole, so that who waits for it waits for its end."""

    def __init__(self, stays: Sequence[LiveRange], copies: dict[int, QueuedCopy], tasks: dict[int, Task],
                 groups: dict[tuple[int, int], list[int]], steps: int):  # fmt: skip
        self.stays, self.copies, self.tasks, self._groups, self.steps = stays, copies, tasks, groups, steps
        self.order: list[int] = []
        for s in range(steps):
            self.order += groups.get((COPY_IN, s), ())
            self.order.append(s)
            self.order += groups.get((COPY_OUT, s), ())

    def passed(self, passer: int, passed: Sequence[int], cut: int, costs: Costs) -> CopyQueues:
        """The same, but those of `passed` are issued behind `passer`; of the first only what is behind `cut` bytes."""
        copies, tasks, groups = dict(self.copies), dict(self.tasks), dict(self._groups)
        to = self.copies[passer].step
        stream = self.tasks[passer].stream

        def put(key: int, copy: QueuedCopy) -> None:
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
        return CopyQueues(self.stays, copies, tasks, groups, self.steps)

    def _sorted(self, keys: Sequence[int], copies: Mapping[int, QueuedCopy], out: bool) -> list[int]:
        """In the order in which `emit` issues the copies of a step."""

        def place(key: int):
            c = copies[key]
            stay = self.stays[c.stay]
            return (c.step != c.made, c.made, stay.last, c.stay) if out else (stay.first, c.stay)

        return sorted(keys, key=place)

    def live_ranges(self) -> list[LiveRange]:
        """The residences with their copies as they are now."""
        pieces: dict[tuple[int, bool], list[QueuedCopy]] = {}
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


def copy_queues_of(plan: Plan, stays: Sequence[LiveRange], offsets: Sequence[int], costs: Costs) -> CopyQueues:
    """The queues of a plan whose copies are whole; stays, offsets: its residences."""
    made = emitted(plan.program, plan.buffers, stays, offsets, plan.paging)
    steps, seconds = len(plan.program.steps), step_seconds(plan, costs)
    needed = _needed(made.ops, made.after)
    hosted = {a.buffer for step in plan.program.steps if step.host for a in step.accesses}
    left = {op.id for op in plan.carried_over}
    key = {op.id: op.step if op.place is None else steps + op.id for op in made.ops}
    at = {(COPY_IN, r.buffer, r.issue): i for i, r in enumerate(stays) if r.fetched}
    at |= {(COPY_OUT, r.buffer, r.written): i for i, r in enumerate(stays) if r.saved}
    copies: dict[int, QueuedCopy] = {}
    tasks: dict[int, Task] = {}
    groups: dict[tuple[int, int], list[int]] = {}
    for op, after in zip(made.ops, made.after, strict=True):
        k, keys = key[op.id], tuple(key[a] for a in after if made.ops[a].stream != HOST)
        if op.place is None:
            tasks[k] = Task(k, HOST if op.kind is OpKind.HOST else COMPUTE, seconds[op.step], 0.0, keys)
            continue
        i, out, buffer = at[op.stream, op.place.buffer, op.step], op.kind is OpKind.OUT, plan.buffers[op.place.buffer]
        # who makes the next value there waits for it; or it would not be at the front, where it need not be made
        fixed = (not out and buffer.id in hosted) or op.id in left
        copies[k] = QueuedCopy(
            i, out, op.step, op.step, needed.get(op.id, steps), buffer.nbytes, fixed=fixed, whole=bool(buffer.halved)
        )
        tasks[k] = copy_task(k, op.stream, 0 if op.id in left else buffer.copied, keys, costs.machine)
        groups.setdefault((op.stream, op.step), []).append(k)
    return CopyQueues(stays, copies, tasks, groups, steps)


def _needed(ops: Sequence[Op], after: Sequence[frozenset[int]]) -> dict[int, int]:
    """Copy -> the first step at which somebody must come after it, by ids."""
    found: dict[int, int] = {}
    for op, others in zip(ops, after, strict=True):
        for a in others:
            found[a] = min(found.get(a, op.step), op.step)
    return found


UNIT = 2 << 20  # bytes; copies are cut at multiples of it
LEAST = 16 << 20  # bytes of a piece: each costs what a copy does beside its bytes
WORK = 2_000_000  # times that an operation's time is worked out anew; then what was found so far is taken
TRIES = 4  # copies that are tried for a step that waits
CHAIN = 64  # copies behind each other that are looked at for one
EPSILON = 1e-7  # seconds; less is no gain, and no waiting


class _Times:
    """When every task of `queues` runs; before the task `since` of the order as in `known`."""

    def __init__(self, queues: CopyQueues, known: _Times | None = None):
        order, since = queues.order, 0
        if known is not None:
            old = known.queues.order
            since = next(
                (i for i, (a, b) in enumerate(zip(order, old, strict=False)) if a != b), min(len(order), len(old))
            )
        self.queues, self.worked = queues, len(order) - since
        size = max(queues.tasks) + 1
        self.start = [0.0] * size if known is None else known.start + [0.0] * (size - len(known.start))
        self.end = [0.0] * size if known is None else known.end + [0.0] * (size - len(known.end))
        self.free: list[tuple[float, ...]] = [] if known is None else known.free[:since]
        free = [0.0] * 4
        if known is not None and since:
            last = queues.tasks[order[since - 1]]
            free = list(known.free[since - 1])
            free[last.stream] = known.end[last.key]
        rest = order[since:]
        tasks, start, before = queues.tasks, self.start, self.free
        for key, (begin, was) in zip(rest, follow([tasks[k] for k in rest], self.end, free), strict=True):
            start[key] = begin
            before.append(was)
        self.seconds = max(free)

    def stalls(self) -> list[tuple[float, int]]:
        """(seconds, the last copy that is waited for) of the steps that wait, and of the end."""
        found, tasks, end = [], self.queues.tasks, self.end
        for key, free in zip(self.queues.order, self.free, strict=True):
            if key < self.queues.steps and tasks[key].after:
                late = self.start[key] - max(free[COMPUTE], free[HOST])
                if late > EPSILON:
                    found.append((late, max(tasks[key].after, key=end.__getitem__)))
        last = max(self.queues.order, key=end.__getitem__, default=0)
        return sorted(found, reverse=True) + ([(0.0, last)] if last >= self.queues.steps else [])

    @cached_property
    def lanes(self) -> tuple[dict[int, list[int]], dict[int, int], dict[int, float]]:
        """(the copies of each queue in order, where each stands there, when each could begin at the earliest)."""
        queues, end, lanes, place, ready = self.queues, self.end, {}, {}, {}
        for key, free in zip(queues.order, self.free, strict=True):
            if key >= queues.steps:
                task = queues.tasks[key]
                lane = lanes.setdefault(task.stream, [])
                place[key] = len(lane)
                lane.append(key)
                ready[key] = max(free[HOST], max(map(end.__getitem__, task.after), default=0.0))
        return lanes, place, ready


def with_copies_reordered(plan: Plan, costs: Costs) -> Plan:
    """The plan, of copies that are whole, with those put off and cut that let others pass to its gain; with its
    predicted times."""
    times = time_plan(plan, costs)
    plan = replace(plan, seconds=times.seconds, stall=times.stall)
    if not plan.copies:
        return plan
    found = live_ranges_of(plan)
    stays, offsets = [stay for stay, _ in found], tuple(offset for _, offset in found)
    best = _Search(copy_queues_of(plan, stays, offsets, costs), costs).run()
    if not best.changed:
        return plan
    packing = Packing(offsets, plan.arena_bytes, plan.live_bytes, plan.paging)
    made = finish(plan.program, plan.buffers, best.times.queues.live_ranges(), packing, plan.order)
    times = time_plan(made, costs)
    return replace(made, seconds=times.seconds, stall=times.stall, rules=plan.rules, how=plan.how)


class _Search:
    """Lets copies pass that are waited for, those that are waited for longest first, as long as that gains."""

    def __init__(self, queues: CopyQueues, costs: Costs):
        self._costs, self._work = costs, WORK
        self.times = _Times(queues)
        self.changed = False

    def run(self) -> _Search:
        gained = True
        while gained and self._work > 0:
            gained = False
            for _, blamed in self.times.stalls():
                while blamed in self.times.queues.copies and self._work > 0 and self._pass_one(blamed):
                    gained = self.changed = True
        return self

    def _pass_one(self, blamed: int) -> bool:
        """Let the copy that is blamed, or one that it waits for, pass others. Whether that gained."""
        lanes = self.times.lanes
        for tried, passer in enumerate(self._waiting(blamed, *lanes)):
            if tried == TRIES or self._work <= 0:
                break
            queues = self._passed(passer, *lanes)
            if queues is None:
                continue
            times = _Times(queues, self.times)
            self._work -= times.worked
            if self._gains(times):
                self.times = times
                return True
        return False

    def _gains(self, times: _Times) -> bool:
        return times.seconds < self.times.seconds - EPSILON

    def _waiting(self, key: int, lanes, place, ready) -> Iterator[int]:
        """Copies that could have begun before they did, on the way back from one to what it waited for."""
        queues, start = self.times.queues, self.times.start
        for _ in range(CHAIN):
            if key not in queues.copies:
                return
            if start[key] > ready[key] + EPSILON:
                yield key
                key = lanes[queues.tasks[key].stream][place[key] - 1]
            elif queues.tasks[key].after:
                key = max(queues.tasks[key].after, key=self.times.end.__getitem__)
            else:
                return

    def _passed(self, key: int, lanes, place, ready) -> CopyQueues | None:
        """The queues where a copy stands before those that are wanted later, from when on it could begin; or None."""
        queues, times, moment = self.times.queues, self.times, ready[key]
        lane, at = lanes[queues.tasks[key].stream], place[key]
        copy, to = queues.copies[key], at
        if copy.out and copy.step != copy.made:
            return None  # behind what is issued there with it
        while to and times.end[lane[to - 1]] > moment + EPSILON:
            other = queues.copies[lane[to - 1]]
            last = other.wanted - 1 if other.out else other.wanted
            if other.fixed or other.wanted <= copy.wanted or other.step >= copy.step or last < copy.step:
                break
            to -= 1
        cut = 0
        if to < at and times.start[lane[to]] < moment - EPSILON:  # it runs by then
            cut = self._cut(lane[to], moment)
            to += cut == 0
        return queues.passed(key, lane[to:at], cut, self._costs) if to < at else None

    def _cut(self, key: int, moment: float) -> int:
        """After how many bytes a copy is cut that runs at a moment; 0: it is not."""
        copy, start = self.times.queues.copies[key], self.times.start[key]
        share = (moment - start) / (self.times.end[key] - start)
        cut = max(-int(-share * copy.nbytes // UNIT) * UNIT, LEAST)
        return 0 if copy.whole or copy.nbytes - cut < LEAST else cut
