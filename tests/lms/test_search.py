"""Which rules are tried: the same in every run, no more than are allowed; checkpoints; memory for copies."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from pycaffe_lms.lms.cost.link_queue import LinkQueue
from pycaffe_lms.lms.cost.machine import MACHINES, Costs
from pycaffe_lms.lms.layout.packing import Lifetime, Stretch, pack, pack_within
from pycaffe_lms.lms.layout.paging import stretched
from pycaffe_lms.lms.planner import optimise as optimiser
from pycaffe_lms.lms.planner.evict import Constraints, DoesNotFit, EvictionPass
from pycaffe_lms.lms.planner.lookahead import live_ranges, make_plan
from pycaffe_lms.lms.program import Access, Buffer, Mode, Program, Step
from pycaffe_lms.lms.remat.candidates import CheckpointCandidates, RematCandidates, ordered
from pycaffe_lms.lms.rules import SEARCH, Rules

from ..sampling import sample
from ..seeds import seeded
from .programs import net_program
from .test_optimise import SLOW, _costs, _remats
from .test_remat_cost import Stage

pytestmark = pytest.mark.pure
GIVEN = (Rules(linked_weight=0.5), Rules(copies=False, linked_weight=1.0), Rules(remats=False))


def _chain(widths):
    """Values in a row, each made from the one before, all read in reverse afterwards."""
    steps = [Step("0", (Access(0, Mode.OVERWRITE),))]
    for i in range(1, len(widths)):
        steps.append(Step(f"{i}", (Access(i - 1, Mode.READ), Access(i, Mode.OVERWRITE))))
    back = [Step(f"back {i}", (Access(i, Mode.READ),)) for i in reversed(range(len(widths)))]
    program = Program("chain", (*steps, *back), frozenset())
    remats = {s: Step(f"again:{s}", step.accesses) for s, step in enumerate(steps)}
    can = RematCandidates(program, remats, frozenset())
    costs = Costs([1.0] * len(program.steps), dict.fromkeys(remats, 1.0), MACHINES["h200"])
    return CheckpointCandidates(can, costs, dict(enumerate(widths)))


def test_checkpoints_are_the_narrowest_places_of_equal_parts():
    narrows = _chain([9, 9, 2, 9, 9, 3, 9, 1, 9])
    assert narrows.checkpoints(0) == frozenset()
    assert narrows.checkpoints(1) == {7}
    assert narrows.checkpoints(2) == {2, 7}  # of values 0..3 and 4..7
    assert narrows.checkpoints(3) == {2, 5, 7}  # nobody makes another from value 8
    assert _chain([4, 4, 4, 4]).checkpoints(1) == {2}  # of equal ones the latest
    assert _chain([1, 9, 2, 9]).checkpoints(1) == {2}  # value 0 is made of nothing: no chain leads to it


def _record(monkeypatch):
    tried, real = [], optimiser._with_rules

    def wrapped(problem, rules, below):
        plan, tries = real(problem, rules, below)
        tried.append((rules, plan))
        return plan, tries

    monkeypatch.setattr(optimiser, "_with_rules", wrapped)
    return tried


def _plan(seed, rules, search=SEARCH, share=0.3, below=math.inf):
    program, buffers = net_program(seed)
    least = make_plan(program, buffers, limit=None, ahead=0).arena_bytes
    limit = least + int(share * max(0, sum(b.nbytes for b in buffers.values()) - least)) // 512 * 512
    remats = _remats(program)
    costs = _costs(program, remats, SLOW, seed)
    return optimiser.optimise(
        program,
        buffers,
        limit=limit,
        costs=costs,
        remats=remats,
        scratch=frozenset(),
        rules=rules,
        search=search,
        below=below,
    )


@pytest.mark.parametrize("rules", [GIVEN, GIVEN[-1:]], ids=["any", "copies only"])
@pytest.mark.parametrize("seed", [1, 2, 4])  # for which a set of rules gives a plan
def test_a_plan_that_is_only_wanted_below_a_time(rules, seed):
    """It is the one found without a bound, unless no reordering of copies could make it as fast as asked for."""
    free = _plan(seed, rules)
    assert _plan(seed, rules, below=1.01 * free.seconds) == free
    with pytest.raises(optimiser.NotFaster):
        _plan(seed, rules, below=0.5 * free.seconds)


def _seconds_of(program, seed):
    return _costs(program, _remats(program), SLOW, seed).steps


@sample("seeds", range(40), 5)
def test_the_best_of_what_was_tried_counts_and_it_is_no_worse_than_the_first(seeds, monkeypatch):
    for seed in seeds:
        first = _plan(seed, SEARCH.auto, replace(SEARCH, work=0))  # the first rules that give a plan
        tried = _record(monkeypatch)
        plan = _plan(seed, SEARCH.auto, replace(SEARCH, steps_per_second=1 << 40))  # else these are too small
        monkeypatch.undo()
        made = [p.seconds for _, p in tried if p is not None]
        assert not made or plan.seconds == min(made)
        assert plan.seconds <= first.seconds


@pytest.mark.parametrize(("work", "tries"), [(1 << 40, 5), (1, 1)])
def test_the_fastest_plan_is_taken_until_the_work_is_done(monkeypatch, work, tries):
    plan, seconds = _plan(3, GIVEN), iter([5.0, 3.0, 4.0, 2.0, 2.5])
    monkeypatch.setattr(optimiser, "_with_rules", lambda *_: (replace(plan, rules="", seconds=next(seconds)), 1))
    found = _plan(3, [Rules(linked_weight=k) for k in range(5)], replace(SEARCH, work=work))
    assert found.seconds == (5.0 if tries == 1 else 2.0) and len(list(seconds)) == 5 - tries


def test_the_same_rules_are_tried_in_every_run(monkeypatch):
    for seed in (1, 4, 7):
        tried = _record(monkeypatch)
        plans = [_plan(seed, GIVEN, replace(SEARCH, steps_per_second=1 << 40)) for _ in range(2)]
        half = len(tried) // 2
        assert [rules for rules, _ in tried[:half]] == [rules for rules, _ in tried[half:]]
        assert plans[0].ops == plans[1].ops
        monkeypatch.undo()


def test_users_read_words_not_weights():
    for rules in SEARCH.rules_for(SEARCH.long_steps):
        assert ("copies" in str(rules), "rematerialization" in str(rules)) == (True, rules.remats)
        assert not any(c.isdigit() for c in str(rules))


def test_copies_alone_are_tried_where_nothing_else_was_found(monkeypatch):
    asked = []

    def fails(problem, rules, below):
        asked.append(rules)
        return (None, 1) if rules.remats or nothing else made(problem, rules, below)

    made = optimiser._with_rules
    monkeypatch.setattr(optimiser, "_with_rules", fails)
    nothing = True
    _plan(3, GIVEN)
    assert asked == list(GIVEN)
    nothing = False
    asked.clear()
    assert _plan(4, GIVEN).rules == "copies" and asked == list(GIVEN)


def test_lifetimes_are_stretched_into_free_memory_only():
    rng, longer = seeded(5), 0
    for _ in range(60):
        stretches = []
        for _ in range(rng.randint(1, 25)):
            start = rng.randrange(40)
            must = Lifetime(start, start + rng.randrange(4), rng.randint(1, 9))
            stretches.append(Stretch(must, max(0, start - rng.randrange(9)), must.end + rng.randrange(9)))
        offsets = pack([s.must for s in stretches]).offsets
        lives = stretched(stretches, offsets)
        for s, life in zip(stretches, lives, strict=True):
            assert s.start <= life.start <= s.must.start and s.must.end <= life.end <= s.end
            assert life.size == s.must.size
            longer += life.end - life.start > s.must.end - s.must.start
        _nobody_overlaps(lives, offsets)
    assert longer > 100


def _nobody_overlaps(lives, offsets):
    taken = set()
    for life, offset in zip(lives, offsets, strict=True):
        cells = {(t, o) for t in range(life.start, life.end + 1) for o in range(offset, offset + life.size)}
        assert not cells & taken
        taken |= cells


def test_packing_within_a_limit_never_overlaps():
    rng, found, late = seeded(6), 0, 0
    for _ in range(60):
        stretches = []
        for _ in range(rng.randint(1, 25)):
            start = rng.randrange(40)
            must = Lifetime(start, start + rng.randrange(6), rng.randint(1, 9))
            stretches.append(Stretch(must, max(0, start - rng.randrange(5)), must.end + rng.randrange(5)))
        limit = pack([s.must for s in stretches]).peak + rng.randrange(3)
        within = pack_within(stretches, limit)
        soon = pack_within(stretches, limit, hopeless=0.0)  # two tries
        assert soon in (None, within)
        late += soon != within
        if within is None:
            continue
        found += 1
        lives, packing = within
        _nobody_overlaps(lives, packing.offsets)
        assert packing.peak <= limit
        assert all(s.start <= life.start <= s.must.start for s, life in zip(stretches, lives, strict=True))
        assert all(s.must.end <= life.end <= s.end for s, life in zip(stretches, lives, strict=True))
    assert found > 15 and late > 0


@pytest.mark.parametrize(("excess", "leaves"), [(1.0, 0), (0.0, 1)])
def test_what_leaves_may_be_just_large_enough(excess, leaves):
    """8 MB wanted in 3 steps cost less per byte and step than 2 MB wanted in 2; but only 1 MB is short."""
    sizes = [8 << 20, 2 << 20, 1 << 20]
    uses = [
        (0, Mode.OVERWRITE),
        (1, Mode.OVERWRITE),
        (2, Mode.OVERWRITE),
        (2, Mode.READ),
        (1, Mode.READ),
        (0, Mode.READ),
    ]
    program = Program("short", tuple(Step(str(s), (Access(*use),)) for s, use in enumerate(uses)), frozenset())
    buffers = {b: Buffer(b, f"{b}.data", size) for b, size in enumerate(sizes)}
    costs = Costs([1e-6] * len(uses), {}, MACHINES["h200"])
    can, rules = RematCandidates(program, {}, frozenset()), Rules(remats=False, surplus_weight=excess)
    found = EvictionPass(program, buffers, 10 << 20, costs, can, rules, Constraints()).run()
    assert {b for b, _ in found.left} == {leaves} and found.evicted == 1


@pytest.mark.parametrize("link", [1, 100])
def test_a_pass_ends_where_it_cannot_be_as_fast_as_asked_for(link):
    """Nor can a plan take less than its steps, or than its copies in one direction, whichever is more."""
    stage = Stage(3, 512 << 20)
    rules = Rules(copies=False, checkpoint_density=2.75)
    machine = stage.costs.machine
    machine = replace(machine, **{rate: link * getattr(machine, rate) for rate in ("link_in", "link_out", "link_both")})
    costs = replace(stage.costs, machine=machine)

    def run(*below):
        args = stage.program, stage.buffers, int(3.4 * (512 << 20)), costs, stage.can, rules, Constraints()
        return EvictionPass(*args).run(*below)

    found = run()
    taken = sum(costs.again[s] if again else costs.steps[s] for s, again in found.order)
    assert taken > sum(costs.steps)
    result = ordered(stage.program, stage.can.remats, found.order)
    ranges = live_ranges(result.program, stage.buffers, found.left)
    out = sum(machine.copy_seconds(stage.buffers[r.buffer].nbytes, True) for r in ranges if r.saved)
    back = [r.buffer for r in ranges if r.fetched and r.buffer != stage.ids["data"]]
    copying = max(out, sum(machine.copy_seconds(stage.buffers[b].nbytes, False) for b in back))
    assert (copying > taken) is (link == 1)
    assert run(1.001 * max(taken, copying)).order == found.order
    with pytest.raises(DoesNotFit):
        run(0.999 * max(taken, copying))


def _copies_or_again(marginal: bool, spare: int) -> list[tuple[int, bool]]:
    """Plan a program in which `made`, of `base` that nobody else reads, is read twice, after steps that need all the
    memory but for `spare` buffers of its size. Return the order of the steps."""
    mb = 1 << 20
    sizes = {"base": 8, "made": 8, "wide": 24 - 8 * spare}
    ids, modes = {name: b for b, name in enumerate(sizes)}, (Mode.READ, Mode.OVERWRITE)
    steps = [
        ("base", "", "base"),
        ("made", "base", "made"),
        ("wide 1", "", "wide"),
        ("first", "made", ""),
        ("wide 2", "", "wide"),
        ("last", "made", ""),
    ]
    program = Program(
        "full",
        tuple(
            Step(
                name, tuple(Access(ids[b], mode) for part, mode in zip(does, modes, strict=True) for b in part.split())
            )
            for name, *does in steps
        ),
        frozenset(),
    )
    buffers = {b: Buffer(b, f"{name}.data", sizes[name] * mb) for name, b in ids.items()}
    remats = {s: replace(program.steps[s], name=f"again:{steps[s][0]}") for s in (0, 1)}
    costs = Costs([1e-5] * len(steps), {0: 5e-3, 1: 1e-6}, MACHINES["h200"])
    can = RematCandidates(program, remats, frozenset())
    rules = Rules(linked_weight=0.0, marginal=marginal)
    return EvictionPass(program, buffers, 24 * mb, costs, can, rules, Constraints()).run().order


def test_marginal_prices_count_the_steps_that_run_again_for_one_step_alone():
    """`made` costs a microsecond, but `base`, which it is made of and nothing else reads, five milliseconds; a copy of
    it takes a third of one."""
    assert sum(again for _, again in _copies_or_again(False, 0)) > 0
    assert sum(again for _, again in _copies_or_again(True, 0)) == 0
    assert sum(again for _, again in _copies_or_again(False, 2)) == 0  # nothing has to leave


def test_marginal_prices_count_a_late_copys_own_seconds():
    """A copy of 1 ms, wanted in 5 ms at a time for which the link has 9 ms to copy already."""
    for marginal, expected in ((False, 9 + 1 - 5), (True, 1)):
        links = LinkQueue(marginal)
        links.book(None, 9e-3, 0.0, 0.0, 5e-3)
        assert links.price(None, 1e-3, 0.0, 0.0, 5e-3) == pytest.approx(1e-3 * expected)
        assert links.price(None, 1e-3, 0.0, 0.0, 9.4e-3) == pytest.approx(0.6e-3)  # late by less than it takes
        assert links.price(None, 1e-3, 0.0, 0.0, 11e-3) == 0
