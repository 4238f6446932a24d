"""Replayed iterations under Large Model Support equal those without it and without graphs, to the bit.

On the simulated device, in many legal orders of concurrent work."""

from __future__ import annotations

import dataclasses
import functools

import pytest

from pycaffe_lms.backend.sim.device import SimDevice
from pycaffe_lms.errors import OutOfDeviceMemory
from pycaffe_lms.lms.config import LMSConfig
from pycaffe_lms.lms.cost.machine import MACHINES
from pycaffe_lms.lms.plan.plan import OpKind
from pycaffe_lms.lms.runtime import runtime

from ..lms.nets import NETS, TYPES, type_name
from ..sampling import sample
from . import replay_runs

ORDERS = [("latest", 0), ("earliest", 0), ("random", 1), ("random", 2)]
CONFIGS = {
    "on demand": LMSConfig(threshold_kb=1, ahead=0),
    "ahead": LMSConfig(threshold_kb=1, ahead=3),
    "all ahead": LMSConfig(threshold_kb=1, ahead=40),
    "by time": LMSConfig(threshold_kb=1),
    "some": LMSConfig(threshold_kb=1, frac=0.001),
    "auto": LMSConfig(threshold_kb=1, auto=True),
}
OPTIONS = [
    {},
    {"iter_size": 2, "lr_policy": '"exp"', "gamma": 0.9},
    {"iter_size": 3, "regularization_type": '"L1"'},
    {"clip_gradients": 0.05},
    {"test_interval": 1, "test_iter": 2},
]
KEYS = [
    ("train",),
    ("train first", "train last"),
    ("train first", "train more", "train last"),
    ("train, update apart", "norms"),
    ("train", "test net 0: test"),
]


def device(order="latest", seed=0):
    return SimDevice(64 << 20, order=order, seed=seed)


def with_lms(net, lms="by time", order="latest", seed=0, graph=True, **options):
    config = CONFIGS[lms] if isinstance(lms, str) else lms
    return replay_runs.make(net, device(order, seed), graph, lms=config, **options)


@functools.cache
def plain(net, act, **options):
    """Without Large Model Support and without graphs."""
    return act(replay_runs.make(net, device(), False, **options))


def rotated(case: int) -> list[tuple[int, str, int]]:
    """(index, order, seed) of every second one of ORDERS, from the first or from the second."""
    return [(k, *ORDERS[k]) for k in range(case % 2, len(ORDERS), 2)]


def plan_of(solver):
    return next(p for key, p in solver.net.memory.plans().items() if key.startswith("train"))


@pytest.mark.parametrize("lms", CONFIGS)
@pytest.mark.parametrize("net", [*NETS, *replay_runs.TEXTS.values()], ids=[*NETS, *replay_runs.TEXTS])
def test_graphs_and_copies_change_no_bit(net, lms):
    for order, seed in ORDERS[list(CONFIGS).index(lms) % 2 :: 2]:
        solver = with_lms(net, lms, order, seed)
        assert replay_runs.steps(solver) == plain(net, replay_runs.steps)
        assert replay_runs.recorded(solver) == {"train"}
        assert solver.net.device.launches == (2 if lms == "auto" else 4)  # which measures two iterations first
        assert lms in ("auto", "some") or plan_of(solver).copies


