"""The planner and the verifier, against each other and against arithmetic done here."""

from __future__ import annotations

import dataclasses

import pytest

from pycaffe_lms.errors import OutOfDeviceMemory, PlanError
from pycaffe_lms.lms.plan.plan import Op, OpKind, Placement
from pycaffe_lms.lms.plan.verify import verify
from pycaffe_lms.lms.planner.lookahead import make_plan
from pycaffe_lms.lms.program import Access, Buffer, Mode, Program, Step

from ..sampling import sample
from ..seeds import seeded
from .programs import net_program, random_program

pytestmark = pytest.mark.pure
SEEDS = range(300)
PAGES = [None, 1024]  # buffers have a few of 512 bytes


def _need(program, buffers):
    """Most bytes that one device step touches: what on-demand fetching must hold."""
    return max(
        (sum(buffers[b].nbytes for b in {a.buffer for a in s.accesses}) for s in program.steps if not s.host), default=0
    )


@pytest.mark.parametrize("make", [random_program, net_program])
@pytest.mark.parametrize("ahead", [0, 1, 3])
@pytest.mark.parametrize("page", PAGES)
@sample("seeds", SEEDS, 50)
def test_every_plan_is_proved(make, ahead, page, seeds):
    for seed in seeds:
        program, buffers = make(seed)
        verify(make_plan(program, buffers, limit=None, ahead=ahead, page=page))


def test_on_demand_holds_no_more_than_the_largest_step():
    for seed in SEEDS:
        program, buffers = net_program(seed)
        plan = make_plan(program, buffers, limit=None, ahead=0)
        assert plan.held_bytes == plan.live_bytes == _need(program, buffers)


@pytest.mark.parametrize("make", [random_program, net_program])
@pytest.mark.parametrize("page", PAGES)
@sample("seeds", SEEDS, 18)
def test_look_ahead_never_fails_where_on_demand_fits(make, page, seeds):
    for seed in seeds:
        program, buffers = make(seed)
        demand = make_plan(program, buffers, limit=None, ahead=0, page=page)
        for slack in (0, 700, 5000):
            plan = make_plan(program, buffers, limit=demand.arena_bytes + slack, ahead=2, page=page)
            verify(plan)
            assert plan.arena_bytes <= demand.arena_bytes + slack


def test_on_demand_copies_follow_from_the_access_list():
    """Bytes in and out of the plan, recounted by following a cache that holds only the running step's buffers."""
    for seed in SEEDS:
        program, buffers = net_program(seed)
        plan = make_plan(program, buffers, limit=None, ahead=0)
        on_device, dirty, bytes_in, bytes_out = set(), set(), 0, 0
        for s, step in enumerate(program.steps):
            modes = {a.buffer: a.mode for a in step.accesses}
            if step.host:
                continue
            bytes_in += sum(
                buffers[b].nbytes for b, m in modes.items() if b not in on_device and m is not Mode.OVERWRITE
            )
            dirty |= {b for b, m in modes.items() if m is not Mode.READ}
            following = program.steps[s + 1] if s + 1 < len(program.steps) else None
            stay = {a.buffer for a in following.accesses} if following and not following.host else set()
            for b in modes.keys() - stay:
                if b in dirty and _read_later(program, s, b):
                    bytes_out += buffers[b].nbytes
                dirty.discard(b)
            on_device = modes.keys() & stay
        assert (plan.bytes_in, plan.bytes_out) == (bytes_in, bytes_out)


def _read_later(program, s, b):
    for step in program.steps[s + 1 :]:
        for a in step.accesses:
            if a.buffer == b:
                return a.mode is not Mode.OVERWRITE
    return b in program.live_out


@pytest.mark.parametrize("make", [random_program, net_program])
@pytest.mark.parametrize("page", PAGES)
@sample("seeds", range(120), 20)
def test_every_single_wait_is_needed(make, page, seeds):
    """Take any one event away and the verifier finds the race."""
    tried = 0
    for seed in seeds:
        program, buffers = make(seed)
        plan = make_plan(program, buffers, limit=None, ahead=seed % 3, page=page)
        for i, op in enumerate(plan.ops):
            for w in op.waits:
                fewer = dataclasses.replace(op, waits=tuple(x for x in op.waits if x != w))
                broken = dataclasses.replace(plan, ops=(*plan.ops[:i], fewer, *plan.ops[i + 1 :]))
                with pytest.raises(PlanError):
                    verify(broken)
                tried += 1
    assert tried > 4 * len(seeds)


