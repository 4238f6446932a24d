"""The display in a terminal, and the numbers beside a display."""

from __future__ import annotations

import io
import math
import re
import sys
from dataclasses import replace
from types import SimpleNamespace

import pytest

from pycaffe_lms.backend.sim.device import SimDevice
from pycaffe_lms.cli.live import event_files, live, metrics, watcher
from pycaffe_lms.cli.live.gauges import Gauges, Reading
from pycaffe_lms.errors import human_bytes
from pycaffe_lms.lms.config import LMSConfig
from pycaffe_lms.lms.runtime.recorder import Recorder
from pycaffe_lms.solvers.events import Display, Evaluation, Output
from pycaffe_lms.solvers.rank_report import images_per_iteration

from ..solvers.helpers import GAUSSIAN, PLACES, inner, loss, make, messages
from .watching import NET, OPTIONS, RATES


@pytest.mark.parametrize("place", PLACES)
def test_readings(place):
    """Memory is what the device gave; copies are the runtime's, per iteration since the last display."""
    solver = make(GAUSSIAN + inner(outputs=600) + loss(), place, iter_size=3, max_iter=9, display=4)
    gauges, readings, copied = Gauges(solver), [], [0]
    stats, device = solver.runtime.stats, solver.runtime.device

    class Watch(watcher.Watcher):
        def on_display(self, display):
            readings.append((gauges.read(display), display))
            copied.append(stats.bytes_in)

    solver.observers.append(Watch())
    solver.step(9)
    assert images_per_iteration(solver) == 4 * 3
    for k, (reading, display) in enumerate(readings):
        assert reading.device_bytes == (None if device.is_host else device.in_use())
        if solver.runtime.active:
            assert reading.lms_in * max(1, display.iterations) == copied[k + 1] - copied[k] > 0
        else:
            assert reading.lms_in is reading.lms_out is reading.lms_stall is None
        assert k == 0 or reading.images_per_second == pytest.approx(12 * 4 / display.seconds)


@pytest.mark.parametrize("info", ["false", "true"], ids=["as one", "layer by layer"])
def test_copies_of_tests_are_not_trainings(info, monkeypatch, caplog):
    """Beside the programs that training ran, counted run by run; the log's line says the same."""
    caplog.set_level("INFO", "pycaffe_lms")
    net = GAUSSIAN + inner("a", outputs=600) + inner("ip", "a") + loss()
    options = {"max_iter": 9, "display": 2, "test_iter": 5, "test_interval": 1, "debug_info": info}
    solver = make(net, "sim with LMS", **options)
    gauges, readings, training, test, copied = Gauges(solver), [], [[0, 0]], [0], [0]
    ran, testing = solver.runtime.stats.ran, solver.test

    def counted(plan, counters):
        if test[0]:
            copied[0] += counters.bytes_in
        else:
            training[-1] = [training[-1][0] + counters.bytes_in, training[-1][1] + counters.bytes_out]
        ran(plan, counters)

    def tested(i=0):
        test[0] += 1
        testing(i)
        test[0] -= 1

    class Watch(watcher.Watcher):
        def on_display(self, display):
            readings.append((gauges.read(display), max(1, display.iterations)))
            training.append([0, 0])

    solver.test = tested
    monkeypatch.setattr(solver.runtime.stats, "ran", counted)
    solver.observers.append(Watch())
    solver.step(9)
    assert len(readings) == 5 and copied[0] > 0
    for (reading, iterations), (came, went) in zip(readings, training, strict=False):
        assert (reading.lms_in, reading.lms_out) == (came / iterations, went / iterations)
        line = f"LMS: {human_bytes(came / iterations)} in, {human_bytes(went / iterations)} out"
        assert any(m.startswith(line) for m in messages(caplog))


def test_waits_are_measured_where_an_iteration_of_these_plans_was_recorded():
    """As `statistics` has it; with other plans they are predicted again."""
    solver = make(GAUSSIAN + inner(outputs=600) + loss(), "sim with LMS", iter_size=3)
    gauges, display, recorder = Gauges(solver), Display(1, 0.0, 0.1, (), 1, 1.0), Recorder(solver.runtime)
    solver.step(2)
    assert gauges.read(display).lms_waited is None
    with recorder.iteration("one"):
        solver.step(1)
    solver.runtime.stats.measured(recorder.runs())
    reading, programs = gauges.read(display), solver.statistics()["programs"]
    waits = [programs[f"train {name}"]["measured"]["stall_ms"] for name in ("first", "more", "last")]
    assert sum(waits) > 0 and 1e3 * reading.lms_waited == pytest.approx(sum(waits))
    planned = [programs[f"train {name}"]["plan"]["stall_ms_predicted"] for name in ("first", "more", "last")]
    assert 1e3 * reading.lms_stall == pytest.approx(sum(planned)) != pytest.approx(1e3 * reading.lms_waited)
    assert metrics.train_record(display, reading, 0.0)["lms_stall_seconds_measured"] == reading.lms_waited
    assert dict(event_files.display_scalars(display, reading))["lms/stall_seconds_measured"] == reading.lms_waited
    solver.net.keep("ip")  # makes the plans anew
    solver.step(1)
    assert gauges.read(display).lms_waited is None and gauges.read(display).lms_stall is not None


