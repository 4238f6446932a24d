"""Tests what `-lms auto` measures before it plans a second time."""

from __future__ import annotations

from contextlib import contextmanager
from types import SimpleNamespace

import pytest

from pycaffe_lms.lms.cost.machine import MACHINES
from pycaffe_lms.lms.runtime.recorder import COPIES_IN, STEPS, RecordedTimes
from pycaffe_lms.solvers import autotune


@pytest.fixture
def recorded(monkeypatch):
    """Let the recorder find these microseconds of steps, iteration by iteration."""
    runs: list[dict[str, int]] = []

    class Recorder:
        def __init__(self, runtime):
            self.steps = runs.pop(0)

        @contextmanager
        def iteration(self, name):
            yield

        def times(self):
            steps = [RecordedTimes(STEPS, name, 100.0, 100.0 + us) for name, us in self.steps.items()]
            return [*steps, RecordedTimes(COPIES_IN, "forward:a", 0.0, 1.0)], []

        def runs(self):
            return [SimpleNamespace(plan=plan) for plan in self.steps]

    monkeypatch.setattr(autotune, "Recorder", Recorder)
    return runs


def net(*, auto: bool, plans=()):
    """Return a stand-in for a solver's net. `said` gets what the statistics are told; pauses: those of the device."""
    said, pauses = [], []
    stats = SimpleNamespace(measured=lambda runs: said.append([run.plan for run in runs]))
    device, config = SimpleNamespace(pause=pauses.append, pauses=pauses), SimpleNamespace(auto=auto)
    runtime = SimpleNamespace(
        active=True, config=config, recorder=None, measured={}, device=device, stats=stats, machine=MACHINES["h200"]
    )
    return SimpleNamespace(runtime=runtime, memory=SimpleNamespace(plans=lambda: dict(enumerate(plans)))), said


def test_of_the_iterations_after_the_first_the_least_time_of_each_step_counts(recorded):
    old, new = SimpleNamespace(ops=range(9)), SimpleNamespace(ops=range(5000))
    recorded += [{"forward:a": 30, "forward:b": 9000}, {"forward:a": 40, "forward:b": 20}, [old, new]]
    (one, said), planned = net(auto=True, plans=[new, None]), []
    tuning = autotune.Autotune(one)
    for i in range(10):
        assert tuning.done == (i >= autotune.WARM + 2)
        assert bool(planned) == tuning.done
        assert bool(said) == (i >= autotune.WARM + 4)  # after the new plans' second run
        with tuning.around(lambda: planned.append(dict(one.runtime.measured)) or []):
            pass
    assert planned == [pytest.approx({"forward:a": 30e-6, "forward:b": 20e-6})]
    assert said == [[new]]
    assert recorded == []
    assert one.runtime.device.pauses == [pytest.approx(0.5)] * 2  # for 5000 operations


def test_the_host_gets_a_head_start_at_least(recorded):
    recorded.append({})
    one, _ = net(auto=True, plans=[SimpleNamespace(ops=range(3))])
    tuning = autotune.Autotune(one)
    for _ in range(autotune.WARM + 1):
        with tuning.around(list):
            pass
    assert one.runtime.device.pauses == [autotune.HEAD_START_S]


def test_an_iteration_that_somebody_else_records_is_left_to_him(recorded):
    recorded += [{"forward:a": 30}, {"forward:a": 20}]
    one, _ = net(auto=True)
    tuning, iterations = autotune.Autotune(one), 0
    while not tuning.done:
        one.runtime.recorder = object() if iterations < 9 else None
        with tuning.around(list):
            iterations += 1
    assert iterations == 11


def test_nothing_is_measured_for_other_modes():
    assert autotune.Autotune(net(auto=False)[0]).done


class Ranks:
    """Stand for the ranks of which one has something to measure. met: what happened, as pauses and meetings."""

    def __init__(self, measures: int, met: list):
        self.measures, self.met = measures, met

    def largest(self, values):
        return [max(self.measures, *values)]

    def meet(self):
        self.met.append("meet")


def test_devices_of_all_ranks_begin_measured_iterations_together(recorded):
    recorded += [{"forward:a": 30}, {"forward:a": 20}, [None]]
    one, _ = net(auto=True)
    met = one.runtime.device.pauses
    tuning = autotune.Autotune(one)
    tuning.join(Ranks(0, met))
    for i in range(10):
        with tuning.around(list):
            met.append(i)
    pause, before, after = autotune.HEAD_START_S, range(autotune.WARM), range(autotune.WARM + 2, 10)
    assert met == [*before, pause, "meet", autotune.WARM, pause, "meet", autotune.WARM + 1, *after]


@pytest.mark.parametrize("other", [0, 1])
def test_a_rank_with_nothing_to_measure_meets_those_that_measure(other):
    """It has a larger GPU, say: else the others would wait for its next exchange, and take that for the meeting."""
    met, tuning = [], autotune.Autotune(net(auto=False)[0])
    tuning.join(Ranks(other, met))
    for i in range(10):
        with tuning.around(list):
            met.append(i)
    meeting = ["meet"] * other
    assert met == [0, 1, 2, *meeting, 3, *meeting, *range(4, 10)] and autotune.WARM == 3


def test_a_rank_whose_iterations_are_recorded_by_others_meets_too(recorded):
    recorded += [{"forward:a": 30}, {"forward:a": 20}, [None]]
    one, _ = net(auto=True)
    met, tuning = one.runtime.device.pauses, autotune.Autotune(one)
    tuning.join(Ranks(1, met))
    for i in range(7):
        one.runtime.recorder = object() if i < 5 else None
        with tuning.around(list):
            met.append(i)
    pause = autotune.HEAD_START_S
    assert met == [0, 1, 2, "meet", 3, "meet", 4, pause, 5, pause, 6] and tuning.done
