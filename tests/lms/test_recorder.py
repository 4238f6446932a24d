"""The recorder: several iterations on one scale, results as without it, and off again behind an iteration."""

from __future__ import annotations

import numpy as np
import pytest

from pycaffe_lms.backend.cpu import CpuDevice
from pycaffe_lms.backend.sim.device import SimDevice
from pycaffe_lms.lms.config import LMSConfig
from pycaffe_lms.lms.runtime.recorder import COPIES_IN, COPIES_OUT, HOST, STEPS, Recorder

from .nets import make_solver

LMS = LMSConfig(threshold_kb=1)


def _recorded(solver, iterations):
    recorder = Recorder(solver.runtime)
    for i in range(iterations):
        with recorder.iteration(f"iteration {i}"):
            solver.step(1)
        assert solver.runtime.recorder is None
    return recorder.times()


def test_times_are_on_the_scale_of_the_model_clock():
    device = SimDevice(64 << 20)
    solver = make_solver("residual", device, LMS)
    solver.step(1)
    device.synchronize()
    begun = device.compute.time
    timed, iterations = _recorded(solver, 3)
    assert [name for name, _ in iterations] == ["iteration 0", "iteration 1", "iteration 2"]
    assert iterations[0][1] == 0 and iterations[1][1] < iterations[2][1]
    steps = [t for t in timed if t.row == STEPS]
    assert max(t.end_us for t in steps) <= 1e6 * (device.compute.time - begun) * (1 + 1e-9)
    third = [t for t in steps if t.start_us >= iterations[2][1]]
    assert len(third) == len(steps) / 3


@pytest.mark.parametrize("order", ["latest", "earliest", "random"])
def test_recording_changes_no_result_and_finds_every_copy(order):
    weights = []
    for record in (False, True):
        device = SimDevice(64 << 20, order=order)
        solver = make_solver("branches", device, LMS)
        if record:
            stats = solver.runtime.stats
            before = stats.bytes_in, stats.bytes_out
            timed, _ = _recorded(solver, 2)
            copied = [sum(t.nbytes for t in timed if t.row == row) for row in (COPIES_IN, COPIES_OUT)]
            assert copied == [stats.bytes_in - before[0], stats.bytes_out - before[1]] and all(copied)
            assert {t.name for t in timed if t.row == STEPS} <= {t.name for t in timed if t.row == HOST}
        else:
            solver.step(2)
        weights.append([np.array(b.data) for b in solver.net.learnable_params])
    assert all(np.array_equal(a, b) for a, b in zip(*weights, strict=True))


def test_on_the_cpu_there_are_steps_only():
    timed, _ = _recorded(make_solver("chain", CpuDevice()), 2)
    assert {t.row for t in timed} == {STEPS}
    assert all(t.end_us >= t.start_us >= 0 for t in timed)


def test_a_failing_iteration_leaves_nothing_recording():
    solver = make_solver("chain")
    with pytest.raises(ZeroDivisionError), Recorder(solver.runtime).iteration("one"):
        raise ZeroDivisionError
    assert solver.runtime.recorder is None


def test_nothing_recorded_is_nothing():
    assert Recorder(make_solver("chain").runtime).times() == ([], [])
