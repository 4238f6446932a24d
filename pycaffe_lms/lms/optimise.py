"""Plans by predicted time: what stays on the device, what is copied and what is made again, within a limit. Pure.

`evict.py` follows the program with several sets of rules; for each result copies in are laid as late as the link allows
and as early as memory allows, memory of values on their way out is kept until they are through, offsets are packed, and
`timing.py` says how long the plan takes. The fastest plan counts.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from ..errors import OutOfDeviceMemory
from .evict import DoesNotFit, Evictions, Follower, Rules
from .machine import Costs
from .plan import Plan
from .planner import Residence, finish, make_plan, pack_stays, refuse_impossible, residences
from .replays import Replayable, ordered, verify_replays
from .schedule import Buffer, Program, Step
from .timing import time_plan

MARGIN = 1.1  # copies are laid as if they took this much longer than predicted
TRIES = 8  # to pack below the limit


def optimise(
    program: Program,
    buffers: Mapping[int, Buffer],
    *,
    limit: int | None,
    costs: Costs,
    replays: Mapping[int, Step],
    scratch: frozenset[int],
    rules: Sequence[Rules],
) -> Plan:
    """The plan with the least predicted time in an arena of at most `limit` bytes (None: no limit).

    replays: forward steps, by index, that may run once more, and how. scratch: ids of all buffers, managed or not,
    whose content never outlives a step. Raises OutOfDeviceMemory when even on-demand fetching cannot fit.
    """
    refuse_impossible(program, buffers, limit)
    can = Replayable(program, replays, scratch)
    best: Plan | None = None
    for which in rules:
        plan = _with_rules(program, buffers, limit, costs, can, which)
        if plan is not None and (best is None or plan.seconds < best.seconds):
            best = plan
        if plan is not None and not plan.copies and not plan.replayed:
            break  # everything stays
    if best is None:
        if not any(r.copies for r in rules):
            raise OutOfDeviceMemory(
                f"program {program.name} does not fit without copies", needed=(limit or 0) + 1, free=limit or 0,
                fix="let -lms copy too, or raise -lms_budget",
            )  # fmt: skip
        best = _timed(make_plan(program, buffers, limit=limit, ahead=1), costs)
    if limit is not None and (best.copies or best.replayed):
        best = replace(best, arena_bytes=max(best.arena_bytes, limit))  # what is there is used
    return best


def _with_rules(program: Program, buffers, limit: int | None, costs: Costs, can: Replayable, rules: Rules):
    """A plan made by these rules; None: there is none."""
    everything = sum(b.nbytes for b in buffers.values())
    room = everything if limit is None else limit
    for _ in range(TRIES):
        try:
            found = Follower(program, buffers, room, costs, can, rules).run()
        except DoesNotFit:
            return None
        plan = _lay_out(program, buffers, found, room, limit, costs, can)
        if limit is None or plan.arena_bytes <= limit:
            return _timed(plan, costs)
        room = int(room * max(0.9, 0.995 * limit / plan.arena_bytes))
    return None


def _timed(plan: Plan, costs: Costs) -> Plan:
    timed = time_plan(plan, costs)
    return replace(plan, seconds=timed.seconds, stall=timed.stall)


def _lay_out(program: Program, buffers, found: Evictions, room: int, limit, costs: Costs, can: Replayable) -> Plan:
    result = ordered(program, can.replays, found.order)
    if result.replayed:
        verify_replays(program, result, can.replays, can.scratch)
    seconds = [costs.again[s] if again else costs.steps[s] for s, again in result.order]
    stays = residences(result.program, buffers, found.left)
    stays = _Layout(stays, buffers, seconds, room, costs).stays
    packing = pack_stays(stays, buffers, limit)
    return finish(result.program, buffers, stays, packing, result.order)


class _Layout:
    """Residences with copies laid over time. `stays`: the result."""

    def __init__(self, stays: list[Residence], buffers, seconds: Sequence[float], room: int, costs: Costs):
        self.size = {b: buffer.nbytes for b, buffer in buffers.items()}
        self.room, self.machine, n = room, costs.machine, len(seconds)
        self.begin = [0.0] * (n + 1)
        for s, t in enumerate(seconds):
            self.begin[s + 1] = self.begin[s] + t
        self.load = [0] * (n + 1)
        for r in stays:
            for s in range(r.issue, r.until + 1):
                self.load[s] += self.size[r.buffer]
        self.stays = list(stays)
        self._drain()
        self._fetch()

    def _fits(self, size: int, s: int) -> bool:
        return self.load[s] + size <= self.room

    def _drain(self) -> None:
        """Memory of a value that is copied out is free when the copy is through."""
        saved = sorted((r.written, r.last, i) for i, r in enumerate(self.stays) if r.saved)
        free = 0.0
        for written, _, i in saved:
            r = self.stays[i]
            size = self.size[r.buffer]
            free = max(free, self.begin[written + 1]) + MARGIN * self.machine.copy_seconds(size, True)
            until = r.until
            while until + 2 < len(self.begin) and self.begin[until + 1] < free and self._fits(size, until + 1):
                until += 1
                self.load[until] += size
            self.stays[i] = replace(r, until=until)

    def _fetch(self) -> None:
        """Copies in start so that each is through when it is wanted, or as soon as there is memory."""
        fetched = sorted(((r.first, i) for i, r in enumerate(self.stays) if r.fetched), reverse=True)
        deadline = self.begin[-1]
        laid: list[tuple[int, int, int]] = []
        for first, i in fetched:
            r = self.stays[i]
            deadline = min(deadline, self.begin[first])
            deadline -= MARGIN * self.machine.copy_seconds(self.size[r.buffer], False)
            s = r.first
            while s > r.earliest and self.begin[s] > deadline:
                s -= 1
            laid.append((first, s, i))
        for first, want, i in reversed(laid):
            r = self.stays[i]
            size, s = self.size[r.buffer], first
            while s > want and self._fits(size, s - 1):
                s -= 1
                self.load[s] += size
            self.stays[i] = replace(r, issue=s)
