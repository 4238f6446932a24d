"""Choose the planner and its rules from the settings, and plan a program. Pure.

`choose_plan` calls `make_plan` (fixed look-ahead) or `optimise` (predicted time), adds the rematerialization that
layers request (`../remat/requested.py`), and reorders copies last (`copy_reordering.py`).
"""

from __future__ import annotations

from dataclasses import replace

from ..config import LMSConfig
from ..plan.plan import Plan
from ..remat.candidates import Ordered, RematCandidates, verify_remat
from ..remat.requested import inner_program
from ..request import PlanRequest
from ..rules import SEARCH, SWAP, SearchBudget
from .copy_reordering import with_copies_reordered
from .evict import Constraints
from .lookahead import make_plan
from .optimise import optimise


def choose_plan(
    request: PlanRequest,
    config: LMSConfig,
    limit: int,
    page: int | None = None,
    search: SearchBudget = SEARCH,
    *,
    on_demand: bool = True,
) -> Plan:
    """Return the plan of a program under these settings, with its predicted times.

    Args:
        limit: bytes of the arena.
        page: bytes of a page of the arena; None: it is contiguous.
        search: the numbers by which plans are searched for.
        on_demand: where no set of rules gives a plan, copy when a step needs a value; else refuse.

    Raises:
        OutOfDeviceMemory: the program cannot fit.
        NotFaster: no plan takes less than `request.below` seconds.
        CannotRemat: a requested rematerialization would make another value.
    """
    program, requested = request.program, request.requested
    if not requested.steps:
        plan = _planned(request, config, limit, page, Constraints(), search, on_demand)
        return with_copies_reordered(plan, request.costs, search)
    inner = inner_program(program, RematCandidates(program, request.remats, request.scratch), request.costs, requested)
    asked = replace(request, program=inner.result.program, costs=inner.costs, remats=inner.remats)
    plan = _planned(asked, config, limit, page, Constraints(requested.buffers, inner.again), search, on_demand)
    plan = replace(inner.outward(plan), rules=f"{plan.rules}, and rematerialization that layers request")
    verify_remat(program, Ordered(plan.program, plan.order), request.remats, request.scratch)
    return with_copies_reordered(plan, request.costs, search)


def fixed_ahead(config: LMSConfig) -> int | None:
    """Return the steps of a fixed look-ahead, with which plans are made at once; None: plans are searched for."""
    return None if config.recomputes else config.ahead


def _planned(
    request: PlanRequest,
    config: LMSConfig,
    limit: int,
    page: int | None,
    constraints: Constraints,
    search: SearchBudget,
    on_demand: bool,
) -> Plan:
    """Return the plan of a program, with its copies in the order in which the planner issues them."""
    fixed = fixed_ahead(config)
    if fixed is not None:
        return make_plan(
            request.program,
            request.buffers,
            limit=limit,
            ahead=fixed,
            uncopied=constraints.uncopied,
            page=page,
            search=search,
        )
    rules = search.rules_for(len(request.program.steps)) if config.recomputes else SWAP
    return optimise(
        request.program,
        request.buffers,
        limit=limit,
        costs=request.costs,
        remats=request.remats,
        scratch=request.scratch,
        rules=rules if request.first is None else (request.first, *rules),
        constraints=constraints,
        ahead=config.ahead,
        page=page,
        search=search,
        on_demand=on_demand,
        below=request.below,
    )
