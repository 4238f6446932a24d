"""Reorder the two copy queues of a plan, in and out, to shorten the predicted time. Pure.

A copy that a step waits for may overtake copies before it that are needed later; a copy that already runs by then is
cut in two pieces, and only its rest is postponed. Copies only move back, to the step at which the overtaking copy is
issued. So the memory that a copy needs is still free when it is issued, and all that must be checked is that nothing
needs the copy before then.

Order of parts: `CopyQueues` (an immutable state of both queues), `_Times` (its predicted times), `_Search` (greedy
improvement), `with_copies_reordered` (plan in, plan out). `lowering.py` makes operations of the result.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import NamedTuple

from ..cost.machine import Costs
from ..cost.timing import Task, copy_task, follow, step_seconds, time_plan
from ..layout.packing import Packing
from ..plan.live_ranges import LiveRange, live_ranges_of
from ..plan.plan import COMPUTE, COPY_IN, COPY_OUT, HOST, Op, OpKind, Piece, Plan
from ..rules import SEARCH, SearchBudget
from .lookahead import emitted, finish

LEAST_GAIN = 1e-7  # seconds; shorter gains and waits count as none, so that rounding does not go on for ever


@dataclass(frozen=True, slots=True)
class QueuedCopy:
    """Describe a copy in or out of a live range, or a piece of it.

    Attributes:
        live_range: its index.
        out: device to host.
        step: the step at which it is issued.
        made: the step at which the whole copy was issued before reordering.
        needed_by: the first step that needs the copied value, or the memory that the copy frees.
        nbytes, offset: bytes within the buffer.
        fixed: must not be postponed.
        whole: must not be cut.
    """

    live_range: int
    out: bool
    step: int
    made: int
    needed_by: int
    nbytes: int
    offset: int = 0
    fixed: bool = False
    whole: bool = False


class CopyQueues:
    """Hold the tasks of a plan (steps and copies) in issue order; never changed after it is made.

    Keys below the number of steps are steps, the others copies. The last piece of a copy keeps the key of the whole
    copy, so that tasks that wait for the copy wait for its end.

    Args:
        ranges: live ranges of the plan.
        copies, tasks: by key.
        groups: (stream, step) -> keys of the copies issued there, in order.
        steps: number of steps.
        old: queues that differ in nothing but the copies issued at steps `first` to `last`; None: there are none.

    Attributes:
        order: keys in issue order.
        same: number of keys at the start of `order` that are the same as in `old`, at least.
    """

    def __init__(
        self,
        ranges: Sequence[LiveRange],
        copies: dict[int, QueuedCopy],
        tasks: dict[int, Task],
        groups: dict[tuple[int, int], list[int]],
        steps: int,
        old: CopyQueues | None = None,
        first: int = 0,
        last: int = 0,
    ):
        self.ranges, self.copies, self.tasks, self._groups, self.steps = ranges, copies, tasks, groups, steps
        if old is None:
            self.same, self.order = 0, self._ordered(0, steps - 1)
        else:
            self.same = old._ends(first - 1)
            self.order = old.order[: self.same] + self._ordered(first, last) + old.order[old._ends(last) :]

    def _ordered(self, first: int, last: int) -> list[int]:
        """Return the keys of steps `first` to `last` in issue order, with the copies issued there."""
        order, groups = list[int](), self._groups
        for s in range(first, last + 1):
            order += groups.get((COPY_IN, s), ())
            order.append(s)
            order += groups.get((COPY_OUT, s), ())
        return order

    def _ends(self, s: int) -> int:
        """Return how many keys the order has up to step `s` and the copies out issued after it; 0 for s < 0."""
        return 0 if s < 0 else self.order.index(s) + 1 + len(self._groups.get((COPY_OUT, s), ()))

    def overtake(self, overtaking: int, overtaken: Sequence[int], cut: int, costs: Costs) -> CopyQueues:
        """Return queues in which the copies `overtaken` are issued after `overtaking`.

        cut: bytes of the first of `overtaken` that keep their place; only the rest moves. 0: all of it moves."""
        copies, tasks, groups = dict(self.copies), dict(self.tasks), dict(self._groups)
        to = self.copies[overtaking].step
        stream = self.tasks[overtaking].stream
        since = min(self.copies[key].step for key in overtaken)

        def put(key: int, copy: QueuedCopy) -> None:
            if copies[key].nbytes != copy.nbytes:
                tasks[key] = copy_task(key, stream, copy.nbytes, tasks[key].after, costs.machine)
            copies[key] = copy

        target = (stream, to)
        for key in overtaken:
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
            later = next((k for k in groups[target] if copies[k].live_range == copy.live_range), None)
            if later is None:
                put(key, replace(copy, step=to))
                groups[target] = self._sorted([*groups[target], key], copies, copy.out)
            else:  # join two pieces at one step
                del copies[key]
                put(later, replace(copies[later], nbytes=copy.nbytes + copies[later].nbytes, offset=copy.offset))
        return CopyQueues(self.ranges, copies, tasks, groups, self.steps, self, since, to)

    def _sorted(self, keys: Sequence[int], copies: Mapping[int, QueuedCopy], out: bool) -> list[int]:
        """Return `keys`, copies of one step, in the order in which `emit` issues them."""

        def place(key: int) -> tuple[int, ...]:
            c = copies[key]
            live_range = self.ranges[c.live_range]
            return (
                (c.step != c.made, c.made, live_range.last, c.live_range) if out else (live_range.first, c.live_range)
            )

        return sorted(keys, key=place)

    def live_ranges(self) -> list[LiveRange]:
        """Return the live ranges with their copies as they are in these queues."""
        pieces: dict[tuple[int, bool], list[QueuedCopy]] = {}
        for copy in self.copies.values():
            pieces.setdefault((copy.live_range, copy.out), []).append(copy)
        found = list(self.ranges)
        for (i, out), mine in pieces.items():
            mine.sort(key=lambda copy: copy.offset)
            made = tuple(Piece(copy.step, copy.nbytes) for copy in mine)
            if out:
                found[i] = replace(found[i], departures=made if len(made) > 1 or made[0].step != mine[0].made else ())
            else:
                found[i] = replace(found[i], issue=made[0].step, arrivals=made if len(made) > 1 else ())
        return found


def copy_queues_of(plan: Plan, ranges: Sequence[LiveRange], offsets: Sequence[int], costs: Costs) -> CopyQueues:
    """Return the queues of a plan whose copies are all whole. ranges, offsets: its live ranges and their offsets."""
    made = emitted(plan.program, plan.buffers, ranges, offsets, plan.paging)
    steps, seconds = len(plan.program.steps), step_seconds(plan, costs)
    needed = _needed(made.ops, made.after)
    hosted = {a.buffer for step in plan.program.steps if step.host for a in step.accesses}
    left = {op.id for op in plan.carried_over}
    key = {op.id: op.step if op.place is None else steps + op.id for op in made.ops}
    at = {(COPY_IN, r.buffer, r.issue): i for i, r in enumerate(ranges) if r.fetched}
    at |= {(COPY_OUT, r.buffer, r.final): i for i, r in enumerate(ranges) if r.saved}
    copies: dict[int, QueuedCopy] = {}
    tasks: dict[int, Task] = {}
    groups: dict[tuple[int, int], list[int]] = {}
    for op, after in zip(made.ops, made.after, strict=True):
        k, keys = key[op.id], tuple(key[a] for a in after if made.ops[a].stream != HOST)
        if op.place is None:
            tasks[k] = Task(k, HOST if op.kind is OpKind.HOST else COMPUTE, seconds[op.step], 0.0, keys)
            continue
        i, out, buffer = at[op.stream, op.place.buffer, op.step], op.kind is OpKind.OUT, plan.buffers[op.place.buffer]
        # a host step that writes the next value waits for the copy in; a carried-over value is skipped only in front
        fixed = (not out and buffer.id in hosted) or op.id in left
        copies[k] = QueuedCopy(
            i,
            out,
            op.step,
            op.step,
            needed.get(op.id, steps),
            buffer.nbytes,
            fixed=fixed,
            whole=bool(buffer.compressed_bytes),
        )
        tasks[k] = copy_task(k, op.stream, 0 if op.id in left else buffer.copied, keys, costs.machine)
        groups.setdefault((op.stream, op.step), []).append(k)
    return CopyQueues(ranges, copies, tasks, groups, steps)


def _needed(ops: Sequence[Op], after: Sequence[frozenset[int]]) -> dict[int, int]:
    """Return, by id of a copy, the first step at which an operation must come after it."""
    found: dict[int, int] = {}
    for op, others in zip(ops, after, strict=True):
        for a in others:
            found[a] = min(found.get(a, op.step), op.step)
    return found


class _Queued(NamedTuple):
    """Hold the copies of every stream in order.

    Attributes:
        order: stream -> its copies.
        position: copy -> index there.
        ready: copy -> second at which it could start, were it not for the copies before it.
    """

    order: dict[int, list[int]]
    position: dict[int, int]
    ready: dict[int, float]


class _Times:
    """Predict when each task of `queues` runs (s), reusing times of the order's prefix that `known` shares.

    known: times of the queues that `queues` were made of; None: nothing is known."""

    def __init__(self, queues: CopyQueues, known: _Times | None = None):
        order, since = queues.order, 0
        if known is not None:
            old, since = known.queues.order, queues.same
            while since < min(len(order), len(old)) and order[since] == old[since]:
                since += 1
        self.queues: CopyQueues = queues
        self.worked = len(order) - since
        size = max(queues.tasks) + 1
        self.start: list[float] = [0.0] * size if known is None else known.start + [0.0] * (size - len(known.start))
        self.end: list[float] = [0.0] * size if known is None else known.end + [0.0] * (size - len(known.end))
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

    def stalls(self, least: float) -> list[tuple[float, int]]:
        """Return (seconds, the copy waited for last), longest first, of steps that wait, then of the end of the run.

        least: seconds; shorter waits count as none."""
        found, tasks, end = [], self.queues.tasks, self.end
        for key, free in zip(self.queues.order, self.free, strict=True):
            if key < self.queues.steps and tasks[key].after:
                late = self.start[key] - max(free[COMPUTE], free[HOST])
                if late > least:
                    found.append((late, max(tasks[key].after, key=end.__getitem__)))
        last = max(self.queues.order, key=end.__getitem__, default=0)
        return sorted(found, reverse=True) + ([(0.0, last)] if last >= self.queues.steps else [])

    @cached_property
    def queued(self) -> _Queued:
        """Return the copies as they are queued."""
        queues, end, queued = self.queues, self.end, _Queued({}, {}, {})
        for key, free in zip(queues.order, self.free, strict=True):
            if key >= queues.steps:
                task = queues.tasks[key]
                queue = queued.order.setdefault(task.stream, [])
                queued.position[key] = len(queue)
                queue.append(key)
                queued.ready[key] = max(free[HOST], max(map(end.__getitem__, task.after), default=0.0))
        return queued


def with_copies_reordered(plan: Plan, costs: Costs, search: SearchBudget = SEARCH) -> Plan:
    """Return the plan with copies reordered and cut where that shortens its predicted time, and with predicted times.

    plan: all its copies are whole."""
    times = time_plan(plan, costs)
    plan = replace(plan, seconds=times.seconds, stall=times.stall)
    if not plan.copies:
        return plan
    found = live_ranges_of(plan)
    ranges, offsets = [r for r, _ in found], tuple(offset for _, offset in found)
    best = _Search(copy_queues_of(plan, ranges, offsets, costs), costs, search).run()
    if not best.changed:
        return plan
    packing = Packing(offsets, plan.arena_bytes, plan.live_bytes, plan.paging)
    made = finish(plan.program, plan.buffers, best.times.queues.live_ranges(), packing, plan.order)
    times = time_plan(made, costs)
    return replace(made, seconds=times.seconds, stall=times.stall, rules=plan.rules, how=plan.how)


class _Search:
    """Move copies that steps wait for forward, longest waits first, as long as the predicted time drops."""

    def __init__(self, queues: CopyQueues, costs: Costs, budget: SearchBudget):
        self._costs, self._budget, self._work = costs, budget, budget.reorder_work
        self.times = _Times(queues)
        self.changed = False

    def run(self) -> _Search:
        """Search until no move saves time or the work is spent."""
        gained = True
        while gained and self._work > 0:
            gained = False
            for _, blamed in self.times.stalls(LEAST_GAIN):
                while blamed in self.times.queues.copies and self._work > 0 and self._move_one(blamed):
                    gained = self.changed = True
        return self

    def _move_one(self, blamed: int) -> bool:
        """Let the copy `blamed`, or one that it waits for, overtake others. Returns whether that saved time."""
        queued = self.times.queued
        copy = self._queued_late(blamed, queued)
        queues = None if copy is None else self._overtake(copy, queued)
        if queues is None:
            return False
        times = _Times(queues, self.times)
        self._work -= times.worked
        gains = times.seconds < self.times.seconds - LEAST_GAIN
        if gains:
            self.times = times
        return gains

    def _queued_late(self, key: int, queued: _Queued) -> int | None:
        """Return the first copy that waited only for its queue, following back from `key` what each waited for."""
        queues, start = self.times.queues, self.times.start
        while key in queues.copies:
            if start[key] > queued.ready[key] + LEAST_GAIN:
                return key
            if not queues.tasks[key].after:
                return None
            key = max(queues.tasks[key].after, key=self.times.end.__getitem__)
        return None

    def _overtake(self, key: int, queued: _Queued) -> CopyQueues | None:
        """Return queues where copy `key` starts as soon as it can, before copies needed later; None: it cannot."""
        queues, times, moment = self.times.queues, self.times, queued.ready[key]
        queue, at = queued.order[queues.tasks[key].stream], queued.position[key]
        copy, to = queues.copies[key], at
        if copy.out and copy.step != copy.made:
            return None  # a postponed copy out is issued after the others of its step
        while to and times.end[queue[to - 1]] > moment + LEAST_GAIN:
            other = queues.copies[queue[to - 1]]
            last = other.needed_by - 1 if other.out else other.needed_by
            if other.fixed or other.needed_by <= copy.needed_by or other.step >= copy.step or last < copy.step:
                break
            to -= 1
        cut = 0
        if to < at and times.start[queue[to]] < moment - LEAST_GAIN:  # that copy is already running
            cut = self._cut(queue[to], moment)
            to += cut == 0
        return queues.overtake(key, queue[to:at], cut, self._costs) if to < at else None

    def _cut(self, key: int, moment: float) -> int:
        """Return bytes of copy `key` to keep in place, so that it ends soon after `moment` (s); 0: do not cut it."""
        copy, start = self.times.queues.copies[key], self.times.start[key]
        share = (moment - start) / (self.times.end[key] - start)
        cut = -int(-share * copy.nbytes // self._budget.piece) * self._budget.piece
        return 0 if copy.whole or copy.nbytes - cut < self._budget.piece else cut
