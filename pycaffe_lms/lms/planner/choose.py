"""Choose the planner and its rules from the settings, and plan a program. Pure.

`choose_plan` calls `make_plan` (fixed look-ahead) or `optimise` (predicted time), adds the rematerialization that
layers request (`../remat/requested.py`), and reorders copies last (`copy_reordering.py`).
"""

from __future__ import annotations

from dataclasses import replace

from ..config import LMSConfig
from ..plan.plan import Plan
from ..program import Buffer, Program, Step
from ..remat.candidates import Ordered, RematCandidates, verify_remat
from ..remat.requested import RematRequests, inner_program
from ..rules import SEARCH, SWAP, Rules, SearchBudget
from .copy_reordering import with_copies_reordered
from .evict import Constraints
from .lookahead import make_plan
from .optimise import optimise


def choose_plan(
    program: Program,
    buffers: Mapping[int, Buffer],
    config: LMSConfig,
    limit: int,
    costs: Costs,
    remats: Mapping[int, Step],
    scratch: frozenset[int],
    remat_requests: RematRequests,
    page: int | None = None,
    first: Rules | None = None,
    search: SearchBudget = SEARCH,
) -> Plan:
    """Return the plan of a program under these settings, with its predicted times.

    Args:
        limit: bytes of the arena.
        remats: must include the steps that `remat_requests` needs.
        remat_requests: values that layers request to rematerialize.
        first: rules to try before the others.
        search: the numbers by which plans are searched for.

    Raises:
        OutOfDeviceMemory: the program cannot fit.
        CannotRemat: a requested rematerialization would make another value.
    """
    program, requested = request.program, request.requested
    if not requested.steps:
        return with_copies_reordered(_planned(request, config, limit, page, Constraints()), request.costs)
    inner = inner_program(program, RematCandidates(program, request.remats, request.scratch), request.costs, requested)
    asked = replace(request, program=inner.result.program, costs=inner.costs, remats=inner.remats)
    plan = _planned(asked, config, limit, page, Constraints(requested.buffers, inner.again))
    plan = replace(inner.outward(plan), rules=f"{plan.rules}, and rematerialization that layers request")
    verify_remat(program, Ordered(plan.program, plan.order), request.remats, request.scratch)
    return with_copies_reordered(plan, request.costs)

    def planned(program: Program, costs: Costs, remats: Mapping[int, Step], constraints: Constraints) -> Plan:
        if config.ahead is not None and not config.recomputes:
            return make_plan(
                program,
                buffers,
                limit=limit,
                ahead=config.ahead,
                uncopied=constraints.uncopied,
                page=page,
                search=search,
            )
        rules = search.auto if config.recomputes else SWAP
        return optimise(
            program,
            buffers,
            limit=limit,
            ahead=config.ahead,
            uncopied=constraints.uncopied,
            page=page,
            search=search,
        )

    if not remat_requests.steps:
        return with_copies_reordered(planned(program, costs, remats, Constraints()), costs, search)
    inner = inner_program(program, RematCandidates(program, remats, scratch), costs, remat_requests)
    plan = planned(inner.result.program, inner.costs, inner.remats, Constraints(remat_requests.buffers, inner.again))
    plan = replace(inner.outward(plan), rules=f"{plan.rules}, and rematerialization that layers request")
    verify_remat(program, Ordered(plan.program, plan.order), remats, scratch)
    return with_copies_reordered(plan, costs, search)