@pytest.mark.parametrize("anew", [False, True], ids=["the plan stays", "another plan"])
def test_waits_of_the_automatic_mode_are_measured_by_and_by(anew, monkeypatch):
    """It records two iterations to plan anew, and one more as it is when the plan that counts has run; then none."""
    seen, record = [], Recorder.iteration
    monkeypatch.setattr(Recorder, "iteration", lambda self, name: seen.append(name) or record(self, name))
    lms = LMSConfig(auto=True, threshold_kb=1, budget=1250 << 10)
    monkeypatch.setitem(PLACES, "auto", lambda: {"device": SimDevice(64 << 20), "lms": lms})
    solver = make(GAUSSIAN + inner("a", outputs=20000) + inner("ip", "a") + loss(), "auto")
    solver.net.runtime.search = replace(solver.net.runtime.search, replan=1e9 if anew else 0.0)
    gauges, known = Gauges(solver), []
    for iteration in range(10):
        solver.step(1)
        known.append(gauges.read(Display(iteration, 0.0, 0.1, (), 1, 1.0)).lms_waited is not None)
    assert solver.net.memory.plans()["train"].copies
    assert seen == ["iteration 4", "iteration 5", "iteration 7"]
    assert known == [iteration >= 6 for iteration in range(10)]


def test_pace():
    """From where the run was during the last minute."""
    pace = live.Pace()
    assert pace.left(100) is None
    pace.at(0.0, 0)
    assert pace.left(100) is None
    pace.at(10.0, 20)
    assert pace.left(100) == 80 / (20 / 10)
    for second in range(20, 400, 10):  # slower: one iteration in 10 s
        pace.at(float(second), 20 + second // 10)
    assert pace.left(100) == (100 - 59) * 10
    pace.at(400.0, 5)
    assert pace.left(100) is None


def test_lines():
    status = live.Status(capacity=4 << 30)
    assert status.numbers() == status.tests() == []
    status.display = Display(20, 0.123456789, 0.01, (), 10, 2.0)
    status.reading = Reading(1234.5, 3 << 30, 2048.0, 1024.0, 0.0025)
    status.evaluations = {1: Evaluation(10, 1, tuple(Output(c, 0.5, 0) for c in "abcdef"), None, 2)}
    assert status.numbers() == [
        "iteration 20  loss 0.123457  lr 0.01  1230 images/s  device memory 3.0 GiB of 4.0 GiB",
        "LMS per iteration: 2.0 KiB in, 1.0 KiB out, 2.5 ms of waiting predicted",
    ]
    status.reading = Reading(1234.5, 3 << 30, 2048.0, 1024.0, 0.0025, 0.004)
    assert status.numbers()[1] == "LMS per iteration: 2.0 KiB in, 1.0 KiB out, 4 ms of waiting measured"
    assert status.tests() == ["test 1 at 10: a 0.5  b 0.5  c 0.5  d 0.5  and 2 more"]
    status.reading = Reading()
    assert status.numbers() == ["iteration 20  loss 0.123457  lr 0.01"]


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(None, "-:--:--"), (math.inf, "-:--:--"), (0.4, "0:00:00"), (59.6, "0:01:00"), (360001, "100:00:01")],
)
def test_clock(seconds, text):
    assert live.clock(seconds) == text


def test_the_picture_of_a_run(monkeypatch):
    """Drawn after every event: how far it is, the last numbers, the last test."""
    console = pytest.importorskip("rich.console")
    solver, shown = make(NET, "sim with LMS", **OPTIONS | {"snapshot": 0}), []
    display = live.Live()
    monkeypatch.setattr(live.terminal, "Screen", lambda drawn: SimpleNamespace(start=int, stop=int))

    class Draw(watcher.Watcher):
        def draw(self, event):
            out = console.Console(file=io.StringIO(), width=150)
            out.print(display.picture())
            shown.append(out.file.getvalue().splitlines())

        on_start = on_display = on_test = draw

    with watcher.watched(solver, [display, Draw()]):
        solver.solve()
    assert shown[0][0].startswith("small ") and " 0/6 " in shown[0][0] and len(shown[0]) == 1
    last = shown[-1]
    assert " 6/6 " in last[0] and last[0].rstrip().endswith("0:00:00 left")
    assert (
        last[1].startswith("iteration 4  loss ") and " lr 0.025 " in last[1] and " images/s  device memory " in last[1]
    )
    assert last[2].startswith("LMS per iteration: ") and last[3].startswith("test 0 at 6: acc ")


def test_the_log_goes_on_above_the_picture_and_training_is_the_same(train, monkeypatch):
    pytest.importorskip("rich")
    _, plain = train("-metrics", "a.jsonl")
    stderr = io.StringIO()
    stderr.isatty = lambda: True
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "200")
    monkeypatch.setattr(sys, "stderr", stderr)
    assert train("-metrics", "b.jsonl")[0] == 0
    text = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", stderr.getvalue())
    assert RATES.findall(text) == RATES.findall(plain) and " 6/6 " in text
    rows = [[(r["iteration"], r["outputs"]) for r in metrics.read(f"{name}.jsonl")] for name in "ab"]
    assert rows[0] == rows[1]
