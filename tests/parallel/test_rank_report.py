"""Tests the report of ranks in a training: which is the slowest, and what all of them copied."""

from __future__ import annotations

import time
from contextlib import nullcontext

import pytest

from pycaffe_lms.backend import get_device
from pycaffe_lms.backend.sim.device import SimDevice
from pycaffe_lms.cli.live.gauges import Gauges
from pycaffe_lms.lms.config import LMSConfig
from pycaffe_lms.net.program.reduction import WHOLE, buckets
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


class _QueuedClock:
    """Add up the host's time where the compute stream comes to `start` and `stop`, also in what is launched again."""

    def __init__(self, device):
        self._device, self.calls, self._began, self._seconds = device, [], 0.0, 0.0

    def _start(self):
        self.calls.append("start")
        self._began = time.perf_counter()

    def _stop(self):
        self.calls.append("stop")
        self._seconds += time.perf_counter() - self._began

    def _queue(self, call):
        assert self._device._operations_on is self._device.compute
        self._device.queue(call)

    def start(self):
        self._queue(self._start)

    def stop(self):
        self._queue(self._stop)

    def read(self):
        return self._seconds


@pytest.mark.parametrize("layer_wise", [True, False])
@pytest.mark.parametrize("recorded", [True, False], ids=["recorded", "step by step"])
@pytest.mark.parametrize("lms", [None, LMSConfig(threshold_kb=1)], ids=["off", "on"])
def test_sums_are_timed_on_the_compute_stream(layer_wise, recorded, lms, monkeypatch):
    """As on a GPU with NCCL: once where the compute stream waits for sums beside the backward, once for each sum that
    it makes itself, in recorded iterations too; the same bits as without a clock."""
    iterations = 6

    def work(rank, path, timed):
        solver = rank_solver(
            solver_text(LAYERS, layer_wise_reduce=str(layer_wise).lower()), rank, 2, **sim(lms=lms)(rank)
        )
        parallel = joined(solver, path, layer_wise=layer_wise)
        solver.step(iterations)
        net = solver.net
        sums = len(buckets(net.run_graph, net.arrangement.whole_backward(accumulate=False), 4, WHOLE))
        managed = lms is not None and any(net.memory.executor.memories[p.diff].managed for p in net.run_graph.learnable)
        found, launches = bits(solver), net.device.launches
        calls = net.reduction.exposed.calls if timed else None
        parallel.close()
        return found, calls, launches, sums, managed

    monkeypatch.setattr(HostCommunicator, "can_capture", recorded)
    plain = in_threads(2, lambda rank, path: work(rank, path, False))
    monkeypatch.setattr(SimDevice, "stream_clock", lambda device: _QueuedClock(device))
    timed = in_threads(2, lambda rank, path: work(rank, path, True))
    assert [t[0] for t in timed] == [p[0] for p in plain]
    for _, calls, launches, sums, managed in timed:
        assert managed is (lms is not None) and launches == (iterations - 2 if recorded else 0)
        assert calls == ["start", "stop"] * (len(calls) // 2)
        if managed:
            assert len(calls) >= 2 * iterations
        else:
            assert len(calls) == 2 * iterations * (1 if layer_wise else sums)


@pytest.mark.parametrize("recorded", [True, False], ids=["recorded", "step by step"])
def test_the_rank_that_is_late_where_only_the_device_can_tell(recorded, monkeypatch):
    """As on GPUs: what ranks report comes from the clock of the compute stream."""
    monkeypatch.setattr(HostCommunicator, "can_capture", recorded)
    monkeypatch.setattr(HostCommunicator, "exchange_seconds", None)
    monkeypatch.setattr(SimDevice, "stream_clock", lambda device: _QueuedClock(device))

    def work(rank, path):
        solver = rank_solver(solver_text(LAYERS, max_iter=9, display=4), rank, 2, **sim()(rank))
        parallel = joined(solver, path)
        if rank == 1:
            device = solver.net.device
            solver.around_iteration = lambda: nullcontext(device.queue(time.sleep, LATE_S))
        solver.solve()
        solver.rank_report.total(parallel.gather)
        launches = solver.net.device.launches
        parallel.close()
        return solver.rank_report.rows, solver.rank_report.totals, launches

    for rows, totals, launches in in_threads(2, work):
        assert launches == (7 if recorded else 0)
        for first, second in (rows, totals):
            assert first.seconds / first.iterations > LATE_S / 2
            assert first.seconds / 2 < first.exchange < first.seconds
            assert 0 <= second.exchange < first.exchange / 2
            assert second.work > LATE_S / 2 > first.work > 0


def test_one_process_alone_has_no_exchange_to_time(monkeypatch):
    monkeypatch.setattr(SimDevice, "stream_clock", lambda device: _QueuedClock(device))
    solver = rank_solver(solver_text(LAYERS), 0, 1, **sim()(0), virtual_ranks=2)
    assert solver.net.reduction is not None and solver.net.reduction.exposed is None
