"""Programs that are recorded and replayed compute the same bits as step by step; on the simulated device."""

from __future__ import annotations

import dataclasses
import logging

import pytest

from pycaffe_lms.backend.sim.device import SimDevice
from pycaffe_lms.errors import DeviceError
from pycaffe_lms.net.run.recording import host_front

from ..lms.nets import NETS, TYPES, type_name
from . import replay_runs

OPTIONS = [
    {},
    {"lr_policy": '"exp"', "gamma": 0.9},
    {"iter_size": 2},
    {"iter_size": 3, "regularization_type": '"L1"'},
    {"clip_gradients": 0.05},
    {"pack": True},
    {"test_interval": 1, "test_iter": 2},
]


def device(order="latest", seed=0):
    return SimDevice(64 << 20, order=order, seed=seed)


def both(net, act, *, order="latest", seed=0, **options):
    """What `act` returns without and with graphs, and the solver that had graphs."""
    plain = act(replay_runs.make(net, device(), False, **options))
    solver = replay_runs.make(net, device(order, seed), True, **options)
    return plain, act(solver), solver


@pytest.mark.parametrize("options", OPTIONS, ids=str)
@pytest.mark.parametrize("net", [*NETS, *replay_runs.TEXTS.values()], ids=[*NETS, *replay_runs.TEXTS])
def test_graphs_change_no_bit(net, options):
    plain, rematerialized, solver = both(net, replay_runs.steps, **options)
    assert rematerialized == plain
    n = options.get("iter_size", 1)
    keys = {1: {"train"}, 2: {"train first", "train last"}, 3: {"train first", "train more", "train last"}}[n]
    if "clip_gradients" in options:
        keys = {"train, update apart", "norms"}
    if "test_iter" in options:
        keys |= {"test net 0: test"}
    assert replay_runs.recorded(solver) == keys
    assert solver.net.device.launches >= 4


@pytest.mark.parametrize("options", TYPES, ids=type_name)
@pytest.mark.parametrize("act", [replay_runs.steps, replay_runs.written_between])
def test_every_solver_type(options, act):
    """The rate falls and, in Adam, the factor of its early iterations does: both are numbers that a replay reads."""
    options = options | {"lr_policy": '"exp"', "gamma": 0.9, "base_lr": 0.01}
    plain, rematerialized, solver = both("groups", act, **options)
    assert rematerialized == plain
    assert replay_runs.recorded(solver) == {"train"}


@pytest.mark.parametrize("order", ["earliest", "random"])
@pytest.mark.parametrize("act", [replay_runs.steps, replay_runs.written_between, replay_runs.passes_by_hand])
@pytest.mark.parametrize("net", ["branches", "residual"])
def test_every_order_of_the_streams(net, act, order):
    for seed in range(4 if order == "random" else 1):
        plain, rematerialized, _ = both(net, act, order=order, seed=seed)
        assert rematerialized == plain


@pytest.mark.parametrize("pack", [False, True], ids=["", "pack"])
@pytest.mark.parametrize("act", [replay_runs.written_between, replay_runs.kept])
@pytest.mark.parametrize("net", ["groups", "shared"])
def test_what_happens_between_iterations(net, act, pack):
    plain, rematerialized, solver = both(net, act, pack=pack)
    assert rematerialized == plain
    assert replay_runs.recorded(solver) == {"train"}


@pytest.mark.parametrize("net", ["branches", replay_runs.STOCHASTIC], ids=["branches", "stochastic"])
def test_snapshot_and_resume_in_between(net, tmp_path):
    plain, rematerialized, solver = both(net, lambda s: replay_runs.resumed(s, tmp_path))
    assert rematerialized == plain
    assert replay_runs.recorded(solver) == {"train"}


def test_recorded_at_the_third_run_and_again_where_something_moved():
    solver = replay_runs.make("groups", device(), True)
    found = []
    for i in range(12):
        if i == 5:  # an address changed
            memory = solver.net.learnable_params[0].data_memory
            solver.net.learnable_params[0].read_data()
            memory.give_back()
            memory.state = type(memory.state).HEAD_AT_CPU
        if i == 9:
            solver.net.device.settings = lambda: "other"
        solver.step(1)
        found.append(solver.net.device.launches)
    assert found == [0, 0, 1, 2, 3, 3, 3, 4, 5, 5, 5, 6]
    plain = replay_runs.make("groups", device(), False)
    plain.step(12)
    assert replay_runs.bits(solver) == replay_runs.bits(plain)


