"""Plans by predicted time, on random programs: proved, within the limit, with the right values made again."""

from __future__ import annotations

import dataclasses

import pytest

from pycaffe_lms.errors import PlanError
from pycaffe_lms.lms.cost.machine import MACHINES, Costs
from pycaffe_lms.lms.cost.timing import time_plan
from pycaffe_lms.lms.plan.verify import verify
from pycaffe_lms.lms.planner.lookahead import make_plan
from pycaffe_lms.lms.planner.optimise import optimise
from pycaffe_lms.lms.program import Access, Buffer, Mode, Program, Step
from pycaffe_lms.lms.remat.candidates import ordered, verify_remat
from pycaffe_lms.lms.rules import Rules

from .. import seeds
from ..sampling import sample
from ..seeds import seeded
from .programs import net_program, random_program

pytestmark = pytest.mark.pure
SEEDS = range(150)
SLOW = dataclasses.replace(MACHINES["h200"], link_in=1e6, link_out=1e6, link_both=2e6)
RULES = (Rules(copies=False, linked_weight=0.0), Rules(linked_weight=1.0), Rules(remats=False))


def _remats(program: Program) -> dict[int, Step]:
    """Every step that overwrites all it writes can be one, whether that is right or not: the planner must see."""
    found = {}
    for s, step in enumerate(program.steps):
        if not step.host and all(a.mode is not Mode.UPDATE for a in step.accesses):
            found[s] = Step(f"again:{step.name}", step.accesses)
    return found


def _costs(program, remats, machine=SLOW, seed=0) -> Costs:
    rng = seeded(seed)
    seconds = [rng.choice((1e-6, 1e-5, 1e-4)) for _ in program.steps]
    return Costs(seconds, {s: seconds[s] for s in remats}, machine)


def _optimise(program, buffers, limit, seed, rules=RULES, machine=SLOW, page=None):
    remats = _remats(program)
    costs = _costs(program, remats, machine, seed)
    more = {"costs": costs, "remats": remats, "scratch": frozenset(), "rules": rules, "page": page}
    return optimise(program, buffers, limit=limit, **more), costs


@pytest.mark.parametrize("make", [random_program, net_program])
@pytest.mark.parametrize("share", [0.0, 0.1, 0.3, 0.6])
@pytest.mark.parametrize("page", [None, 1024])
@sample("cases", SEEDS, 4, also=(67, 112))  # there something runs again, where that is rare
def test_every_plan_is_proved_and_fits(make, share, page, cases):
    for seed in cases:
        program, buffers = make(seed)
        limit = _limit(program, buffers, share, page)
        plan, _ = _optimise(program, buffers, limit, seed, page=page)
        verify(plan)
        again = ordered(program, _remats(program), plan.order)
        verify_remat(program, again, _remats(program), frozenset())
        assert again.program.steps == plan.program.steps
        assert plan.arena_bytes <= max(limit, 0)


def _limit(program, buffers, share, page):
    """What copies on demand need, and a share of what is missing for all buffers at once."""
    least = make_plan(program, buffers, limit=None, ahead=0, page=page).arena_bytes
    return least + int(share * max(0, sum(b.nbytes for b in buffers.values()) - least)) // 512 * 512


@pytest.mark.parametrize("share, page, seed", [(0.1, None, 67), (0.3, None, 9), (0.1, 1024, 67), (0.3, 1024, 9)])
def test_something_runs_again_where_that_saves_time(share, page, seed, monkeypatch):
    """Such programs are rare in an arena without pages: with a share of 0.1, 2 of 150."""
    monkeypatch.setattr(seeds, "BASE", 0)  # these programs, whatever others draw
    program, buffers = net_program(seed)
    limit = _limit(program, buffers, share, page)
    copied, _ = _optimise(program, buffers, limit, seed, rules=[r for r in RULES if not r.remats], page=page)
    plan, _ = _optimise(program, buffers, limit, seed, page=page)
    assert copied.rematerialized == 0 < plan.rematerialized
    assert plan.seconds < copied.seconds


