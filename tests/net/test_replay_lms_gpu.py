"""On a GPU, iterations under Large Model Support as one CUDA graph, copies included, change no bit."""

from __future__ import annotations

import dataclasses
import gc

import numpy as np
import pytest

from pycaffe_lms.backend import cuda_available, get_device
from pycaffe_lms.errors import DeviceError
from pycaffe_lms.lms.config import LMSConfig

from ..lms.nets import NETS, TYPES, type_name
from . import replay_runs
from .test_replay_lms import CONFIGS, KEYS, OPTIONS

pytestmark = [pytest.mark.gpu, pytest.mark.skipif(not cuda_available(), reason="no GPU")]


@pytest.fixture
def device():
    device = get_device("cuda")
    device.set_budget(None)
    yield device
    assert device.can_capture, "a capture failed"
    device.synchronize()
    device.set_budget(None)


def check(net, act, device, lms, keys=frozenset({"train"}), **options):
    """Without LMS and graphs; with both; and with LMS, step by step."""
    found = []
    for graph, config in ((False, None), (True, lms), (False, lms)):
        solver = replay_runs.make(net, device, graph, lms=config, **options)
        did, stats = act(solver), solver.runtime.stats
        found.append((did, (stats.runs, stats.bytes_in, stats.bytes_out, stats.copies_in, stats.copies_out)))
        assert replay_runs.recorded(solver) == (set(keys) if graph else set())
        solver.runtime.close()
        del solver
        gc.collect()  # what it had is not of the next one's budget
        device.set_budget(None)
    assert found[1][0] == found[0][0] == found[2][0]
    if lms.ahead is not None:  # else the plan may follow measured times
        assert found[1][1] == found[2][1]


@pytest.mark.parametrize("lms", CONFIGS)
@pytest.mark.parametrize("net", [*NETS, *replay_runs.TEXTS.values()], ids=[*NETS, *replay_runs.TEXTS])
def test_graphs_and_copies_change_no_bit(net, lms, device):
    check(net, replay_runs.steps, device, CONFIGS[lms])


@pytest.mark.parametrize(("options", "keys"), list(zip(OPTIONS, KEYS, strict=True)), ids=str)
@pytest.mark.parametrize("net", ["residual", "groups"])
def test_every_program(net, options, keys, device):
    check(net, replay_runs.steps, device, CONFIGS["ahead"], keys, **options)


@pytest.mark.parametrize("options", TYPES, ids=type_name)
def test_every_solver_type(options, device):
    options = options | {"lr_policy": '"exp"', "gamma": 0.9, "base_lr": 0.01}
    check("groups", replay_runs.written_between, device, CONFIGS["ahead"], **options)


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
def test_what_happens_between_iterations(net, act, device):
    check(net, act, device, CONFIGS["by time"])


@pytest.mark.parametrize("sync", [1, 2, 3])
def test_synchronous_copies(sync, device):
    check("residual", replay_runs.steps, device, dataclasses.replace(CONFIGS["ahead"], sync=sync))


def test_in_little_memory(device):
    check("residual", replay_runs.steps, device, LMSConfig(threshold_kb=1, budget=600 << 10))


@pytest.mark.parametrize("net", ["branches", replay_runs.STOCHASTIC], ids=["branches", "stochastic"])
def test_snapshot_and_resume_in_between(net, device, tmp_path):
    solvers = [replay_runs.make(net, device, graph, lms=CONFIGS["ahead"] if graph else None) for graph in (False, True)]
    found = []
    for i, solver in enumerate(solvers):
        (tmp_path / str(i)).mkdir()
        found.append(replay_runs.resumed(solver, tmp_path / str(i)))
    assert found[0] == found[1] and replay_runs.recorded(solvers[1]) == {"train"}
    for solver in solvers:
        solver.runtime.close()


def test_a_capture_of_all_streams(device):
    """In, doubled in place, out, on three streams; memory that is copied must be page-locked."""
    nbytes = 64 << 20
    host_segments = [device.host_take(nbytes, pinned=True) for _ in range(2)]
    source, found = (h.view(np.float32) for h in host_segments)
    span = device.take(nbytes)
    array = device.array(span, (nbytes // 4,), np.float32)

    def work():
        device.wait(device.compute, device.copy_up(span, host_segments[0], device.copy_in))
        array.__imul__(2)
        device.wait(device.copy_out, device.record(device.compute))
        device.copy_down(host_segments[1], span, device.copy_out)

    with device.active():
        array.__imul__(2)  # compiled now
        before = device.bytes_in, device.bytes_out
        launch = device.capture(work)
        assert (device.bytes_in, device.bytes_out) == before
        for i in range(1, 4):
            source[:] = i
            launch()
            device.wait_host(device.record(device.compute))
            assert (found == 2 * i).all()
    assert (device.bytes_in - before[0], device.bytes_out - before[1]) == (3 * nbytes, 3 * nbytes)
    device.give(span)


def test_after_a_capture_that_failed_the_streams_go_on(device):
    def work():
        device.record(device.copy_in)
        raise DeviceError("no")

    with pytest.raises(DeviceError, match="no"):
        device.capture(work)
    for stream in (device.compute, device.copy_in, device.copy_out):
        assert not stream.is_capturing()
        device.wait_host(device.record(stream))
