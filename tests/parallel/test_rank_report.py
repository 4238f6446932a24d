"""Tests the report of ranks in a training: which is the slowest, and what all of them copied."""

from __future__ import annotations

import time
from contextlib import nullcontext

import pytest

from pycaffe_lms.backend import get_device
from pycaffe_lms.cli.live.gauges import Gauges
from pycaffe_lms.lms.config import LMSConfig
from pycaffe_lms.solvers.events import Observer
from pycaffe_lms.solvers.rank_report import images_per_iteration

from ..solvers.helpers import GAUSSIAN, inner, loss, messages, solver_text
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
