"""Memory that a step gives on to what it writes: at remats, and where the old value is made again later."""

from __future__ import annotations

import dataclasses

import pytest

from pycaffe_lms.backend.sim.device import SimDevice
from pycaffe_lms.errors import OutOfDeviceMemory, PlanError
from pycaffe_lms.formats.prototxt.parser import parse_solver
from pycaffe_lms.lms.config import LMSConfig
from pycaffe_lms.lms.cost.machine import MACHINES, Costs
from pycaffe_lms.lms.plan.plan import OpKind
from pycaffe_lms.lms.plan.verify import verify
from pycaffe_lms.lms.planner import choose
from pycaffe_lms.lms.planner.evict import Constraints
from pycaffe_lms.lms.planner.optimise import optimise
from pycaffe_lms.lms.program import Access, Buffer, Mode, Program, Step
from pycaffe_lms.lms.remat.candidates import ordered, verify_remat
from pycaffe_lms.lms.rules import Rules
from pycaffe_lms.net.tuning import Tuning
from pycaffe_lms.solvers import solver_class

from ..sampling import sample
from ..seeds import seeded
from .nets import _DATA, head, train, unit

READ, UPDATE, OVERWRITE = Mode.READ, Mode.UPDATE, Mode.OVERWRITE
UNIT = 512
SLOW = dataclasses.replace(MACHINES["h200"], link_in=1e6, link_out=1e6, link_both=2e6)


def _step(name, reads="", writes="", reuses=()):
    """Buffers are letters."""
    accesses = [Access(ord(b), READ) for b in reads] + [Access(ord(b), OVERWRITE) for b in writes]
    return Step(name, tuple(accesses), False, tuple((ord(old), ord(new)) for old, new in reuses))


def _plan(steps, letters, units, again, remat_reuses=True):
    """The plan in `units` buffers' memory where only `again` (indices of steps) can be run once more, none copied."""
    program = Program("p", tuple(steps), frozenset())
    buffers = {ord(b): Buffer(ord(b), b, UNIT) for b in letters}
    remats = {s: dataclasses.replace(steps[s], name=f"again:{s}") for s in again}
    if not remat_reuses:
        remats = {s: dataclasses.replace(step, reuses=()) for s, step in remats.items()}
    plan = optimise(
        program,
        buffers,
        limit=units * UNIT,
        costs=Costs([1e-6] * len(steps), dict.fromkeys(again, 1e-6), SLOW),
        remats=remats,
        scratch=frozenset(),
        rules=(Rules(linked_weight=0.5),),
        constraints=Constraints(frozenset(buffers)),
    )
    verify(plan)
    verify_remat(program, ordered(program, remats, plan.order), remats, frozenset())
    assert plan.arena_bytes <= units * UNIT and not plan.copies
    return plan


def _given(plan, again):
    """(step, old, new) of inplace_reuses at remats, or at other steps."""
    return [
        (plan.program.steps[op.step].name, chr(old), chr(new))
        for op in plan.ops
        for old, new in op.inplace_reuses
        if plan.order[op.step][1] is again
    ]


REMATERIALIZED = [
    _step("a", "", "a"),
    _step("b", "a", "b", ["ab"]),
    _step("fill", "", "cd"),  # two of two: a and b are gone
    _step("use", "bc"),  # b is wanted again, while c stays
]


@pytest.mark.pure
def test_two_buffers_suffice_with_a_handover_at_a_remat():
    plan = _plan(REMATERIALIZED, "abcd", 2, [0, 1])
    assert _given(plan, True) == [("again:1", "a", "b")]
    assert [s for s, again in plan.order if again] == [0, 1]
    with pytest.raises(OutOfDeviceMemory):
        _plan(REMATERIALIZED, "abcd", 2, [0, 1], remat_reuses=False)


FORWARD = [
    _step("z", "", "z"),  # stays: it cannot be made again
    _step("r", "", "r"),
    _step("x", "", "x"),
    _step("y", "xr", "y", ["ry"]),
    _step("back", "yr"),
    _step("end", "z"),
]


@pytest.mark.pure
def test_a_forward_gives_on_the_memory_of_a_value_that_is_made_again():
    """x, r and y are three, z is a fourth; in three units r must go while y is made."""
    plan = _plan(FORWARD, "zrxy", 3, [1])
    assert _given(plan, False) == [("y", "r", "y")]
    assert [s for s, again in plan.order if again] == [1]
    assert not _given(_plan(FORWARD, "zrxy", 4, [1]), False)
    plain = [dataclasses.replace(step, reuses=()) for step in FORWARD]
    with pytest.raises(OutOfDeviceMemory):
        _plan(plain, "zrxy", 3, [1])


