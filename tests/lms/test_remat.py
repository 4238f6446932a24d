"""Values that must be made again, on random programs: never copied, gone before the backward, each made in time."""

from __future__ import annotations

import dataclasses

import pytest

from pycaffe_lms.errors import OutOfDeviceMemory, PlanError
from pycaffe_lms.lms.config import LMSConfig
from pycaffe_lms.lms.cost.machine import MACHINES, Costs
from pycaffe_lms.lms.plan.plan import OpKind
from pycaffe_lms.lms.plan.verify import verify
from pycaffe_lms.lms.planner.choose import choose_plan
from pycaffe_lms.lms.program import Access, Mode, Program, Step
from pycaffe_lms.lms.remat.candidates import RematCandidates, ordered, verify_remat
from pycaffe_lms.lms.remat.requested import CannotRemat, RematRequests, check_uncopied, remat_order
from pycaffe_lms.lms.request import PlanRequest

from ..sampling import sample
from ..seeds import seeded
from .programs import net_program

pytestmark = pytest.mark.pure
SLOW = dataclasses.replace(MACHINES["h200"], link_in=1e6, link_out=1e6, link_both=2e6)
CONFIGS = {
    "copies": LMSConfig(threshold_kb=1),
    "on demand": LMSConfig(threshold_kb=1, ahead=0),
    "3 ahead": LMSConfig(threshold_kb=1, ahead=3),
    "auto": LMSConfig(auto=True),
    "auto, 2 ahead": LMSConfig(auto=True, ahead=2),
}


def _forward_steps(program: Program) -> list[int]:
    return [s for s, step in enumerate(program.steps) if step.name.startswith("forward:")]


def _case(seed: int, share: float):
    program, buffers = net_program(seed)
    rng = seeded(1000 + seed)
    forward = _forward_steps(program)
    forced = frozenset(s for s in forward if rng.random() < share)
    remats = {s: Step(f"again:{s}", program.steps[s].accesses) for s in forward}
    made = {a.buffer for s in forced for a in program.steps[s].accesses if a.mode is Mode.OVERWRITE}
    turn = max(forward) + 2  # the loss is a forward, too
    seconds = [rng.choice((1e-6, 1e-4)) for _ in program.steps]
    costs = Costs(seconds, {s: seconds[s] for s in remats}, SLOW)
    return program, buffers, remats, costs, RematRequests(forced, turn, frozenset(made))


def _on_device_before(plan, program: Program, turn: int) -> set[int]:
    """Buffers that are on the device when step `turn` - 1 of the program is over, in order of issue."""
    here: set[int] = set()
    for op in plan.ops:
        if op.kind is OpKind.IN:
            here.add(op.place.buffer)
        if op.kind is OpKind.COMPUTE:
            here |= {p.buffer for p in op.births}
            here -= {*op.frees, *op.drops}
        if op.release:
            here.remove(op.place.buffer)
        if op.kind is OpKind.COMPUTE and plan.order[op.step] == (turn - 1, False):
            return here
    raise AssertionError("the step never runs")


@pytest.mark.parametrize("config", CONFIGS.values(), ids=CONFIGS)
@pytest.mark.parametrize("share", [0.3, 1.0])
@sample("seeds", range(35), 4)
def test_what_is_to_be_made_again_is_never_copied_and_gone_after_the_forward(config, share, seeds):
    fitted = 0
    for seed in seeds:
        program, buffers, remats, costs, remat_requests = _case(seed, share)
        for room in (1.0, 0.7, 0.5):
            limit = int(room * sum(b.nbytes for b in buffers.values())) // 512 * 512
            try:
                plan = choose_plan(
                    PlanRequest(program, buffers, costs, remats, requested=remat_requests), config, limit
                )
            except OutOfDeviceMemory:
                assert room < 1
                continue
            fitted += room < 1
            verify(plan)
            verify_remat(program, ordered(program, remats, plan.order), remats, frozenset())
            assert plan.arena_bytes <= limit
            copied = {op.place.buffer for op in plan.ops if op.place is not None}
            assert not copied & remat_requests.buffers
            assert not _on_device_before(plan, program, remat_requests.turn) & remat_requests.buffers
            again = {s for s, rematerialized in plan.order if rematerialized}
            read = {
                a.buffer for step in program.steps[remat_requests.turn :] for a in step.accesses if a.mode is Mode.READ
            }
            wanted = {s for s in remat_requests.steps if _made(program, s) & read}
            assert wanted <= again
            if not config.recomputes:
                assert again <= remat_requests.steps
    assert fitted > len(seeds) / 3


def _made(program: Program, s: int) -> set[int]:
    return {a.buffer for a in program.steps[s].accesses if a.mode is Mode.OVERWRITE}


def test_the_order_by_hand():
    """x -> a -> b -> c; backward reads c's bottom b, then a, then x. a and b are made again, a first."""
    read, write = Mode.READ, Mode.OVERWRITE
    x, a, b, g = range(4)
    steps = (
        Step("x", (Access(x, write),), host=True),
        Step("a", (Access(x, read), Access(a, write))),
        Step("b", (Access(a, read), Access(b, write))),
        Step("loss", (Access(b, read), Access(g, write))),
        Step("backward b", (Access(b, read), Access(g, Mode.UPDATE))),
        Step("backward a", (Access(a, read), Access(g, Mode.UPDATE))),
    )
    program = Program("hand", steps, frozenset({g}))
    remats = {s: Step(f"again {steps[s].name}", steps[s].accesses) for s in (1, 2)}
    can = RematCandidates(program, remats, frozenset())
    found = remat_order(program, can, RematRequests(frozenset({1, 2}), 4))
    assert found.order == ((0, False), (1, False), (2, False), (3, False), (1, True), (2, True), (4, False), (5, False))
    alone = remat_order(program, can, RematRequests(frozenset({1}), 4)).order
    assert alone == ((0, False), (1, False), (2, False), (3, False), (4, False), (1, True), (5, False))
    changed = (*steps[:4], Step("change x", (Access(x, Mode.UPDATE),)), *steps[4:])
    can = RematCandidates(Program("changed", changed, frozenset({g})), remats, frozenset())
    with pytest.raises(CannotRemat) as failure:
        remat_order(can.program, can, RematRequests(frozenset({1, 2}), 5))
    assert failure.value.made == 1 and changed[failure.value.wanted].name == "backward b"


def test_a_plan_that_copies_such_a_value_is_refused():
    program, buffers, remats, costs, remat_requests = _case(3, 1.0)
    plan = choose_plan(PlanRequest(program, buffers, costs, remats), CONFIGS["on demand"], 1 << 30)
    with pytest.raises(PlanError, match="RECOMPUTE"):
        check_uncopied(plan, remat_requests)
