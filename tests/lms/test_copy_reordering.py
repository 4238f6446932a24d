"""Urgent copies pass large ones: by hand, on random programs, spoiled, and as text."""

from __future__ import annotations

import dataclasses

import pytest

from pycaffe_lms.errors import PlanError
from pycaffe_lms.lms.cost.machine import MACHINES, Costs
from pycaffe_lms.lms.cost.timing import time_plan
from pycaffe_lms.lms.layout.packing import Packing
from pycaffe_lms.lms.plan.plan import HOST, HostSlot, OpKind
from pycaffe_lms.lms.plan.verify import verify
from pycaffe_lms.lms.planfile.read import parse_plan, plan_from
from pycaffe_lms.lms.planfile.write import plan_text, program_message
from pycaffe_lms.lms.planner.copy_reordering import with_copies_reordered
from pycaffe_lms.lms.planner.host_slots import with_host_slots
from pycaffe_lms.lms.planner.lookahead import finish, live_ranges, make_plan
from pycaffe_lms.lms.planner.optimise import optimise
from pycaffe_lms.lms.program import Access, Buffer, Mode, Program, Step
from pycaffe_lms.lms.rules import SEARCH, Rules

from ..seeds import seeded
from .programs import net_program, random_program

pytestmark = pytest.mark.pure
READ, WRITE = Mode.READ, Mode.OVERWRITE
SECOND = 1 << 20  # bytes of the link here, each way whatever the other does
LINK = dataclasses.replace(
    MACHINES["h200"], link_in=SECOND, link_out=SECOND, link_both=2 * SECOND, copy_s=1e-12, launch_s=0.0
)
SMALL_PIECES = dataclasses.replace(SEARCH, piece=512)


def reordered(plan, costs, search=SMALL_PIECES):
    return with_copies_reordered(plan, costs, search)


# -- by hand: every step takes a second, a copy as many as its size says -----------------------------------------------
def by_hand(uses, sizes, issues, offsets, live_out=()):
    """(plan, costs): uses: of every step (buffer, mode); issues: buffer -> the step before which it is fetched."""
    steps = tuple(Step(f"s{s}", tuple(Access(*a) for a in accesses)) for s, accesses in enumerate(uses))
    buffers = {b: Buffer(b, f"b{b}", size * SECOND) for b, size in enumerate(sizes)}
    program = Program("hand", steps, frozenset(live_out))
    stays = [
        dataclasses.replace(r, issue=issues.get(r.buffer, r.issue)) if r.fetched else r
        for r in live_ranges(program, buffers, left=())
    ]
    places = tuple(offsets[r.buffer] * SECOND for r in stays)
    plan = finish(program, buffers, stays, Packing(places, 16 * SECOND, 16 * SECOND))
    verify(plan)
    return plan, Costs([1.0] * len(steps), {}, LINK)


def copies(plan, kind):
    return [(op.place.buffer, op.part and tuple(n / SECOND for n in op.part)) for op in plan.ops if op.kind is kind]


X, Y, Z = range(3)


def test_a_copy_in_is_cut_for_one_whose_memory_becomes_free():
    """X takes from 0 to 5, for step 6. Y gets Z's memory after step 1 and is wanted by step 3."""
    uses = [[(Z, WRITE)], [(Z, READ)], [], [(Y, READ)], [], [], [(X, READ)]]
    plan, costs = by_hand(uses, (5, 1, 1), {X: 0, Y: 2}, (0, 5, 5))
    before = time_plan(plan, costs)
    assert (before.seconds, before.stall) == (pytest.approx(10), pytest.approx(3))  # Y from 5 to 6
    after = reordered(plan, costs)
    verify(after)
    assert copies(after, OpKind.IN) == [(X, (0, 2)), (Y, None), (X, (2, 3))]
    assert (after.seconds, after.stall) == (pytest.approx(7), pytest.approx(0, abs=1e-6))


