"""A program with copies is replayed or runs step by step, whichever was faster; results are bit-identical."""

from __future__ import annotations

import logging

import pytest

from pycaffe_lms.backend.sim.device import SimDevice
from pycaffe_lms.lms.runtime import cuda_graph
from pycaffe_lms.net.run import replay_benchmark
from pycaffe_lms.net.run.recording import WARM_RUNS

from . import replay_runs
from .test_replay_lms import CONFIGS, device, plain, plan_of

ITERATIONS = WARM_RUNS + 2 * replay_benchmark.RUNS + 4
STEPS_MS, FASTER_MS, CLOSE_MS, SLOWER_MS = 5.0, 4.9, 5.09, 5.2


class Late(SimDevice):
    """Takes the given milliseconds for runs step by step, and for launches."""

    host_may_be_late = True
    steps_ms, launch_ms = STEPS_MS, FASTER_MS

    def timed_event(self, stream=None):
        return self.launches

    def elapsed_ms(self, start, end):
        return self.launch_ms if end > start else self.steps_ms


def trained(late: SimDevice, config: str, n: int = ITERATIONS):
    solver = replay_runs.make("chain", late, True, lms=CONFIGS[config])
    return replay_runs.steps(solver, n), solver


@pytest.fixture(autouse=True)
def every_operation_is_slow(monkeypatch):
    monkeypatch.setattr(cuda_graph, "QUICK_OPERATION", 0.0)


@pytest.mark.parametrize("launch_ms", [FASTER_MS, CLOSE_MS, SLOWER_MS])
def test_the_faster_way_is_kept_and_a_recording_that_takes_hardly_longer(launch_ms, caplog):
    late = Late(64 << 20)
    late.launch_ms = launch_ms
    with caplog.at_level(logging.INFO, "pycaffe_lms.net.run.replay_benchmark"):
        found, solver = trained(late, "ahead")
    assert plan_of(solver).copies
    assert found == plain("chain", lambda s: replay_runs.steps(s, ITERATIONS))
    recorded = launch_ms != SLOWER_MS
    assert late.launches == replay_benchmark.RUNS + 4 * recorded
    assert replay_runs.recorded(solver) == ({"train"} if recorded else set())
    said = f"took 5.0 ms step by step and {launch_ms:.1f} ms as recorded"
    assert [said in r.message for r in caplog.records] == [True]


@pytest.mark.parametrize(("later_ms", "late_then"), [(5.3, False), (5.4, True)])
def test_a_host_that_comes_to_be_late_is_noticed(later_ms, late_then, caplog):
    """One host kept up while both ways were timed (91 ms, 91.8 as recorded); such a run took 116 ms with a busy one."""
    late = Late(64 << 20)
    late.launch_ms = SLOWER_MS
    with caplog.at_level(logging.INFO, "pycaffe_lms.net.run.replay_benchmark"):
        found, solver = trained(late, "ahead")
        late.steps_ms = later_ms
        more = replay_runs.steps(solver, 3 * replay_benchmark.RUNS)
    assert (found, more) == plain(
        "chain", lambda s: tuple(replay_runs.steps(s, n) for n in (ITERATIONS, 3 * replay_benchmark.RUNS))
    )
    assert replay_runs.recorded(solver) == ({"train"} if late_then else set())
    assert late.launches - replay_benchmark.RUNS == (8 if late_then else 0)
    said = f"now takes {later_ms} ms step by step and took 5.2 ms as recorded: it runs as recorded"
    assert [said in r.message for r in caplog.records[1:]] == [True] * late_then


def test_what_copies_nothing_or_cannot_be_late_is_recorded_at_once(monkeypatch):
    """Nothing is weighed: on a device that knows no late host, without copies, or where operations are quick."""
    cases = [(device(), "ahead"), (Late(64 << 20), "ahead")]
    monkeypatch.setattr(cuda_graph, "QUICK_OPERATION", 1.0)
    for where, config in cases:
        _, solver = trained(where, config, WARM_RUNS + 1)
        assert replay_runs.recorded(solver) == {"train"}


def test_a_trial_begins_when_everything_lies_where_it_will():
    late = Late(64 << 20)
    _, solver = trained(late, "ahead", WARM_RUNS + replay_benchmark.RUNS)
    assert late.launches == 0
    solver.step(1)
    assert late.launches == 1
