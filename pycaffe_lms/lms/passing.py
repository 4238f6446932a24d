"""Urgent copies pass large ones that are not: a pass over a plan, where its predicted time falls. Pure.

Copies of one direction run in the order in which they are issued. One that a step waits for may stand behind others
that are wanted later, the first of which runs, or waits itself, when it could begin. These are put off until behind it,
and what runs is cut there: its second piece follows. Who is on the device when, and where, stays as it is.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import cached_property

from .arena import Packing
from .machine import Costs
from .plan import COMPUTE, HOST, Plan
from .planner import finish
from .queues import Queues, queues_of
from .stays import residences_of
from .timing import follow, time_plan

UNIT = 2 << 20  # bytes; copies are cut at multiples of it
LEAST = 16 << 20  # bytes of a piece: each costs what a copy does beside its bytes
WORK = 2_000_000  # times that an operation's time is worked out anew; then what was found so far is taken
TRIES = 4  # copies that are tried for a step that waits
CHAIN = 64  # copies behind each other that are looked at for one
EPSILON = 1e-7  # seconds; less is no gain, and no waiting


class _Times:
    """When every task of `queues` runs; before the task `since` of the order as in `known`."""

    def __init__(self, queues: Queues, known: _Times | None = None):
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


def with_passes(plan: Plan, costs: Costs) -> Plan:
    """The plan, of copies that are whole, with those put off and cut that let others pass to its gain; with its
    predicted times."""
    times = time_plan(plan, costs)
    plan = replace(plan, seconds=times.seconds, stall=times.stall)
    if not plan.copies:
        return plan
    found = residences_of(plan)
    stays, offsets = [stay for stay, _ in found], tuple(offset for _, offset in found)
    best = _Search(queues_of(plan, stays, offsets, costs), costs).run()
    if not best.changed:
        return plan
    packing = Packing(offsets, plan.arena_bytes, plan.live_bytes, plan.paging)
    made = finish(plan.program, plan.buffers, best.times.queues.residences(), packing, plan.order)
    times = time_plan(made, costs)
    return replace(made, seconds=times.seconds, stall=times.stall, rules=plan.rules, how=plan.how)


class _Search:
    """Lets copies pass that are waited for, those that are waited for longest first, as long as that gains."""

    def __init__(self, queues: Queues, costs: Costs):
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

    def _passed(self, key: int, lanes, place, ready) -> Queues | None:
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