def test_a_copy_out_is_cut_for_one_whose_memory_is_wanted():
    """X leaves from 1 to 6. Y is made by step 1, and Z is born in its place in step 3."""
    uses = [[(X, WRITE)], [(Y, WRITE)], [], [(Z, WRITE)], [(Z, READ)], [], []]
    plan, costs = by_hand(uses, (5, 1, 1), {}, (0, 5, 5), live_out=(X, Y))
    before = time_plan(plan, costs)
    assert (before.seconds, before.stall) == (pytest.approx(11), pytest.approx(4))
    after = reordered(plan, costs)
    verify(after)
    assert copies(after, OpKind.OUT) == [(X, (0, 1)), (Y, None), (X, (1, 4))]
    assert (after.seconds, after.stall) == (pytest.approx(7), pytest.approx(0, abs=1e-6))


def test_a_copy_that_has_not_begun_is_passed_whole():
    """X waits for Z's memory, which is copied out from 1 to 5; Y, behind it, could come in at once."""
    uses = [[(Z, WRITE)], [], [], [(Y, READ)], [], [], [], [], [], [(X, READ)]]
    plan, costs = by_hand(uses, (4, 1, 4), {X: 1, Y: 2}, (0, 5, 0), live_out=(Z,))
    assert time_plan(plan, costs).seconds == pytest.approx(17)  # X 5..9, Y 9..10, step 3 from 10 on
    after = reordered(plan, costs)
    verify(after)
    assert copies(after, OpKind.IN) == [(Y, None), (X, None)]
    assert after.seconds == pytest.approx(10)


