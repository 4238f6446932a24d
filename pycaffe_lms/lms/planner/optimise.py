"""Plans by predicted time: what stays on the device, what is copied and what is made again, within a limit. Pure.

`evict.py` follows the program with several sets of rules (`search.py` says which); for each result copies in are laid
as late as the link allows and as early as memory allows, memory of values on their way out is kept until they are
through, offsets are packed, and `timing.py` says how long the plan takes. The fastest plan counts.

How long is searched is counted in steps that are followed, never in seconds, so that a plan is the same in every run:
no more than are worth the time that a run could still lose. A net whose runs take a millisecond is planned at once.
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

MARGIN = 1.1  # copies are laid as if they took this much longer than predicted
TRIES = 6  # to pack below the limit
ENOUGH = 9_000_000  # tries, times the number of steps squared: after that, no more rules are tried
PRUNED = 0.5  # of a try, where it is given up before offsets are sought
TIGHT = 1.3  # times the seconds of the steps alone: a plan that takes longer is worth more tries
FEW = 600  # steps of a program that gets twice the tries then; shorter ones get up to four times as many
MOST = 40  # rules that are tried, also in a program that is soon planned
EACH = 12  # steps for one of them; the rules that are given are tried in any case
WORTH = 6_000_000  # steps that are followed, in all tries, for each second of a run that a better plan could save
CLOSE = 1.01  # times the seconds of the steps alone: a plan that is as fast as this is good enough
HOPE = 0.25  # of the waiting that is predicted while rules are followed: so much there will be
STAYS = "nothing has to leave"
LESS = 0.95  # of the memory, from try to try


def optimise(
    program: Program,
    buffers: Mapping[int, Buffer],
    *,
    limit: int | None,
    costs: Costs,
    replays: Mapping[int, Step],
    scratch: frozenset[int],
    rules: Sequence[Rules],
    constraints: Constraints | None = None,
    ahead: int | None = None,
    page: int | None = None,
) -> Plan:
    """The plan with the least predicted time in an arena of at most `limit` bytes (None: no limit).

    replays: forward steps, by index, that may run once more, and how. scratch: ids of all buffers, managed or not,
    whose content never outlives a step. wishes: see there. ahead: most steps that a copy in comes before
    the step that wants it; None: as many as it takes. Raises OutOfDeviceMemory when even on-demand fetching cannot fit.
    """
    constraints = constraints or Constraints()
    can = RematCandidates(program, replays, scratch, constraints.again)
    refuse_impossible(program, buffers, limit, hoped(program, buffers, can))
    narrows = CheckpointCandidates(can, costs, {b: buffer.nbytes for b, buffer in buffers.items()})
    remat_cost = RematCost(can, buffers, {b: taken_bytes(buffer.nbytes, page) for b, buffer in buffers.items()}, costs)
    search, work, followed, alone = Search(rules, can, costs), 0, 0, sum(costs.steps)
    least = ENOUGH // min(MOST, max(len(rules), len(program.steps) // EACH))  # of one try, be it as short as it may
    more = min(4.0, 1 + (FEW / max(1, len(program.steps))) ** 2)  # times the work, where plans come out slow
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
            program, buffers, limit, costs, can, which, constraints, ahead, page, narrows, remat_cost, below
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


def _with_rules(program: Program, buffers, limit: int | None, costs: Costs, can: RematCandidates, rules: Rules,
                constraints: Constraints, ahead: int | None, page: int | None, narrows: CheckpointCandidates,
                remat_cost: RematCost, below: float):  # fmt: skip
    """(a plan made by these rules, or None where there is none that takes less than `below` seconds; how often it was
    tried)."""
    sizes = remat_cost.sizes
    room = sum(sizes.values()) if limit is None else int(limit * rules.room)
    checkpoints = narrows.checkpoints(round(rules.density * len(can.valid_until) / 100))
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
            if found.evicted and plan.paging is None:  # what is there is used: a larger limit, no smaller arena
                plan = replace(plan, arena_bytes=limit)
            plan = replace(plan, rules=str(rules) if found.evicted else STAYS, how=rules)
            return timed(plan, costs), tries
        room = int(room * LESS) if plan is None else room - plan
    return None, TRIES


def _seconds(found: Evictions, costs: Costs) -> list[float]:
    return [costs.again[s] if again else costs.steps[s] for s, again in found.order]


def timed(plan: Plan, costs: Costs) -> Plan:
    """The plan with its predicted times."""
    times = time_plan(plan, costs)
    return replace(plan, seconds=times.seconds, stall=times.stall)


def _lay_out(
    program: Program, buffers, found: Evictions, limit, costs: Costs, can: RematCandidates, ahead: int | None,
    page: int | None,
) -> Plan | int | None:  # fmt: skip
    """The plan; or how many bytes it is too large by; None: by some."""
    result = ordered(program, can.replays, found.order)
    if result.replayed and not can.same:  # else the values are followed where the original program is known
        verify_remat(program, result, can.replays, can.scratch)
    seconds = _seconds(found, costs)
    stays = live_ranges(result.program, buffers, found.left)
    groups = chains(stays, inplace_reuses(result.program, buffers))
    wished = _wishes(stays, buffers, seconds, costs, ahead)
    wished = [_joined(wished[g[0]], wished[g[-1]]) for g in groups]
    wished, ties = with_carry_over(result.program, buffers, stays, groups, wished, seconds, costs.machine)
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
        stays[g[0]] = replace(stays[g[0]], issue=life.start)
        stays[g[-1]] = replace(stays[g[-1]], until=life.end)
    return finish(result.program, buffers, stays, spread(packing, groups, len(stays)), result.order)


def _joined(first: Stretch, last: Stretch) -> Stretch:
    return Stretch(Lifetime(first.must.start, last.must.end, first.must.size), first.start, last.end)


def _wishes(stays: Sequence[LiveRange], buffers, seconds: Sequence[float], costs: Costs, ahead) -> list[Stretch]:
    """Lifetimes with time for copies: out, memory is kept until the copy is through; in, it is there as early as the
    link must begin, so that every copy is through when it is wanted."""
    begin, machine = [0.0], costs.machine
    for t in seconds:
        begin.append(begin[-1] + t)
    starts, ends = [r.first for r in stays], [r.last for r in stays]
    free = 0.0
    for written, _, i in sorted((r.written, r.last, i) for i, r in enumerate(stays) if r.saved):
        free = max(free, begin[written + 1]) + MARGIN * machine.copy_seconds(buffers[stays[i].buffer].copied, True)
        while ends[i] + 1 < len(seconds) and begin[ends[i] + 1] < free:
            ends[i] += 1
    deadline = begin[-1]
    for first, i in sorted(((r.first, i) for i, r in enumerate(stays) if r.fetched), reverse=True):
        deadline = min(deadline, begin[first])
        deadline -= MARGIN * machine.copy_seconds(buffers[stays[i].buffer].copied, False)
        least = stays[i].earliest if ahead is None else max(stays[i].earliest, first - ahead)
        while starts[i] > least and begin[starts[i]] > deadline:
            starts[i] -= 1
    return [
        Stretch(Lifetime(r.first, r.last, buffers[r.buffer].nbytes), s, e)
        for r, s, e in zip(stays, starts, ends, strict=True)
    ]
