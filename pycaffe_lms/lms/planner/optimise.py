"""Plan by predicted time what stays on the device, is copied or is rematerialized, within a memory limit. Pure.

For each set of rules (`../rules.py` lists them) `evict.py` decides evictions; `_lay_out` then starts prefetches early
enough for the link to hide them, holds memory until copies out are done, and packs offsets; `../cost/timing.py`
predicts the plan's time. The fastest plan wins.

The effort is counted in steps followed, not in seconds, so that every run finds the same plan. It is bounded by the
time that a better plan could still save: a net whose runs take a millisecond is planned at once.
"""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate

from ...errors import OutOfDeviceMemory, human_bytes
from ..cost.machine import Costs
from ..cost.timing import time_plan
from ..layout.inplace_reuse import chains, hoped, inplace_reuses
from ..layout.packing import Lifetime, Stretch, pack, pack_within
from ..layout.paging import paged, paged_within, taken_bytes
from ..plan.live_ranges import LiveRange
from ..plan.plan import Plan
from ..program import Buffer, Program, Step
from ..remat.candidates import CheckpointCandidates, Ordered, RematCandidates, ordered, verify_remat
from ..remat.cost import RematCost
from ..rules import SEARCH, Rules, SearchBudget
from .carry_over import with_carry_over
from .evict import Constraints, DoesNotFit, EvictionPass, Evictions
from .lookahead import finish, live_ranges, make_plan, refuse_impossible, spread

STAYS = "nothing is copied or rematerialized"  # `Plan.rules` of a plan without evictions


class NotFaster(Exception):
    """Signal that a program may fit, but not run as fast as is asked for."""


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
    search: SearchBudget = SEARCH,
    on_demand: bool = True,
    below: float = math.inf,
) -> Plan:
    """Return the plan with the least predicted time.

    Args:
        buffers: managed buffers by id.
        limit: bytes of the arena; None: no limit.
        costs: seconds of steps, of rematerialization and of copies.
        remats: index of a forward step -> the step that rematerializes its values.
        scratch: ids of all buffers, managed or not, whose content never outlives a step.
        rules: sets of rules to try, in this order; those that only copy are tried where no plan is known.
        constraints: buffers never copied, and steps that rematerialize by request; None: none.
        ahead: most steps that a prefetch comes before its use; None: as many as it takes.
        page: bytes of the arena's pages; None: the arena is contiguous.
        search: the numbers by which plans are searched for.
        on_demand: where no set of rules gives a plan, in pages or in a contiguous arena, copy when a step needs a
            value; else refuse.
        below: seconds; only a plan that takes less is wanted.

    Raises:
        OutOfDeviceMemory: no set of rules gives a plan, and prefetch on demand does not fit or is not wanted.
        NotFaster: no set of rules gives a plan that takes less than `below` seconds.
    """
    constraints = constraints or Constraints()
    can = RematCandidates(program, remats, scratch, constraints.again)
    refuse_impossible(program, buffers, limit, hoped(program, buffers, can))
    for size in dict.fromkeys((page, None)):
        sizes = {b: taken_bytes(buffer.nbytes, size, search.page_waste_parts) for b, buffer in buffers.items()}
        problem = _Problem(
            program,
            buffers,
            limit,
            costs,
            can,
            constraints,
            ahead,
            size,
            search,
            CheckpointCandidates(can, costs, {b: buffer.nbytes for b, buffer in buffers.items()}),
            RematCost(can, buffers, sizes, costs, search),
        )
        best = _fastest(problem, rules, below)
        if best is not None:
            if best.rematerialized and not can.same:  # else `choose.py` checks them against the original program
                verify_remat(program, Ordered(best.program, best.order), remats, scratch)
            return best
        if below < math.inf:
            raise NotFaster
    if not on_demand:
        raise OutOfDeviceMemory(
            f"no plan of program {program.name} was found for {human_bytes(limit or 0)} of managed buffers",
            needed=(limit or 0) + 1,
            free=limit or 0,
            fix="raise -lms_budget",
        )
    ahead = 1 if ahead is None else min(1, ahead)
    last = make_plan(
        program, buffers, limit=limit, ahead=ahead, uncopied=constraints.uncopied, page=page, search=search
    )
    return timed(last, costs)


def _fastest(problem: _Problem, rules: Sequence[Rules], below: float) -> Plan | None:
    """Return the plan with the least predicted time that a set of rules gives; None if none gives one below `below`."""
    search = problem.search
    alone, steps = sum(problem.costs.steps), len(problem.program.steps)
    best: Plan | None = None
    followed = 0  # steps, over all passes
    most = below / search.reordered_share  # seconds of a plan whose copies are not reordered yet
    has_plan = below < math.inf and any(which.remats for which in rules)  # by copies alone, none would be faster
    for which in dict.fromkeys(rules):
        enough = min(search.work / steps, search.steps_per_second * (min(below, most) - alone))
        if (has_plan and not which.remats) or (most < math.inf and followed >= enough):
            break
        if best is not None and best.rules == STAYS and which.memory_share == 1.0:
            continue  # it would give the same plan
        plan, passes = _with_rules(problem, which, min(below, most))
        followed += passes * steps
        if plan is not None and plan.seconds < most:
            best, most, has_plan = plan, plan.seconds, True
    return best


@dataclass(frozen=True)
class _Problem:
    """Hold what every set of rules is tried on: arguments of `optimise`, and what is derived from them once."""

    program: Program
    buffers: Mapping[int, Buffer]
    limit: int | None
    costs: Costs
    can: RematCandidates
    constraints: Constraints
    ahead: int | None
    page: int | None
    search: SearchBudget
    checkpointing: CheckpointCandidates
    remat_cost: RematCost


