"""Plan by predicted time what stays on the device, is copied or is rematerialized, within a memory limit. Pure.

For each set of rules (`search.py` proposes them) `evict.py` decides evictions; `_lay_out` then starts
prefetches early enough for the link to hide them, holds memory until copies out are done, and packs offsets;
`../cost/timing.py` predicts the plan's time. The fastest plan wins.

The effort is counted in steps followed, not in seconds, so that every run finds the same plan. It is bounded by the
time that a better plan could still save: a net whose runs take a millisecond is planned at once.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace

from ..cost.machine import Costs
from ..cost.timing import time_plan
from ..layout.inplace_reuse import chains, hoped, inplace_reuses
from ..layout.packing import Lifetime, Stretch, pack, pack_within
from ..layout.paging import paged, paged_within, taken_bytes
from ..plan.live_ranges import LiveRange
from ..plan.plan import Plan
from ..plan.rules import Constraints, DoesNotFit, Evictions, Rules
from ..program import Buffer, Program, Step
from ..remat.candidates import RematCandidates, ordered, verify_remat
from ..remat.checkpoints import CheckpointCandidates
from ..remat.cost import RematCost
from .carry_over import with_carry_over
from .evict import EvictionPass
from .lookahead import finish, live_ranges, make_plan, refuse_impossible, spread
from .search import Search

MARGIN = 1.1  # factor on predicted copy times when memory is held for copies
TRIES = 6  # eviction passes for one set of rules, with less memory each, until packing fits
ENOUGH = 9_000_000  # sum of (tries x steps squared) after which no more rules are tried
PRUNED = 0.5  # share of a try's work that counts where no plan came of it
TIGHT = 1.3  # factor on the seconds of the steps alone: slower plans get a larger budget
FEW = 600  # steps: a program of this length gets twice the budget then, shorter ones up to four times
MOST = 40  # most sets of rules tried
EACH = 12  # steps of the program per set of rules; as many as are given are tried in any case
WORTH = 6_000_000  # steps followed, over all tries, per second that a better plan could save in a run
CLOSE = 1.01  # factor on the seconds of the steps alone: a plan as fast as this ends the search
HOPE = 0.25  # share of the stall predicted by the eviction pass that is taken as a lower bound
STAYS = "nothing has to leave"  # `Plan.rules` of a plan without evictions
LESS = 0.95  # factor on the memory from try to try


def optimise(
    program: Program,
    buffers: Mapping[int, Buffer],
    *,
    limit: int | None,
    costs: Costs,
    remats: Mapping[int, Step],
    scratch: frozenset[int],
    rules: Sequence[Rules],
    constraints: Constraints | None = None,
    ahead: int | None = None,
    page: int | None = None,
) -> Plan:
    """Return the plan with the least predicted time.

    Args:
        buffers: managed buffers by id.
        limit: bytes of the arena; None: no limit.
        costs: seconds of steps, of rematerialization and of copies.
        remats: index of a forward step -> the step that rematerializes its values.
        scratch: ids of all buffers, managed or not, whose content never outlives a step.
        rules: sets of rules to try first.
        constraints: buffers never copied, and steps that rematerialize by request; None: none.
        ahead: most steps that a prefetch comes before its use; None: as many as it takes.
        page: bytes of the arena's pages; None: the arena is contiguous.

    Raises:
        OutOfDeviceMemory: prefetch on demand does not fit either.
    """
    constraints = constraints or Constraints()
    can = RematCandidates(program, remats, scratch, constraints.again)
    refuse_impossible(program, buffers, limit, hoped(program, buffers, can))
    checkpointing = CheckpointCandidates(can, costs, {b: buffer.nbytes for b, buffer in buffers.items()})
    remat_cost = RematCost(can, buffers, {b: taken_bytes(buffer.nbytes, page) for b, buffer in buffers.items()}, costs)
    search, work, followed, alone = Search(rules, can, costs), 0, 0, sum(costs.steps)
    least = ENOUGH // min(MOST, max(len(rules), len(program.steps) // EACH))  # least work counted for one set of rules
    more = min(4.0, 1 + (FEW / max(1, len(program.steps))) ** 2)  # factor on the budget where plans are slow
    while search.best is None or (
        search.best.seconds > CLOSE * alone
        and work < ENOUGH * (more if search.best.seconds > TIGHT * alone else 1)
        and followed < WORTH * (search.best.seconds - alone)
    ):
        which = search.next()
        if which is None:
            break
        below = math.inf if search.best is None else search.best.seconds
        plan, tries = _with_rules(
            program, buffers, limit, costs, can, which, constraints, ahead, page, checkpointing, remat_cost, below
        )
        search.tell(which, plan)
        followed += tries * len(program.steps)
        work += int(tries * len(program.steps) ** 2 * (PRUNED if plan is None else 1)) + least
        if plan is not None and plan.rules == STAYS:
            break
    best = search.best
    if best is None:
        ahead = 1 if ahead is None else min(1, ahead)
        last = make_plan(program, buffers, limit=limit, ahead=ahead, uncopied=constraints.uncopied, page=page)
        best = timed(last, costs)
    return best


def _with_rules(
    program: Program,
    buffers,
    limit: int | None,
    costs: Costs,
    can: RematCandidates,
    rules: Rules,
    constraints: Constraints,
    ahead: int | None,
    page: int | None,
    checkpointing: CheckpointCandidates,
    remat_cost: RematCost,
    below: float,
):
    """Return (plan, number of tries); the plan is None where these rules give none faster than `below` seconds."""
    sizes = remat_cost.sizes
    room = sum(sizes.values()) if limit is None else int(limit * rules.room)
    checkpoints = checkpointing.checkpoints(round(rules.density * len(can.valid_until) / 100))
    for tries in range(1, TRIES + 1):
        try:
            found = EvictionPass(
                program, buffers, room, costs, can, rules, constraints, sizes, checkpoints, remat_cost
            ).run()
        except DoesNotFit:
            return None, tries
        if sum(_seconds(found, costs)) + HOPE * found.stall >= below:
            return None, tries
        plan = _lay_out(program, buffers, found, limit, costs, can, ahead, page)
        if isinstance(plan, Plan):
            if found.evicted and plan.paging is None:  # the arena takes all of the limit
                plan = replace(plan, arena_bytes=limit)
            plan = replace(plan, rules=str(rules) if found.evicted else STAYS, how=rules)
            return timed(plan, costs), tries
        room = int(room * LESS) if plan is None else room - plan
    return None, TRIES


def _seconds(found: Evictions, costs: Costs) -> list[float]:
    """Return seconds of each step as it runs, rematerialization included."""
    return [costs.again[s] if again else costs.steps[s] for s, again in found.order]


def timed(plan: Plan, costs: Costs) -> Plan:
    """Return the plan with its predicted times."""
    times = time_plan(plan, costs)
    return replace(plan, seconds=times.seconds, stall=times.stall)


def _lay_out(
    program: Program,
    buffers,
    found: Evictions,
    limit,
    costs: Costs,
    can: RematCandidates,
    ahead: int | None,
    page: int | None,
) -> Plan | int | None:
    """Return the plan, or the bytes by which it exceeds `limit`; None: it exceeds it by an unknown amount."""
    result = ordered(program, can.remats, found.order)
    if result.rematerialized and not can.same:  # else `choose.py` checks them against the original program
        verify_remat(program, result, can.remats, can.scratch)
    seconds = _seconds(found, costs)
    ranges = live_ranges(result.program, buffers, found.left)
    groups = chains(ranges, inplace_reuses(result.program, buffers))
    wished = _wishes(ranges, buffers, seconds, costs, ahead)
    wished = [_joined(wished[g[0]], wished[g[-1]]) for g in groups]
    wished, ties = with_carry_over(result.program, buffers, ranges, groups, wished, seconds, costs.machine)
    if limit is None:
        lives = [Lifetime(w.start, w.end, w.must.size) for w in wished]
        packing = pack(lives) if page is None else paged(lives, page)
    else:
        within = (
            pack_within(wished, limit, ties)
            if page is None
            else paged_within(wished, limit, page, found.evicted > 0, ties)
        )
        if within is None or isinstance(within, int):
            return within
        lives, packing = within
    for g, life in zip(groups, lives, strict=True):
        ranges[g[0]] = replace(ranges[g[0]], issue=life.start)
        ranges[g[-1]] = replace(ranges[g[-1]], until=life.end)
    return finish(result.program, buffers, ranges, spread(packing, groups, len(ranges)), result.order)


def _joined(first: Stretch, last: Stretch) -> Stretch:
    """Return the stretch of a group of live ranges that reuse memory in place, from its first to its last."""
    return Stretch(Lifetime(first.must.start, last.must.end, first.must.size), first.start, last.end)


def _wishes(ranges: Sequence[LiveRange], buffers, seconds: Sequence[float], costs: Costs, ahead) -> list[Stretch]:
    """Return lifetimes with time for copies: memory is held until a copy out is done, and from when the link must start
    a copy in so that it is done before its use. seconds: of each step."""
    begin, machine = [0.0], costs.machine
    for t in seconds:
        begin.append(begin[-1] + t)
    starts, ends = [r.first for r in ranges], [r.last for r in ranges]
    free = 0.0
    for written, _, i in sorted((r.written, r.last, i) for i, r in enumerate(ranges) if r.saved):
        free = max(free, begin[written + 1]) + MARGIN * machine.copy_seconds(buffers[ranges[i].buffer].copied, True)
        while ends[i] + 1 < len(seconds) and begin[ends[i] + 1] < free:
            ends[i] += 1
    deadline = begin[-1]
    for first, i in sorted(((r.first, i) for i, r in enumerate(ranges) if r.fetched), reverse=True):
        deadline = min(deadline, begin[first])
        deadline -= MARGIN * machine.copy_seconds(buffers[ranges[i].buffer].copied, False)
        least = ranges[i].earliest if ahead is None else max(ranges[i].earliest, first - ahead)
        while starts[i] > least and begin[starts[i]] > deadline:
            starts[i] -= 1
    return [
        Stretch(Lifetime(r.first, r.last, buffers[r.buffer].nbytes), s, e)
        for r, s, e in zip(ranges, starts, ends, strict=True)
    ]