def _mutations(plan, rng):
    ops = list(plan.ops)
    for i, op in enumerate(ops):
        if op.kind in (OpKind.IN, OpKind.OUT):
            yield "copy left out", ops[:i] + [_renumber(o, -1) for o in ops[i + 1 :]]
        if op.kind is OpKind.OUT:
            moved = dataclasses.replace(op, place=Placement(op.place.buffer, op.place.offset + 512))
            yield "copy from elsewhere", ops[:i] + [moved] + ops[i + 1 :]
            kept = dataclasses.replace(op, release=not op.release)
            yield "release forgotten or too early", ops[:i] + [kept] + ops[i + 1 :]
        if op.drops or op.frees:
            yield "nothing given back", ops[:i] + [dataclasses.replace(op, drops=(), frees=())] + ops[i + 1 :]
        if op.births:
            yield "birth left out", ops[:i] + [dataclasses.replace(op, births=op.births[1:])] + ops[i + 1 :]
    if len(ops) > 2:
        i = rng.randrange(len(ops) - 1)
        a, b = ops[i], ops[i + 1]
        if OpKind.COMPUTE in (a.kind, b.kind):
            yield "two operations swapped", ops[:i] + [b, a] + ops[i + 2 :]


def _renumber(op: Op, by: int) -> Op:
    return dataclasses.replace(op, id=op.id + by)


@pytest.mark.parametrize("page", PAGES)
@sample("seeds", range(60), 10)
def test_mutated_plans_are_caught(page, seeds):
    rng, caught = seeded(3), 0
    for seed in seeds:
        program, buffers = net_program(seed)
        plan = make_plan(program, buffers, limit=None, ahead=1, page=page)
        for what, ops in _mutations(plan, rng):
            with pytest.raises(PlanError):
                verify(dataclasses.replace(plan, ops=tuple(ops)))
                pytest.fail(f"seed {seed}: {what} was not noticed")
            caught += 1
    assert caught > 8 * len(seeds)


def test_nobody_waits_for_the_host_which_is_over_when_it_is_issued():
    """No event is recorded for it."""
    program, buffers = net_program(5)
    plan = make_plan(program, buffers, limit=None, ahead=1)
    host = next(op.id for op in plan.ops if op.kind is OpKind.HOST)
    last = dataclasses.replace(plan.ops[-1], waits=(*plan.ops[-1].waits, host))
    with pytest.raises(PlanError, match=f"waits for operation {host}, which is over when it is issued"):
        verify(dataclasses.replace(plan, ops=(*plan.ops[:-1], last)))


def test_who_comes_next_waits_for_the_step_that_gives_the_memory_back():
    """A value that another step drops than the last to use it: its memory is spoiled then, not before."""
    tried = 0
    for seed in range(60):
        program, buffers = net_program(seed)
        plan = make_plan(program, buffers, limit=None, ahead=2)
        for op in plan.ops:
            later = next((o for o in plan.ops[op.id + 1 :] if o.kind is OpKind.COMPUTE), None)
            for b in op.drops if later else ():
                at = next(p.offset for o in reversed(plan.ops[: op.id + 1]) for p in o.comers if p.buffer == b)
                following = next((o for o in plan.ops[later.id + 1 :] for p in o.comers if p.offset == at), None)
                if following is None or following.kind is not OpKind.IN or op.id not in following.waits:
                    continue
                ops = list(plan.ops)
                ops[op.id] = dataclasses.replace(op, drops=tuple(x for x in op.drops if x != b))
                ops[later.id] = dataclasses.replace(later, drops=(*later.drops, b))
                with pytest.raises(
                    PlanError, match=f"is not ordered after the read of those bytes by.* {later.id}|most"
                ):
                    verify(dataclasses.replace(plan, ops=tuple(ops)))
                tried += 1
    assert tried > 5


def test_an_arena_too_small_by_a_byte_is_caught():
    program, buffers = net_program(5)
    plan = make_plan(program, buffers, limit=None, ahead=1)
    with pytest.raises(PlanError, match="outside the arena"):
        verify(dataclasses.replace(plan, arena_bytes=plan.arena_bytes - 1))


def test_a_step_that_cannot_fit_is_refused_by_name():
    buffers = {0: Buffer(0, "conv1.data", 4096), 1: Buffer(1, "conv1.weight", 2048)}
    step = Step("forward:conv1", (Access(0, Mode.OVERWRITE), Access(1, Mode.READ)))
    with pytest.raises(OutOfDeviceMemory) as caught:
        make_plan(Program("p", (step,), frozenset()), buffers, limit=6143, ahead=1)
    text = str(caught.value)
    assert caught.value.needed == 6144
    assert 'layer "conv1"' in text and '"conv1.data" 4.0 KiB' in text and "-lms_budget" in text
