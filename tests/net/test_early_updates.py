"""Updates run right after the last step that they depend on; every step still reads the same values."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from pycaffe_lms.backend.sim.device import SimDevice
from pycaffe_lms.lms.config import LMSConfig
from pycaffe_lms.lms.program import Access, Mode, Step
from pycaffe_lms.net.program.step_order import placed_early, with_updates
from tests.lms.nets import NETS, make_solver, train

from ..seeds import seeded

READ, UPDATE, OVERWRITE = Mode


def step(name, **accesses):
    modes = {"r": READ, "u": UPDATE, "w": OVERWRITE}
    parts = tuple(Access(ord(b), modes[m]) for m, buffers in accesses.items() for b in buffers)
    return SimpleNamespace(step=Step(name, parts))


def names(steps):
    return [s.step.name for s in steps]


def test_an_update_runs_when_its_gradient_is_complete_and_nobody_needs_the_parameter():
    steps = [
        step("forward a", r="A", w="x"),
        step("forward b", r="Bx", w="y"),
        step("backward b", r="By", w="bx"),
        step("backward a", r="Ax", w="a"),
    ]
    tail = [step("update A", r="a", u="A"), step("update B", r="b", u="B")]
    assert names(placed_early(steps, tail)) == [
        "forward a",
        "forward b",
        "backward b",
        "update B",
        "backward a",
        "update A",
    ]


def test_what_depends_on_all_of_them_waits_and_so_does_what_follows_it():
    steps = [step("backward b", w="b"), step("backward a", r="B", w="a")]
    tail = [step("norm", r="ab", w="n"), step("update B", r="bn", u="B"), step("unlike", w="z")]
    assert names(placed_early(steps, tail)) == ["backward b", "unlike", "backward a", "norm", "update B"]


def test_a_shared_parameter_waits_for_its_last_reader():
    steps = [step("backward c", r="A", w="a"), step("backward b", w="b"), step("backward a", r="A", u="a")]
    assert names(placed_early(steps, [step("update A", r="a", u="A")]))[-1] == "update A"


def test_of_no_steps_the_tail_is_left():
    assert names(placed_early([], [step("update A", u="A")])) == ["update A"]


def test_updates_wait_for_a_backward_on_the_host():
    forward, update = [step("forward a", r="A", w="x")], [step("update B", r="b", u="B")]
    back = [step("backward b", w="b"), step("backward a", r="x", w="a")]
    assert names(with_updates(forward, back, update, True))[2] == "update B"
    assert names(with_updates(forward, back, update, False))[-1] == "update B"
    back[1].step = Step("backward a", back[1].step.accesses, True)
    assert names(with_updates(forward, back, update, True))[-1] == "update B"


def values(steps):
    """What every step finds, by name: values are numbered by who made them of what."""
    now, found = {}, {}
    for s in steps:
        found[s.step.name] = tuple((a.buffer, now.get(a.buffer)) for a in s.step.accesses if a.mode is not OVERWRITE)
        for a in s.step.accesses:
            if a.mode is not READ:
                now[a.buffer] = s.step.name, found[s.step.name]
    return found, now


@pytest.mark.parametrize("seed", range(100))
def test_every_step_finds_what_it_finds_in_a_row(seed):
    rng = seeded(seed)

    def some(kind, count):
        return [
            step(
                f"{kind}{i}",
                **{
                    m: "".join(rng.sample("abcdefgh"[3 * k :][:3], rng.randrange(3)))
                    for k, m in enumerate(("r", "u", "w"))
                },
            )
            for i in range(count)
        ]

    steps, tail = some("step", rng.randrange(1, 20)), some("tail", rng.randrange(8))
    placed = placed_early(steps, tail)
    assert values(placed) == values([*steps, *tail])
    assert [n for n in names(placed) if n.startswith("step")] == names(steps)


@pytest.mark.parametrize("net", NETS)
def test_under_lms_updates_are_woven_into_the_backward_and_change_no_bit(net):
    solver = make_solver(net, SimDevice(64 << 20, order="random", seed=4), LMSConfig(threshold_kb=1, ahead=2))
    order = [s.step.name.split(":")[0] for s in solver.net.memory.programs.bound["train"].sequenced.steps]
    assert "update" in order[: len(order) - order[::-1].index("backward")]
    plain = make_solver(net, SimDevice(64 << 20))
    assert train(solver, 3) == train(plain, 3)
    order = [s.step.name.split(":")[0] for s in plain.net._iteration("train", True, plain.updates.tail).steps]
    assert "update" not in order[: len(order) - order[::-1].index("backward")]