SHORT = [
    _step("r", "", "r"),
    _step("x", "r", "x"),
    _step("y", "xr", "y", ["ry"]),  # three, or two if r goes
    _step("back", "y"),
    _step("end", "r"),
]


@pytest.mark.pure
def test_a_step_that_fits_only_if_it_gives_memory_on_is_not_refused():
    plan = _plan(SHORT, "rxy", 2, [0])
    assert _given(plan, False) == [("y", "r", "y")]
    assert [s for s, again in plan.order if again] == [0]
    for again in ([], [1]):  # r cannot be made again
        with pytest.raises(OutOfDeviceMemory, match="step y needs 1.5 KiB"):
            _plan(SHORT, "rxy", 2, again)
    changed = [*SHORT[:4], _step("other r", "", "x"), SHORT[4]]
    assert _given(_plan(changed, "rxy", 2, [0]), False) == [("y", "r", "y")]


def _without_reuses(plan, name):
    steps = tuple(dataclasses.replace(s, reuses=()) if s.name == name else s for s in plan.program.steps)
    return dataclasses.replace(plan, program=dataclasses.replace(plan.program, steps=steps))


def _with_ops(plan, change):
    return dataclasses.replace(plan, ops=tuple(change(op) if op.inplace_reuses else op for op in plan.ops))


@pytest.mark.pure
@pytest.mark.parametrize(
    ("case", "again", "name"),
    [((REMATERIALIZED, "abcd", 2, [0, 1]), True, "again:1"), ((FORWARD, "zrxy", 3, [1]), False, "y")],
)
def test_the_verifier_refuses_wrong_handovers(case, again, name):
    plan = _plan(*case)
    assert [step for step, _, _ in _given(plan, again)] == [name]
    with pytest.raises(PlanError, match="which the step does not allow"):
        verify(_without_reuses(plan, name))
    with pytest.raises(PlanError, match="overlaps"):
        verify(_with_ops(plan, lambda op: dataclasses.replace(op, inplace_reuses=())))
    with pytest.raises(PlanError, match="which the step does not allow"):  # it does not end
        verify(_with_ops(plan, lambda op: dataclasses.replace(op, drops=())))
    old, new = next(pair for op in plan.ops for pair in op.inplace_reuses)
    behind = next(op.step for op in plan.ops if op.inplace_reuses) + 1
    steps = list(plan.program.steps)
    steps[behind] = dataclasses.replace(steps[behind], accesses=(*steps[behind].accesses, Access(old, READ)))
    read_later = dataclasses.replace(plan, program=dataclasses.replace(plan.program, steps=tuple(steps)))
    if not any(a.buffer == old for a in plan.program.steps[behind].accesses):
        with pytest.raises(PlanError, match="is not on the device"):
            verify(read_later)


@pytest.mark.pure
def test_a_wrong_value_in_the_place_of_another_is_found():
    """r handed its place on, and nobody made it again before "back" reads it."""
    plan = _plan(FORWARD, "zrxy", 3, [1])
    program = Program("p", tuple(FORWARD), frozenset())
    remats = {1: dataclasses.replace(FORWARD[1], name="again:1")}
    order = [(s, again) for s, again in plan.order if not again]
    late = [*order[:-1], (1, True), order[-1]]
    verify_remat(program, ordered(program, remats, plan.order), remats, frozenset())
    kept = dataclasses.replace(plan, program=ordered(program, remats, late).program)
    with pytest.raises(PlanError):
        verify(kept)


def _residual_program(seed):
    """Chains whose sums may lie where the shortcut lay, forward and backward; sizes are mostly alike."""
    rng = seeded(seed)
    buffers, steps = {}, []

    def new(name, units):
        buffers[len(buffers)] = Buffer(len(buffers), name, UNIT * units)
        return len(buffers) - 1

    value = y = new("in", 2)
    steps.append(Step("data", (Access(y, OVERWRITE),)))
    backward, outputs = [], 2
    for i in range(rng.randint(2, 7)):
        inner, x, y = new(f"h{i}", rng.randint(1, 3)), new(f"x{i}", outputs), new(f"y{i}", outputs)
        reads = ((value, inner), (inner, x))
        steps += [Step(f"forward:{a}>{b}", (Access(a, READ), Access(b, OVERWRITE))) for a, b in reads]
        accesses = (Access(x, READ), Access(value, READ), Access(y, OVERWRITE))
        steps.append(Step(f"forward:sum{i}", accesses, False, ((value, y),)))
        backward.append((value, inner, x, y))
        value = y
    gradient = new("loss", outputs)
    steps.append(Step("loss", (Access(value, READ), Access(gradient, OVERWRITE))))
    for i, (a, inner, x, _) in reversed(list(enumerate(backward))):
        down, side = new(f"d{i}", outputs), new(f"s{i}", outputs)
        parts = (Access(x, READ), Access(gradient, READ), Access(down, OVERWRITE))
        steps.append(Step(f"backward:sum{i}", parts, False, ((x, down),)))
        parts = (Access(inner, READ), Access(a, READ), Access(down, READ), Access(side, OVERWRITE))
        steps.append(Step(f"backward:{i}", (*parts, Access(gradient, UPDATE))))
        gradient = side
    return Program(f"residual {seed}", tuple(steps), frozenset({gradient})), buffers