def test_recorded_again_where_the_arena_moved():
    """A program that needs a larger one came to the runtime, whose nets use one arena in turn."""
    solver = replay_runs.make("groups", SimDevice(64 << 20, page=None), True, pack=True)
    solver.step(4)
    plan = solver.net.memory.plans()["train"]
    place = solver.runtime.arena.of(plan)
    solver.runtime.prepare(dataclasses.replace(plan, arena_bytes=2 * plan.arena_bytes), solver.net.memory.memories)
    assert solver.runtime.arena.of(plan) is not place and solver.net.device.launches == 2
    solver.step(2)
    assert solver.net.device.launches == 2
    solver.step(2)
    assert solver.net.device.launches == 4
    plain = replay_runs.make("groups", device(), False, pack=True)
    plain.step(8)
    assert replay_runs.bits(solver) == replay_runs.bits(plain)


def test_a_shape_that_changes():
    def act(solver):
        start = replay_runs.steps(solver, 4)
        for node in solver.net.graph.nodes:
            if node.name == "data":
                node.layer.shapes[:] = [(2, 3, 12, 12), (2,)]
        return [*start, *replay_runs.steps(solver, 4)]

    plain, rematerialized, solver = both("branches", act)
    assert rematerialized == plain
    assert solver.net.blobs["data"].shape == (2, 3, 12, 12) and replay_runs.recorded(solver) == {"train"}


def test_nobody_records_what_is_watched():
    solver = replay_runs.make("chain", device(), True)
    solver.net.memory.timer = lambda: None
    solver.step(4)
    assert solver.net.device.launches == 0
    solver.net.memory.timer = None
    solver.step(4)
    assert solver.net.device.launches == 2


def test_a_device_that_refuses(caplog):
    """One warning, then step by step; nothing else changes."""

    class Refuses(SimDevice):
        def capture(self, work):
            super().capture(work)
            raise DeviceError("no graphs today")

    solver = replay_runs.make("groups", Refuses(64 << 20), True, pack=True, test_interval=1, test_iter=1)
    with caplog.at_level(logging.WARNING):
        rematerialized = replay_runs.steps(solver)
    assert rematerialized == replay_runs.steps(
        replay_runs.make("groups", device(), False, pack=True, test_interval=1, test_iter=1)
    )
    assert [r.getMessage() for r in caplog.records if "no graphs today" in r.getMessage()] == [
        "Program test cannot be recorded as a graph, so programs run step by step: no graphs today"
    ]
    assert not replay_runs.recorded(solver)


def test_a_failure_in_the_middle_of_a_recording():
    """What a half-recorded run left behind does not harm the run that follows step by step."""
    solver = replay_runs.make("residual", device(), True, pack=True)
    inner, calls = solver.net.device.capture, []

    def breaks(work):
        def some():
            calls.append(1)
            execute = solver.net.memory._execute
            solver.net.memory._execute = lambda step: execute(step) if step.step.name != "backward:c3" else 1 / 0
            try:
                work()
            finally:
                del solver.net.memory._execute

        return inner(some)

    solver.net.device.capture = breaks
    rematerialized = replay_runs.steps(solver)
    assert rematerialized == replay_runs.steps(replay_runs.make("residual", device(), False, pack=True))
    assert calls == [1]


CHAIN = NETS["chain"]


def front(solver):
    bound = solver.net.memory.programs.bound["train"]
    return host_front(solver.net.graph, bound.sequenced)


def test_what_can_be_recorded():
    assert front(replay_runs.make(replay_runs.ON_HOST, device(), True)) == 1  # the data layer
    solver = replay_runs.make("chain", device(), True)
    assert front(solver) == 0
    solver.net.forward_range()
    solver.net.forward_range(0, 1)
    assert [b.replay is None for b in solver.net.memory.programs.bound.values()] == [False, False, True]  # few steps


HOST_LAYER = """
layer { name: "py" type: "Python" bottom: "fc" top: "py"
  python_param { module: "tests.layers.user_layers" layer: "Tenfold" } }
layer { name: "loss2" type: "EuclideanLoss" bottom: "py" bottom: "fc" top: "loss2" loss_weight: 0.001 }
"""


def test_a_host_layer_in_the_middle_is_not_recorded():
    middle = CHAIN.replace('layer { name: "loss"', HOST_LAYER + 'layer { name: "loss"')
    plain, rematerialized, solver = both(middle, replay_runs.steps)
    assert rematerialized == plain
    assert front(solver) is None and solver.net.device.launches == 0


def test_a_layer_that_says_no():
    solver = replay_runs.make("chain", device(), True)
    layer = solver.net.graph.nodes[2].layer
    layer.declares = dataclasses.replace(layer.declares, cuda_graph_safe=False)
    assert front(solver) is None


def test_switched_off():
    solver = replay_runs.make("chain", device(), False)
    solver.step(4)
    assert solver.net.device.launches == 0 and front(solver) == 0