def _with_rules(problem: _Problem, rules: Rules, below: float) -> tuple[Plan | None, int]:
    """Return (plan, eviction passes); the plan is None where these rules give none faster than `below` seconds."""
    limit, costs, search, sizes = problem.limit, problem.costs, problem.search, problem.remat_cost.sizes
    memory = sum(sizes.values()) if limit is None else int(limit * rules.memory_share)
    checkpoints = problem.checkpointing.checkpoints(
        round(rules.checkpoint_density * len(problem.can.valid_until) / 100)
    )
    for passes in range(1, search.passes + 1):
        try:
            found = EvictionPass(
                problem.program,
                problem.buffers,
                memory,
                costs,
                problem.can,
                rules,
                problem.constraints,
                sizes,
                checkpoints,
                problem.remat_cost,
                search,
            ).run(below)
        except DoesNotFit:
            return None, passes
        if sum(_seconds(found, costs)) >= below:
            return None, passes
        plan = _lay_out(problem, found)
        if isinstance(plan, Plan):
            if found.evicted and plan.paging is None:  # the arena takes all of the limit
                assert limit is not None  # without a limit nothing is evicted
                plan = replace(plan, arena_bytes=limit)
            plan = replace(plan, rules=str(rules) if found.evicted else STAYS, how=rules)
            return timed(plan, costs), passes
        memory = int(memory * search.memory_factor) if plan is None else memory - plan
    return None, search.passes


def _seconds(found: Evictions, costs: Costs) -> list[float]:
    """Return seconds of each step as it runs, rematerialization included."""
    return [costs.again[s] if again else costs.steps[s] for s, again in found.order]


def timed(plan: Plan, costs: Costs) -> Plan:
    """Return the plan with its predicted times."""
    times = time_plan(plan, costs)
    return replace(plan, seconds=times.seconds, stall=times.stall)


def _lay_out(problem: _Problem, found: Evictions) -> Plan | int | None:
    """Return the plan, or the bytes by which it exceeds the limit; None: it exceeds it by an unknown amount."""
    buffers, limit, page = problem.buffers, problem.limit, problem.page
    costs, can, search = problem.costs, problem.can, problem.search
    result = ordered(problem.program, can.remats, found.order)
    seconds = _seconds(found, costs)
    ranges = live_ranges(result.program, buffers, found.left)
    groups = chains(ranges, inplace_reuses(result.program, buffers))
    wished = _wishes(ranges, buffers, seconds, costs, problem.ahead, search.copy_margin)
    wished = [_joined(wished[g[0]], wished[g[-1]]) for g in groups]
    wished, ties = with_carry_over(result.program, buffers, ranges, groups, wished, seconds, costs.machine)
    if limit is None:
        lives = [Lifetime(w.start, w.end, w.must.size) for w in wished]
        packing = pack(lives) if page is None else paged(lives, page)
    else:
        within = (
            pack_within(wished, limit, ties, search)
            if page is None
            else paged_within(wished, limit, page, found.evicted > 0, ties, search)
        )
        if within is None or isinstance(within, int):
            return within
        lives, packing = within
    for g, life in zip(groups, lives, strict=True):
        if ranges[g[0]].issue != life.start:
            ranges[g[0]] = replace(ranges[g[0]], issue=life.start)
        if ranges[g[-1]].until != life.end:
            ranges[g[-1]] = replace(ranges[g[-1]], until=life.end)
    return finish(result.program, buffers, ranges, spread(packing, groups, len(ranges)), result.order)


def _joined(first: Stretch, last: Stretch) -> Stretch:
    """Return the stretch of a group of live ranges that reuse memory in place, from its first to its last."""
    return Stretch(Lifetime(first.must.start, last.must.end, first.must.size), first.start, last.end)


def _wishes(
    ranges: Sequence[LiveRange],
    buffers: Mapping[int, Buffer],
    seconds: Sequence[float],
    costs: Costs,
    ahead: int | None,
    margin: float,
) -> list[Stretch]:
    """Return lifetimes with time for copies: memory is held until a copy out is done, and from when the link must start
    a copy in so that it is done before its use. seconds: of each step. margin: factor on the seconds of copies."""
    begin, machine = list(accumulate(seconds, initial=0.0)), costs.machine
    starts, ends = [r.first for r in ranges], [r.last for r in ranges]
    free = 0.0
    for written, _, i in sorted((r.final, r.last, i) for i, r in enumerate(ranges) if r.saved):
        free = max(free, begin[written + 1]) + margin * machine.copy_seconds(buffers[ranges[i].buffer].copied, True)
        ends[i] = max(ends[i], min(bisect_left(begin, free), len(seconds)) - 1)
    deadline = begin[-1]
    for first, i in sorted(((r.first, i) for i, r in enumerate(ranges) if r.fetched), reverse=True):
        deadline = min(deadline, begin[first])
        deadline -= margin * machine.copy_seconds(buffers[ranges[i].buffer].copied, False)
        least = ranges[i].earliest if ahead is None else max(ranges[i].earliest, first - ahead)
        starts[i] = min(starts[i], max(least, bisect_right(begin, deadline) - 1))
    return [
        Stretch(Lifetime(r.first, r.last, buffers[r.buffer].nbytes), s, e)
        for r, s, e in zip(ranges, starts, ends, strict=True)
    ]