@pytest.mark.pure
@pytest.mark.parametrize("page", [None, 1024])
@sample("seeds", range(50), 15)
def test_random_residual_chains_are_proved(page, seeds):
    at_remats = at_others = 0
    for seed in seeds:
        program, buffers = _residual_program(seed)
        remats = {
            s: dataclasses.replace(step, name=f"again:{s}")
            for s, step in enumerate(program.steps)
            if step.name.startswith("forward")
        }
        rng = seeded(seed)
        seconds = [rng.choice((1e-6, 1e-5)) for _ in program.steps]
        costs = Costs(seconds, {s: seconds[s] for s in remats}, SLOW)
        for units in (12, 14, 17):
            plan = optimise(
                program,
                buffers,
                limit=units * UNIT,
                costs=costs,
                remats=remats,
                scratch=frozenset(),
                rules=(Rules(copies=False, linked_weight=0.5), Rules(linked_weight=0.5)),
                page=page,
            )
            verify(plan)
            verify_remat(program, ordered(program, remats, plan.order), remats, frozenset())
            assert plan.arena_bytes <= units * UNIT
            for op in plan.ops:
                if op.kind is OpKind.COMPUTE and op.inplace_reuses:
                    at_remats += plan.order[op.step][1]
                    made_later = {
                        a.buffer
                        for s, again in plan.order[op.step :]
                        if again
                        for a in remats[s].accesses
                        if a.mode is OVERWRITE
                    }
                    at_others += not plan.order[op.step][1] and any(old in made_later for old, _ in op.inplace_reuses)
    assert at_remats > 20 and at_others > 20


def _block(name, bottom):
    add = f'layer {{ name: "{name}" type: "Eltwise" bottom: "{bottom}" bottom: "{name}b" top: "{name}" }}\n'
    relu = f'layer {{ name: "{name}_relu" type: "ReLU" bottom: "{name}" top: "{name}" }}\n'
    return unit(f"{name}a", bottom, 4) + unit(f"{name}b", f"{name}a", 4, relu=False) + add + relu


BLOCKS = _DATA + unit("e", "data", 4) + "".join(_block(*pair) for pair in ("fe", "gf", "hg", "ih")) + head("i")


def _solver(device, lms=None):
    text = (
        "base_lr: 0.05 momentum: 0.9 lr_policy: 'fixed' max_iter: 9 random_seed: 7 snapshot_after_train: false\n"
        f"net_param {{ name: 'm'\n{BLOCKS} }}\n"
    )
    parsed = parse_solver(text, "m.prototxt")
    more = {"file": parsed.filename, "lines": parsed.lines, "device": device, "lms": lms}
    return solver_class(parsed.message)(parsed.message, tuning=Tuning(split_backward=False), **more)


@sample("seeds", range(12), 4)
def test_training_with_handovers_at_remats_is_the_same_to_the_bit(monkeypatch, seeds):
    """Residual blocks in less and less memory, in random orders of the streams; whatever can be is made again."""
    rules = (Rules(copies=False, linked_weight=0.5, checkpoint_density=3.5),)
    only = {"rules": rules}
    monkeypatch.setattr(choose, "optimise", lambda *args, **more: optimise(*args, **(more | only)))
    expected, handed = train(_solver(SimDevice(64 << 20)), 3), 0
    roomy = _solver(SimDevice(64 << 20), LMSConfig(threshold_kb=1, ahead=0))
    least = roomy.net.memory.plans()["train"].arena_bytes + roomy.runtime.resident_bytes
    least += roomy.runtime.workspace_bytes
    for seed in seeds:
        device = SimDevice(64 << 20, order="random", seed=seed)
        solver = _solver(device, LMSConfig(auto=True, threshold_kb=1, budget=least + seed * 4096))
        plan = solver.net.memory.plans()["train"]
        handed += any(op.inplace_reuses and plan.order[op.step][1] for op in plan.ops if op.kind is OpKind.COMPUTE)
        assert train(solver, 3) == expected
    assert handed > len(seeds) // 4