def test_small_pieces_are_not_made():
    uses = [[(Z, WRITE)], [(Z, READ)], [], [(Y, READ)], [], [], [(X, READ)]]
    plan, costs = by_hand(uses, (5, 1, 1), {X: 0, Y: 2}, (0, 5, 5))
    for piece, pieces in ((2, [(X, (0, 2)), (Y, None), (X, (2, 3))]), (3, [(X, None), (Y, None)])):
        large = dataclasses.replace(SMALL_PIECES, piece=piece * SECOND)
        assert copies(reordered(plan, costs, large), OpKind.IN) == pieces
    after = reordered(plan, costs, dataclasses.replace(SMALL_PIECES, piece=5 * SECOND // 2))  # so it is cut at 2.5
    assert copies(after, OpKind.IN) == [(X, (0, 2.5)), (Y, None), (X, (2.5, 2.5))]
    assert after.seconds == pytest.approx(7.5)


# -- random programs ---------------------------------------------------------------------------------------------------
def random_plans(seeds):
    """(plan, costs): with look-ahead, and by predicted time in little memory; contiguous and in pages."""
    for seed in seeds:
        rng = seeded(seed)
        for make in (random_program, net_program):
            program, buffers = make(seed)
            costs = Costs([rng.choice((1e-4, 1e-3, 4e-3)) for _ in program.steps], {}, LINK)
            for page in (None, 1024):
                least = make_plan(program, buffers, limit=None, ahead=0, page=page).arena_bytes
                yield make_plan(program, buffers, limit=None, ahead=rng.randint(1, 6), page=page), costs
                limit = least + rng.choice((0, 2048, 8192))
                yield (
                    optimise(
                        program,
                        buffers,
                        limit=limit,
                        costs=costs,
                        remats={},
                        scratch=frozenset(),
                        rules=(Rules(remats=False),),
                        page=page,
                    ),
                    costs,
                )


def seconds_of(plan, costs) -> float:
    """When a plan ends, event by event: of every stream the next operation runs as soon as what it waits for ends."""
    queues = {s: [op for op in plan.ops if op.stream == s] for s in range(4)}
    done, left, now = set(), {}, 0.0
    while any(queues.values()):
        held = min((op.id for op in queues[HOST]), default=len(plan.ops))  # what is behind is not issued yet
        heads = [q[0] for q in queues.values() if q and q[0].id <= held and done.issuperset(q[0].waits)]
        for op in heads:
            copied = (
                0.0
                if op in plan.carried_over
                else op.place and LINK.copy_seconds(plan.copied(op), op.kind is OpKind.OUT)
            )
            left.setdefault(op.id, costs.steps[op.step] if copied is None else copied)
        passed = min(left[op.id] for op in heads)
        now += passed
        for op in heads:
            left[op.id] -= passed
            if left[op.id] < 1e-12:
                done.add(op.id)
                queues[op.stream].pop(0)
    return now


@pytest.mark.parametrize(
    "seeds",
    [
        pytest.param(range(2, 100, 5), id="sample"),
        pytest.param(range(100), id="all", marks=pytest.mark.thorough),  # in few is much gained
    ],
)
def test_passes_gain_and_are_proved(seeds):
    passed, parts, gained = 0, 0, []
    for before, costs in random_plans(seeds):
        plan = reordered(before, costs)
        verify(plan)
        verify(with_host_slots(plan, 4096))
        assert plan.seconds == pytest.approx(seconds_of(plan, costs), rel=1e-6)
        same = ("arena_bytes", "bytes_in", "bytes_out", "order", "program")
        assert [getattr(plan, n) for n in same] == [getattr(before, n) for n in same]
        for stream, nbytes in ((OpKind.IN, plan.bytes_in), (OpKind.OUT, plan.bytes_out)):
            copies = [op for op in plan.ops if op.kind is stream and op not in plan.carried_over]
            assert sum(map(plan.copied, copies)) == nbytes
        if plan.ops == before.ops:
            assert plan.copy_pieces == 0
            continue
        passed, parts = passed + 1, parts + plan.copy_pieces
        gained.append(1 - plan.seconds / seconds_of(before, costs))
        assert gained[-1] > 0
    assert passed > len(seeds) and parts > len(seeds) and max(gained) > 0.15


def with_parts(seeds):
    for before, costs in random_plans(seeds):
        plan = reordered(before, costs)
        if plan.copy_pieces:
            yield plan, costs


@pytest.mark.parametrize(
    "seeds",
    [pytest.param(range(0, 30, 3), id="sample"), pytest.param(range(30), id="all", marks=pytest.mark.thorough)],
)
def test_every_single_wait_is_needed(seeds):
    """But for one for the last part of a copy out where only bytes of an earlier part are taken."""
    tried, spare = 0, []
    for plan, _ in with_parts(seeds):
        for i, op in enumerate(plan.ops):
            for w in op.waits:
                fewer = dataclasses.replace(op, waits=tuple(x for x in op.waits if x != w))
                tried += 1
                try:
                    verify(dataclasses.replace(plan, ops=(*plan.ops[:i], fewer, *plan.ops[i + 1 :])))
                    spare.append(plan.ops[w])
                except PlanError:
                    pass
    assert (
        tried > 100 * len(seeds) // 3
        and len(spare) < 5
        and all(op.kind is OpKind.OUT and not op.begins for op in spare)
    )


# -- spoiled -----------------------------------------------------------------------------------------------------------
def _wrong_parts(plan):
    """(what is wrong, operations) for every part of the plan."""
    ops = list(plan.ops)

    def changed(i, **fields):
        return [dataclasses.replace(op, **fields) if op.id == i else op for op in ops]

    last = {}  # (kind, buffer) -> its next part
    for op in reversed(ops):
        if op.part is None:
            continue
        start, nbytes = op.part
        following = (
            last.get((op.kind, op.place.buffer)) if sum(op.part) < plan.buffers[op.place.buffer].nbytes else None
        )
        last[op.kind, op.place.buffer] = op
        yield "gap or too short", changed(op.id, part=(start, nbytes - 512))
        yield "overlap or too long", changed(op.id, part=(start, nbytes + 512))
        yield "begins elsewhere", changed(op.id, part=(start + 512, nbytes))
        yield "whole", changed(op.id, part=None)
        yield "negative", changed(op.id, part=(start - 512, nbytes + 512))
        if following is None:
            if op.kind is OpKind.OUT and op.release:
                yield "never given back", changed(op.id, release=False)
            continue
        yield "to another place", changed(op.id, place=dataclasses.replace(op.place, offset=op.place.offset + 512))
        swapped = list(ops)
        swapped[op.id] = dataclasses.replace(op, part=following.part)
        swapped[following.id] = dataclasses.replace(following, part=op.part)
        yield "in another order", swapped
        if op.kind is OpKind.OUT:
            yield "given back before the last part", changed(op.id, release=True)
        if op.host_slot is not None:
            if op.kind is OpKind.IN:
                yield "home given up too early", changed(op.id, host_slot=dataclasses.replace(op.host_slot, last=True))
            yield "in memory of its own", changed(op.id, host_slot=None)
            yield "home elsewhere", changed(op.id, host_slot=HostSlot(op.host_slot.segment, op.host_slot.offset + 512))
        for user in ops if op.kind is OpKind.IN else ():
            if following.id in user.waits:
                waits = tuple(op.id if w == following.id else w for w in user.waits)
                yield "waits for the first part", changed(user.id, waits=waits)


def test_wrong_parts_are_found():
    caught = {}
    for plan, _ in with_parts(range(80)):
        for what, ops in _wrong_parts(with_host_slots(plan, 4096)):
            with pytest.raises(PlanError):
                verify(dataclasses.replace(with_host_slots(plan, 4096), ops=tuple(ops)))
                pytest.fail(f"{plan.program.name}: {what} was not noticed")
            caught[what] = caught.get(what, 0) + 1
    assert len(caught) == 13, caught


def test_nobody_may_touch_a_value_whose_copy_is_under_way():
    """X comes in from before step 0 until behind step 2; in the other plan it goes out after steps 0 and 1."""
    uses = [[(Z, WRITE)], [(Z, READ)], [], [(Y, READ)], [], [], [(X, READ)]]
    plan, costs = by_hand(uses, (5, 1, 1), {X: 0, Y: 2}, (0, 5, 5))
    plan = reordered(plan, costs)
    verify(_touching(plan, 2, X, READ))
    for mode in Mode:
        with pytest.raises(PlanError, match='only a part of "b0" is copied'):
            verify(_touching(plan, 1, X, mode))
    uses = [[(X, WRITE)], [(Y, WRITE)], [], [(Z, WRITE)], [(Z, READ)], [], []]
    plan, costs = by_hand(uses, (5, 1, 1), {}, (0, 5, 5), live_out=(X, Y))
    plan = reordered(plan, costs)
    verify(_touching(plan, 1, X, READ))
    with pytest.raises(PlanError, match='only a part of "b0" is copied'):
        verify(_touching(plan, 1, X, Mode.UPDATE))


def _touching(plan, s, buffer, mode):
    """The plan of a program whose step `s` touches a buffer, too, and waits for all copies issued before it."""
    steps = list(plan.program.steps)
    steps[s] = dataclasses.replace(steps[s], accesses=(*steps[s].accesses, Access(buffer, mode)))
    program = dataclasses.replace(plan.program, steps=tuple(steps))
    at = next(op.id for op in plan.ops if op.kind is OpKind.COMPUTE and op.step == s)
    copied = tuple(op.id for op in plan.ops[:at] if op.place is not None)
    ops = (*plan.ops[:at], dataclasses.replace(plan.ops[at], waits=copied), *plan.ops[at + 1 :])
    return dataclasses.replace(plan, program=program, ops=ops)


def test_neither_steps_nor_copies_in_16_bits_have_parts():
    uses = [[(Z, WRITE)], [(Z, READ)], [], [(Y, READ)], [], [], [(X, READ)]]
    plan, costs = by_hand(uses, (5, 1, 1), {X: 0, Y: 2}, (0, 5, 5))
    step = next(op for op in plan.ops if op.kind is OpKind.COMPUTE)
    ops = tuple(dataclasses.replace(op, part=(0, 512)) if op is step else op for op in plan.ops)
    with pytest.raises(PlanError, match="a step has no parts"):
        verify(dataclasses.replace(plan, ops=ops))
    cut = reordered(plan, costs)
    compressed = {
        b: dataclasses.replace(buffer, compressed_bytes=buffer.nbytes // 2) for b, buffer in cut.buffers.items()
    }
    with pytest.raises(PlanError, match="are no part of the buffer"):
        verify(dataclasses.replace(cut, buffers=compressed))
    assert not reordered(dataclasses.replace(plan, buffers=compressed), costs).copy_pieces


# -- as text -----------------------------------------------------------------------------------------------------------
def _text(plan):
    return plan_text("net", [program_message(plan)])


def _read(text, plan):
    page = plan.paging.page if plan.paging is not None else None
    return plan_from(parse_plan(text, "my.plan")[plan.program.name], plan.program, plan.buffers, {}, frozenset(), page)


def test_there_and_back():
    pieces = 0
    for plan, _ in with_parts(range(60)):
        text = _text(plan)
        again = _read(text, plan)
        assert (again.ops, again.held_bytes, again.bytes_in) == (plan.ops, plan.held_bytes, plan.bytes_in)
        pieces += text.count("piece_in") + text.count("piece_out")
    assert pieces > 100


@pytest.mark.parametrize(
    ("old", "new", "match"),
    [
        ("bytes: 2097152 step: 0", "bytes: 2096640 step: 0", r"my.plan:\d+: .*multiples of 512 and make 5242880"),
        ("bytes: 2097152 step: 0", "bytes: 2097151 step: 0", "multiples of 512"),
        ("bytes: 2097152 step: 0", "bytes: 0 step: 0", "multiples of 512"),
        ("bytes: 3145728 step: 2", "bytes: 3145728 step: 0", "their steps must rise, from 0 or later to 6"),
        ("bytes: 3145728 step: 2", "bytes: 3145728 step: 7", "their steps must rise"),
        ("bytes: 2097152 step: 0", "bytes: 2097152 step: 1", "the first piece_in .* must be at step 0"),
        ("piece_in {", "piece_out {", "there is no such copy"),
        ("step: 2 }", "stop: 2 }", "not a plan"),
    ],
)
def test_wrong_pieces_in_a_file(old, new, match):
    uses = [[(Z, WRITE)], [(Z, READ)], [], [(Y, READ)], [], [], [(X, READ)]]
    plan, costs = by_hand(uses, (5, 1, 1), {X: 0, Y: 2}, (0, 5, 5))
    text = _text(reordered(plan, costs))
    assert _read(text, plan).copy_pieces == 2 and old in text
    with pytest.raises(PlanError, match=match):
        _read(text.replace(old, new), plan)


def test_a_copy_out_that_is_put_off_too_long_in_a_file():
    """Z is born in Y's place in step 3."""
    uses = [[(X, WRITE)], [(Y, WRITE)], [], [(Z, WRITE)], [(Z, READ)], [], []]
    plan, _ = by_hand(uses, (5, 1, 1), {}, (0, 5, 5), live_out=(X, Y))
    mine = next(line for line in _text(plan).splitlines() if 'buffer: "b1"' in line and "first" in line)
    for step, right in ((2, True), (3, False)):
        later = mine.replace("}", f"piece_out {{ bytes: {SECOND} step: {step} }} }}")
        text = _text(plan).replace(mine, later)
        if right:
            assert copies(_read(text, plan), OpKind.OUT) == [(X, None), (Y, None)]
            continue
        with pytest.raises(PlanError, match="overlaps"):
            _read(text, plan)
