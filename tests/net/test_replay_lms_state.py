"""Replayed iterations under Large Model Support: states, counters, failures, what makes a program be recorded again.

On the simulated device."""

from __future__ import annotations

import dataclasses
import logging

import pytest

from pycaffe_lms.backend.sim.device import SimDevice
from pycaffe_lms.errors import DeviceError
from pycaffe_lms.lms.runtime.recorder import Recorder
from pycaffe_lms.memory.states import Ask
from pycaffe_lms.ops import ops_of

from ..lms.nets import NETS
from . import replay_runs
from .test_replay_lms import CONFIGS, ORDERS, device, plain, plan_of, with_lms


def counted(stats):
    """All but the times of the iteration that was recorded: they depend on how the one before it ran."""
    programs = {name: dataclasses.replace(p, measured=None) for name, p in stats.programs.items()}
    return dataclasses.replace(stats, programs=programs)


@pytest.mark.parametrize("lms", ["ahead", "by time", "auto"])
def test_counters_and_states_are_those_of_runs_step_by_step(lms):
    solvers = [with_lms("residual", lms, graph=graph, test_interval=2, test_iter=1) for graph in (False, True)]
    for n in (4, 5, 7):
        for solver in solvers:
            solver.step(n - solver.iter)
            solver.net.device.synchronize()
        live, graphs = solvers
        assert counted(graphs.runtime.stats) == counted(live.runtime.stats) and graphs.runtime.stats.held == 0
        for a, b in zip((live.net, *live.test_nets), (graphs.net, *graphs.test_nets), strict=True):
            ours = {i: m for i, m in b.memory.memories.items() if m.managed}
            assert {i: m.state for i, m in ours.items()} == {i: a.memory.memories[i].state for i in ours}
            assert all(m.span is None for m in ours.values())
        copied = [(s.net.device.bytes_in, s.net.device.bytes_out) for s in solvers]
        assert copied[0] == copied[1]
    assert graphs.net.device.launches > 0 == live.net.device.launches


def test_the_next_batch_can_be_made_while_the_graph_runs():
    """What the host made at the front has its own event, soon over; what the graph copies has its end."""
    solver = with_lms(replay_runs.ON_HOST, "by time")
    solver.step(5)
    memories = {m.name: m for m in solver.net.memory.memories.values()}
    stream = solver.net.device.compute
    solver.net.device.synchronize()
    solver.net.iteration(True, solver.updates.tail, key="train")  # nobody asks for the loss
    queued = len(stream.tasks)
    solver.net.device.wait_host(memories["data.data"].host_event)
    assert queued > 20 and len(stream.tasks) == queued
    weights = next(b.data_memory for b in solver.net.learnable_params if b.data_memory.managed)
    solver.net.device.wait_host(weights.host_event)
    assert not stream.tasks


@pytest.mark.parametrize("graph", [False, True], ids=["step by step", "graph"])
def test_a_value_that_is_on_the_device_when_a_run_begins(graph):
    """It comes home on one stream, and is fetched on another."""

    def act(solver):
        for _ in range(5):
            solver.step(1)
            blob = solver.net.params["conv2"][0]  # which is fetched before everything else
            blob.data_memory.ask(Ask.WRITE_GPU)
            array = blob.data_memory.device_array(blob.shape, "float32")
            ops_of(solver.net.device).fill(array, 0.01 * solver.iter)
        return replay_runs.steps(solver, 2)

    for order, seed in [*ORDERS, *(("random", seed) for seed in range(3, 15))]:
        solver = with_lms("chain", "all ahead", order, seed, graph)
        assert solver.net.params["conv2"][0].data_memory.managed
        assert act(solver) == plain("chain", act)
        assert (solver.net.device.launches > 0) == graph


def test_recorded_again_where_a_home_moved():
    solver = with_lms("groups")
    memory = solver.net.learnable_params[0].data_memory
    assert memory.managed
    found = []
    for i in range(10):
        if i == 5:
            memory.move_home(solver.runtime.slab.take({0: memory.nbytes})[0])
        solver.step(1)
        found.append(solver.net.device.launches)
    assert found == [0, 0, 1, 2, 3, 3, 3, 4, 5, 6]
    expected = replay_runs.make("groups", device(), False)
    expected.step(10)
    assert replay_runs.bits(solver) == replay_runs.bits(expected)


