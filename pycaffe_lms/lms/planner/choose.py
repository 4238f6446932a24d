"""Choose the planner and its rules from the settings, and plan a program. Pure.

`choose_plan` calls `make_plan` (fixed look-ahead) or `optimise` (predicted time), adds the rematerialization that
layers request (`../remat/requested.py`), and reorders copies last (`copy_reordering.py`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from ..config import LMSConfig
from ..cost.machine import Costs
from ..plan.plan import Plan
from ..plan.rules import Constraints, Rules
from ..program import Buffer, Program, Step
from ..remat.candidates import Ordered, RematCandidates, verify_remat
from ..remat.requested import RematRequests, inner_program
from .copy_reordering import with_copies_reordered
from .lookahead import make_plan
from .optimise import optimise

SWAP = (Rules(remats=False),)  # copies only
AUTO = (  # in the order in which they are tried; see `Search.next` for the exceptions
    Rules(chain=0.5),
    Rules(copies=False, chain=0.1, density=4.5),
    Rules(copies=False, chain=0.3, density=4.5, excess=0.0),
    Rules(copies=False, chain=0.3, density=2.75, excess=0.3),
    Rules(copies=False, chain=0.5, density=2.75, excess=0.0),
    Rules(copies=False, chain=0.5, density=3.5, room=0.96),
    Rules(copies=False, chain=0.5, density=2.0, room=0.96),
    Rules(chain=0.7),
    Rules(chain=0.1),
    Rules(copies=False, chain=1.0),
    Rules(copies=False, chain=0.1),
    Rules(remats=False),
)


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
) -> Plan:
    """Return the plan of a program under these settings, with its predicted times.

    Args: as of `optimise`, and
        limit: bytes of the arena.
        remats: must include the steps that `remat_requests` needs.
        remat_requests: values that layers request to rematerialize.
        first: rules to try before the others.

    Raises:
        OutOfDeviceMemory: the program cannot fit.
        CannotRemat: a requested rematerialization would make another value.
    """

    def planned(program: Program, costs: Costs, remats: Mapping[int, Step], constraints: Constraints) -> Plan:
        if config.ahead is not None and not config.recomputes:
            return make_plan(
                program, buffers, limit=limit, ahead=config.ahead, uncopied=constraints.uncopied, page=page
            )
        rules = AUTO if config.recomputes else SWAP
        return optimise(
            program,
            buffers,
            limit=limit,
            costs=costs,
            remats=remats,
            scratch=scratch,
            rules=rules if first is None else (first, *rules),
            constraints=constraints,
            ahead=config.ahead,
            page=page,
        )

    if not remat_requests.steps:
        return with_copies_reordered(planned(program, costs, remats, Constraints()), costs)
    inner = inner_program(program, RematCandidates(program, remats, scratch), costs, remat_requests)
    plan = planned(inner.result.program, inner.costs, inner.remats, Constraints(remat_requests.buffers, inner.again))
    plan = replace(inner.outward(plan), rules=f"{plan.rules}, and rematerialization that layers request")
    verify_remat(program, Ordered(plan.program, plan.order), remats, scratch)
    return with_copies_reordered(plan, costs)
