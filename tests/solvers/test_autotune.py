"""What `-lms auto` measures before it plans a second time."""

from __future__ import annotations

from contextlib import contextmanager
from types import SimpleNamespace

import pytest

from pycaffe_lms.lms.recorder import COPIES_IN, STEPS, Timed
from pycaffe_lms.solvers import autotune


@pytest.fixture
def recorded(monkeypatch):
    """Microseconds of steps, iteration by iteration; what the recorder finds."""
    runs: list[dict[str, int]] = []

    class Recorder:
        def __init__(self, runtime):
            self.steps = runs.pop(0)

        @contextmanager
        def iteration(self, name):
            yield

        def times(self):
            steps = [Timed(STEPS, name, 100.0, 100.0 + us) for name, us in self.steps.items()]
            return [*steps, Timed(COPIES_IN, "forward:a", 0.0, 1.0)], []

    monkeypatch.setattr(autotune, "Recorder", Recorder)
    return runs


def runtime(*, auto: bool):
    device, config = SimpleNamespace(pause=lambda seconds: None), SimpleNamespace(auto=auto)
    return SimpleNamespace(active=True, config=config, recorder=None, measured={}, device=device)


def test_of_the_iterations_after_the_first_the_least_time_of_each_step_counts(recorded):
    recorded += [{"forward:a": 30, "forward:b": 9000}, {"forward:a": 40, "forward:b": 20}]
    tuned, planned = runtime(auto=True), []
    tuning = autotune.Autotune(tuned)
    for i in range(8):
        assert tuning.done == (i >= autotune.WARM + 2)
        assert bool(planned) == tuning.done
        with tuning.around(lambda: planned.append(dict(tuned.measured)) or []):
            pass
    assert planned == [pytest.approx({"forward:a": 30e-6, "forward:b": 20e-6})]
    assert recorded == []


def test_an_iteration_that_somebody_else_records_is_left_to_him(recorded):
    recorded += [{"forward:a": 30}, {"forward:a": 20}]
    tuned = runtime(auto=True)
    tuning, iterations = autotune.Autotune(tuned), 0
    while not tuning.done:
        tuned.recorder = object() if iterations < 9 else None
        with tuning.around(list):
            iterations += 1
    assert iterations == 11


def test_nothing_is_measured_for_other_modes():
    assert autotune.Autotune(runtime(auto=False)).done
