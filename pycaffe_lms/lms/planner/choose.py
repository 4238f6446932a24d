"""From settings to a plan: which planner makes it, with which rules, around what layers ask for. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from ..config import LMSConfig
from ..cost.machine import Costs
from ..plan.plan import Plan
from ..plan.rules import Rules, Wishes
from ..program import Buffer, Program, Step
from ..remat.candidates import Ordered, Replayable, verify_replays
from ..remat.requested import Remakes, inner_program
from .copy_reordering import with_passes
from .lookahead import make_plan
from .optimise import optimise

SWAP = (Rules(replays=False),)
AUTO = (
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
    Rules(replays=False),
)


def choose_plan(
    program: Program,
    buffers: Mapping[int, Buffer],
    config: LMSConfig,
    limit: int,
    costs: Costs,
    replays: Mapping[int, Step],
    scratch: frozenset[int],
    remakes: Remakes,
    page: int | None = None,
    first: Rules | None = None,
) -> Plan:
    """The plan of a program under these settings, with its predicted times. Arguments as of `optimise`; replays: with
    those that `remakes` needs; first: rules to try before others. Raises OutOfDeviceMemory when it cannot fit,
    CannotRemake (see there)."""

    def planned(program: Program, costs: Costs, replays: Mapping[int, Step], wishes: Wishes) -> Plan:
        if config.ahead is not None and not config.recomputes:
            return make_plan(program, buffers, limit=limit, ahead=config.ahead, uncopied=wishes.uncopied, page=page)
        rules = AUTO if config.recomputes else SWAP
        return optimise(
            program, buffers, limit=limit, costs=costs, replays=replays, scratch=scratch,
            rules=rules if first is None else (first, *rules), wishes=wishes, ahead=config.ahead, page=page,
        )  # fmt: skip

    if not remakes.steps:
        return with_passes(planned(program, costs, replays, Wishes()), costs)
    inner = inner_program(program, Replayable(program, replays, scratch), costs, remakes)
    plan = planned(inner.result.program, inner.costs, inner.replays, Wishes(remakes.buffers, inner.again))
    plan = replace(inner.outward(plan), rules=f"{plan.rules}, and what layers ask to be made again")
    verify_replays(program, Ordered(plan.program, plan.order), replays, scratch)
    return with_passes(plan, costs)