def test_without_a_limit_everything_stays():
    for seed in SEEDS:
        program, buffers = net_program(seed)
        plan, costs = _optimise(program, buffers, None, seed, machine=MACHINES["h200"])
        read_first = {b for b in buffers if _first_mode(program, b) is not Mode.OVERWRITE}
        assert plan.rematerialized == 0
        assert plan.bytes_in == sum(buffers[b].nbytes for b in read_first)
        assert plan.seconds >= sum(costs.steps)


def _first_mode(program, b):
    for step in program.steps:
        for a in step.accesses:
            if a.buffer == b and not step.host:
                return a.mode
            if a.buffer == b:
                return Mode.READ if _read_on_device(program, b) else Mode.OVERWRITE
    return Mode.OVERWRITE


def _read_on_device(program, b):
    return any(a.buffer == b for step in program.steps if not step.host for a in step.accesses)


@pytest.mark.parametrize("page", [None, 1024])
@sample("seeds", range(60), 5)
def test_a_larger_limit_is_never_slower_and_the_arena_never_smaller(page, seeds):
    """With the same rules: the best of several is, within a few percent."""
    for seed in seeds:
        program, buffers = net_program(seed)
        least = make_plan(program, buffers, limit=None, ahead=0, page=page).arena_bytes
        plans = [_optimise(program, buffers, least + extra, seed, page=page)[0] for extra in (0, 2048, 8192, 1 << 20)]
        assert plans[-1].seconds <= plans[0].seconds * 1.001
        arenas = [p.arena_bytes for p in plans]
        assert arenas == sorted(arenas)


def test_verify_remat_finds_wrong_values():
    """a is made from x and y; x changes, y does not; a made again is another a."""
    read, update, overwrite = Mode.READ, Mode.UPDATE, Mode.OVERWRITE
    steps = (
        Step("x", (Access(0, overwrite),)),
        Step("a", (Access(3, read), Access(0, read), Access(1, overwrite))),
        Step("change x", (Access(0, update),)),
        Step("use", (Access(1, read), Access(2, overwrite))),
    )
    program = Program("p", steps, frozenset({2}))
    remats = {1: Step("again:a", steps[1].accesses)}
    right = ordered(program, remats, [(0, False), (1, False), (1, True), (2, False), (3, False)])
    verify_remat(program, right, remats, frozenset())
    wrong = ordered(program, remats, [(0, False), (1, False), (2, False), (1, True), (3, False)])
    with pytest.raises(PlanError, match="step use"):
        verify_remat(program, wrong, remats, frozenset())
    with pytest.raises(PlanError, match="steps are not those"):
        verify_remat(program, ordered(program, remats, [(0, False), (1, False)]), remats, frozenset())


def test_time_of_a_plan_by_hand():
    """Two buffers of 1 s a copy, steps of 1 s, memory for one: everything in a row but what the streams overlap."""
    second = 1 << 20
    machine = dataclasses.replace(
        MACHINES["h200"], link_in=second, link_out=second, link_both=2 * second, copy_s=1e-30, launch_s=0.0
    )
    a, b = (Buffer(i, f"b{i}.data", second) for i in range(2))
    steps = (
        Step("a", (Access(0, Mode.OVERWRITE),)),
        Step("b", (Access(1, Mode.OVERWRITE),)),
        Step("use a", (Access(0, Mode.READ),)),
    )
    program = Program("p", steps, frozenset())
    plan = make_plan(program, {0: a, 1: b}, limit=second, ahead=0)
    timed = time_plan(plan, Costs([1.0] * 3, {}, machine))
    # a 0..1, its copy out 1..2, b takes its place 2..3, a comes back 3..4, use 4..5
    assert timed.seconds == pytest.approx(5.0)
    assert timed.stall == pytest.approx(2.0)
    assert (timed.busy_in, timed.busy_out) == (pytest.approx(1.0), pytest.approx(1.0))