def test_recorded_again_where_shared_homes_moved():
    """A larger program's segment takes the place of a smaller one; what was recorded writes to the old one."""
    solver = with_lms("groups", "on demand")
    slab, found = solver.runtime.slab, []
    assert plan_of(solver).host_segments and slab.shared
    for i in range(10):
        if i == 5:
            slab.rehouse([], [2 * slab.shared[0].nbytes])
        solver.step(1)
        found.append(solver.net.device.launches)
    assert found == [0, 0, 1, 2, 3, 3, 3, 4, 5, 6]
    expected = replay_runs.make("groups", device(), False)
    expected.step(10)
    assert replay_runs.bits(solver) == replay_runs.bits(expected)


def test_nobody_records_copies_of_memory_that_is_not_locked():
    solver = with_lms("groups")
    solver.net.learnable_params[0].data_memory.locked = False
    assert replay_runs.steps(solver) == plain("groups", replay_runs.steps)
    assert solver.net.device.launches == 0


def test_iterations_that_are_watched_in_between():
    def act(solver):
        for i in range(9):
            if i % 3 == 1:
                with Recorder(solver.runtime).iteration("watched"):
                    solver.step(1)
            else:
                solver.step(1)
        return replay_runs.steps(solver, 1)

    for order, seed in ORDERS:
        solver = with_lms("branches", "ahead", order, seed)
        assert act(solver) == plain("branches", act)
        assert solver.net.device.launches > 0


@pytest.mark.parametrize("lms", ["ahead", "auto"])
def test_a_device_that_refuses(lms, caplog):
    class Refuses(SimDevice):
        def capture(self, work):
            super().capture(work)
            raise DeviceError("no graphs today")

    live = with_lms("residual", lms, graph=False)
    solver = replay_runs.make("residual", Refuses(64 << 20), True, lms=CONFIGS[lms])
    with caplog.at_level(logging.WARNING):
        assert replay_runs.steps(solver) == replay_runs.steps(live) == plain("residual", replay_runs.steps)
    assert ["no graphs today" in r.getMessage() for r in caplog.records] == [True]
    assert solver.runtime.stats == live.runtime.stats


@pytest.mark.parametrize("broken", [ZeroDivisionError, KeyboardInterrupt])
def test_a_failure_in_the_middle_of_a_recording(broken):
    """A run step by step follows; or, where the user stopped it, the next one starts from what was there."""
    solver = with_lms("residual", "ahead")
    solver.step(2)
    inner = solver.net.device.capture
    before = [(m, m.state, m.host_event) for m in solver.net.memory.memories.values() if m.managed]
    counted = dataclasses.replace(solver.runtime.stats)

    def breaks(work):
        def some():
            execute = solver.net.memory._execute

            def run(step):
                execute(step)
                if step.step.name == "backward:c3":
                    raise broken

            solver.net.memory._execute = run
            try:
                work()
            finally:
                del solver.net.memory._execute

        return inner(some)

    solver.net.device.capture = breaks
    if broken is KeyboardInterrupt:
        with pytest.raises(KeyboardInterrupt):
            solver.step(1)
        assert all(m.state is s for m, s, _ in before)
        assert all(m.span is None for m, _, _ in before) and solver.runtime.stats == counted
        solver.net.device.capture = inner
    solver.step(1)
    solver.step(1)
    assert solver.runtime.stats.held == 0
    if broken is ZeroDivisionError:
        assert not solver.net.device.can_capture
        assert replay_runs.steps(solver, 2) == plain("residual", replay_runs.steps)[:0] + replays_from_four()


def replays_from_four():
    solver = replay_runs.make("residual", device(), False)
    solver.step(4)
    return replay_runs.steps(solver, 2)


def test_a_host_layer_in_the_middle_is_not_recorded():
    text = NETS["residual"].replace(
        'layer { name: "loss"',
        'layer { name: "py" type: "Python" bottom: "fc" top: "py"\n'
        '  python_param { module: "tests.layers.user_layers" layer: "Tenfold" } }\n'
        'layer { name: "loss2" type: "EuclideanLoss" bottom: "py" bottom: "fc" top: "loss2" loss_weight: 0.001 }\n'
        'layer { name: "loss"',
    )
    solver = with_lms(text, "ahead")
    assert replay_runs.steps(solver) == plain(text, replay_runs.steps)
    assert solver.net.device.launches == 0


def test_switched_off():
    solver = with_lms("residual", graph=False)
    solver.step(4)
    assert solver.net.device.launches == 0