@pytest.mark.parametrize(("options", "keys"), list(zip(OPTIONS, KEYS, strict=True)), ids=str)
@pytest.mark.parametrize("net", ["residual", "groups", "shared"])
def test_every_program(net, options, keys):
    for k, order, seed in rotated(KEYS.index(keys)):
        solver = with_lms(net, ("ahead", "by time")[k // 2], order, seed, **options)
        assert replay_runs.steps(solver) == plain(net, replay_runs.steps, **options)
        assert replay_runs.recorded(solver) == set(keys)


@pytest.mark.parametrize("options", TYPES, ids=type_name)
@pytest.mark.parametrize("act", [replay_runs.steps, replay_runs.written_between])
def test_every_solver_type(options, act):
    """Their numbers change from one iteration to the next; a parameter's update reads them, too."""
    options = options | {"lr_policy": '"exp"', "gamma": 0.9, "base_lr": 0.01}
    for order, seed in ORDERS[1:3]:
        solver = with_lms("groups", "ahead", order, seed, **options)
        assert act(solver) == plain("groups", act, **options)
        assert replay_runs.recorded(solver) == {"train"}


@pytest.mark.parametrize(
    "act",
    [
        replay_runs.written_between,
        replay_runs.managed_written,
        replay_runs.passes_by_hand,
        replay_runs.nobody_waits,
        replay_runs.kept,
    ],
)
@pytest.mark.parametrize("net", NETS)
def test_what_happens_between_iterations(net, act):
    for k, order, seed in rotated(list(NETS).index(net)):
        solver = with_lms(net, ("ahead", "by time", "all ahead", "on demand")[k], order, seed)
        assert act(solver) == plain(net, act)
        assert replay_runs.recorded(solver) == {"train"}


@pytest.mark.parametrize("net", ["residual", "branches"])
@sample("seeds", range(20), 10)
def test_random_orders(net, seeds):
    for seed in seeds:
        lms = dataclasses.replace([*CONFIGS.values()][seed % 5], sync=seed // 5 % 4)
        solver = with_lms(net, lms, "random", seed)
        assert replay_runs.steps(solver, 5) == plain(net, functools.partial(replay_runs.steps, n=5)), f"seed {seed}"
        assert solver.net.device.launches == 3


@pytest.mark.parametrize("net", NETS)
@sample("shares", (0.6, 0.9, 0.3), 1)
def test_in_little_memory_with_steps_that_run_twice(net, shares, monkeypatch):
    """Where the link is slow, nearly everything that can be made again is."""
    slow = dataclasses.replace(MACHINES["h200"], link_in=1e3, link_out=1e3, link_both=2e3)
    monkeypatch.setattr(runtime, "machine_of", lambda name, memory: slow)
    runs, again = 0, 0
    needed = []
    for config in (CONFIGS["auto"], CONFIGS["on demand"]):
        solver = with_lms(net, config)
        needed.append(solver.runtime.resident_bytes + solver.runtime.workspace_bytes + plan_of(solver).arena_bytes)
    for k, share in enumerate(shares):
        budget = int(min(needed) + share * max(0, needed[0] - needed[1])) // 512 * 512
        try:
            solver = with_lms(net, dataclasses.replace(CONFIGS["auto"], budget=budget), *ORDERS[k + 1])
        except OutOfDeviceMemory:  # parameters stay, so the least may be a little more
            continue
        runs, again = runs + 1, again + plan_of(solver).rematerialized
        assert replay_runs.steps(solver) == plain(net, replay_runs.steps)
        assert solver.net.device.launches and solver.net.device.in_use() <= budget
    assert runs and (again or net in ("chain", "branches", "groups", "shared"))


@pytest.mark.parametrize("net", ["branches", replay_runs.STOCHASTIC], ids=["branches", "stochastic"])
def test_snapshot_and_resume_in_between(net, tmp_path):
    (tmp_path / "plain").mkdir()
    expected = replay_runs.resumed(replay_runs.make(net, device(), False), tmp_path / "plain")
    for k, (order, seed) in enumerate(ORDERS):
        (tmp_path / str(k)).mkdir()
        solver = with_lms(net, "ahead", order, seed)
        assert replay_runs.resumed(solver, tmp_path / str(k)) == expected
        assert replay_runs.recorded(solver) == {"train"}


def test_a_budget_that_changes():
    def act(solver):
        found = [replay_runs.steps(solver, 4)]
        if solver.runtime.active:
            start = plan_of(solver)
        for budget_kb in (150, 400):
            if solver.runtime.active:
                solver.net.device.set_budget(budget_kb << 10)
                solver.net.memory.forget_plans()
            found.append(replay_runs.steps(solver, 4))
            if solver.runtime.active:
                assert plan_of(solver).bytes_in != start.bytes_in and replay_runs.recorded(solver) == {"train"}
                start = plan_of(solver)
        return found

    for order, seed in ORDERS:
        assert act(with_lms("residual", "by time", order, seed)) == plain("residual", act)


@pytest.mark.filterwarnings("ignore::RuntimeWarning")  # what is read too early is poison
@pytest.mark.parametrize("kind", [OpKind.IN, OpKind.OUT, OpKind.COMPUTE])
def test_these_tests_can_fail(kind):
    """Without the waits of one kind of operation within the graph, some order gives other numbers."""

    def changes(seed):
        lms = LMSConfig(threshold_kb=1, ahead=4, budget=150 << 10)
        solver = with_lms("residual", lms, ("latest", "random")[seed % 2], seed)
        solver.nan = "ignore"
        solver.step(1)
        planned = solver.net.memory.programs.bound["train"].replay._planned
        ops = tuple(dataclasses.replace(op, waits=()) if op.kind is kind else op for op in planned._work.ops)
        planned._work = dataclasses.replace(planned._work, ops=ops)
        found = replay_runs.steps(solver, 4)
        assert solver.net.device.launches == 3
        return found[1] != plain("residual", functools.partial(replay_runs.steps, n=5))[1]

    assert any(map(changes, range(12)))
