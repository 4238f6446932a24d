"""Tests the report of ranks in a training: which is the slowest, and what all of them copied."""

from __future__ import annotations

import time
from contextlib import nullcontext
from types import SimpleNamespace

import pytest

from pycaffe_lms.backend import get_device
from pycaffe_lms.cli.live.gauges import Gauges
from pycaffe_lms.lms.config import LMSConfig
from pycaffe_lms.net.program.reduction import WHOLE, ExposedTime, buckets
from pycaffe_lms.parallel.host import HostCommunicator
from pycaffe_lms.solvers.events import Observer
from pycaffe_lms.solvers.rank_report import images_per_iteration

from ..solvers.helpers import GAUSSIAN, bits, inner, loss, messages, solver_text
from .ranks import in_threads, joined, rank_solver, sim

LAYERS = GAUSSIAN + inner("ip1", outputs=600) + inner("ip", "ip1") + loss()
LATE_S = 0.1
PLACES = {"cpu": lambda rank: {"device": get_device("cpu")}, "sim": sim(), "lms": sim(lms=LMSConfig(threshold_kb=1))}


class _Read(Observer):
    def __init__(self, solver):
        self.gauges, self.readings = Gauges(solver), []

    def on_display(self, display):
        self.readings.append((display, self.gauges.read(display)))


@pytest.mark.parametrize("place", PLACES)
def test_the_rank_that_is_late(place, caplog):
    caplog.set_level("INFO", "pycaffe_lms")
    text = solver_text(LAYERS, max_iter=9, display=4, iter_size=2)

    def work(rank, path):
        solver = rank_solver(text, rank, 3, **PLACES[place](rank))
        parallel, read = joined(solver, path, timeout=5), _Read(solver)
        solver.observers.append(read)
        if rank == 1:
            solver.around_iteration = lambda: nullcontext(time.sleep(LATE_S))
        solver.solve()
        solver.rank_report.total(parallel.gather)
        rows, copied = solver.rank_report.rows, solver.lms_log.trained.bytes_in
        images = images_per_iteration(solver)
        parallel.close()
        solver.close()
        return rows, copied, images, read.readings

    found = in_threads(3, work)
    rows = found[0][0]
    assert all(f[0] == rows for f in found) and len(rows) == 3
    assert rows[1].work > LATE_S and rows[1].work > max(rows[0].work, rows[2].work)
    assert min(rows[0].exchange, rows[2].exchange) > rows[1].exchange
    said = [m for m in messages(caplog) if "rank 1 on " in m]
    assert any("is the slowest" in m for m in said)
    assert any("own work" in m and "exchanging" in m for m in said)
    assert found[0][2] == 3 * 2 * 4
    display, reading = found[0][3][-1]
    assert reading.images_per_second == pytest.approx(24 * display.speed)
    if place == "lms":  # every iteration copies the same
        assert reading.lms_in == pytest.approx(sum(f[1] for f in found) / 9) and reading.lms_in > 0
    else:
        assert reading.lms_in is None


class _Clock:
    """A device whose compute stream is behind the host: its events happen when `finish` is called."""

    compute = "compute"

    def __init__(self):
        self.events = []

    def timed_event(self, stream):
        assert stream == self.compute
        self.events.append(SimpleNamespace(done=False, ms=None))
        return self.events[-1]

    def elapsed_ms(self, start, end):
        assert start.done and end.done
        return end.ms - start.ms

    def finish(self, *times):
        for event, ms in zip([e for e in self.events if not e.done], times, strict=False):
            event.done, event.ms = True, ms


def test_time_in_sums_is_read_when_the_device_has_come_there():
    clock = _Clock()
    exposed = ExposedTime(clock)
    for _ in range(3):
        with exposed.within():
            pass
    assert exposed.read() == 0
    clock.finish(10, 14, 20)  # the second is not over
    assert exposed.read() == pytest.approx(0.004)
    clock.finish(21, 30, 33)
    assert exposed.read() == exposed.read() == pytest.approx(0.004 + 0.001 + 0.003)


@pytest.mark.parametrize("layer_wise", [True, False])
@pytest.mark.parametrize("lms", [None, LMSConfig(threshold_kb=1)], ids=["off", "on"])
def test_sums_are_timed_on_the_compute_stream(layer_wise, lms, monkeypatch):
    """As on a GPU with NCCL, whose sums are not recorded in CUDA graphs: once where the compute stream waits for sums
    beside the backward, once for each sum that it makes itself; the same bits."""

    def work(rank, path, timed):
        solver = rank_solver(
            solver_text(LAYERS, layer_wise_reduce=str(layer_wise).lower()), rank, 2, **sim(lms=lms)(rank)
        )
        parallel = joined(solver, path, layer_wise=layer_wise)
        counts = []
        if timed:
            exposed = solver.net.reduction.exposed = ExposedTime(solver.net.device)
            within = exposed.within
            exposed.within = lambda: counts.append(solver.iter) or within()
        solver.step(4)
        net = solver.net
        sums = len(buckets(net.run_graph, net.arrangement.whole_backward(accumulate=False), 4, WHOLE))
        managed = lms is not None and any(net.memory.executor.memories[p.diff].managed for p in net.run_graph.learnable)
        found = bits(solver)
        if timed:
            assert exposed.read() >= 0 and not exposed._pairs
        parallel.close()
        return found, [counts.count(i) for i in range(4)], sums, managed

    plain = in_threads(2, lambda rank, path: work(rank, path, False))
    monkeypatch.setattr(HostCommunicator, "can_capture", False)
    timed = in_threads(2, lambda rank, path: work(rank, path, True))
    assert [t[0] for t in timed] == [p[0] for p in plain]
    for _, counts, sums, managed in timed:
        assert managed is (lms is not None)
        if managed:
            assert min(counts) >= 1
        else:
            assert counts == [1 if layer_wise else sums] * 4
