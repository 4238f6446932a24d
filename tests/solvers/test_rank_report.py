"""Tests what is said of ranks, from given rows, and that their records are those of the display."""

from __future__ import annotations

import json
import re
from types import SimpleNamespace

import pytest

from pycaffe_lms.solvers import rank_report
from pycaffe_lms.solvers.rank_report import RankReport, Row, line, per_iteration, table

from ..cli.test_lms_files import PARSED

MB = 1 << 20
ROWS = [  # 10 iterations in 1 s: own work of 60, 80 and 50 ms
    Row("a", 10, 1.0, 0.4, 30 * MB, 10 * MB, 0.02),
    Row("b", 10, 1.0, 0.2, 20 * MB, 10 * MB, 0.01),
    Row("b", 10, 1.0, 0.5, 10 * MB, 10 * MB, 0.0),
]


def test_the_slowest_rank_and_the_wait_for_it():
    """80 ms - median(60, 50) = 25 ms of 100."""
    assert line(ROWS, 64) == (
        "Ranks: 640 images/s together; rank 1 on b is the slowest with 80 ms of own work per iteration (median of the "
        "others: 55 ms), they wait 25% of the time for it."
    )


def test_two_ranks():
    assert line(ROWS[:2], None) == (
        "Ranks: rank 1 on b is the slowest with 80 ms of own work per iteration (the other: 60 ms), which waits 20% of "
        "the time for it."
    )


def test_ranks_of_one_speed():
    even = [Row("a", 10, 1.0, 0.105), Row("b", 10, 1.0, 0.1)]  # 89.5 and 90 ms: half a percent
    assert line(even, None) == "Ranks: none is slower than the others by more than 1% of the time."


@pytest.mark.parametrize("unknown", [0, 1, 2])
def test_waits_that_are_not_known_are_not_reported(unknown):
    rows = [Row("a", 10, 1.0, None if r == unknown else 0.5) for r in range(3)]
    assert line(rows, 64) == "Ranks: 640 images/s together."
    assert line(rows, None) == ""
    assert table(rows, None)[1 + unknown] == f"    rank {unknown} on a: 100 ms"


def test_a_row_of_each_and_the_sums():
    assert table(ROWS, 64) == [
        "Ranks, per iteration, mean of 10:",
        "    rank 0 on a: 60 ms own work, 40 ms exchanging (40%); LMS 3.0 MiB in, 1.0 MiB out, stall 2 ms (predicted)",
        "    rank 1 on b: 80 ms own work, 20 ms exchanging (20%); LMS 2.0 MiB in, 1.0 MiB out, stall 1 ms (predicted)",
        "    rank 2 on b: 50 ms own work, 50 ms exchanging (50%); LMS 1.0 MiB in, 1.0 MiB out, stall 0 ms (predicted)",
        "    all: 640 images/s together; LMS 6.0 MiB in, 3.0 MiB out",
    ]
    assert table([Row("a", 1, 0.5), Row("b", 1, 0.5)], None) == [
        "Ranks, per iteration, mean of 1:",
        "    rank 0 on a: 500 ms",
        "    rank 1 on b: 500 ms",
    ]


def test_parsers_of_caffes_logs_do_not_read_them():
    for text in (line(ROWS, 64), line(ROWS[:2], None), *table(ROWS, 64)):
        assert not any(re.search(pattern, text) for pattern in PARSED)


def test_sums_over_ranks():
    assert per_iteration(ROWS, "bytes_in") == 6 * MB
    assert per_iteration([*ROWS, Row("c", 10, 1.0)], "bytes_in") is None and per_iteration([], "bytes_in") is None


@pytest.mark.parametrize("lag", [0, 2])
def test_when_rank_0_wishes_for_a_report(monkeypatch, lag):
    """Before an iteration that is displayed, every 10 s at most; iterations take 2 s here. Other ranks never do."""
    clock = [0.0]
    monkeypatch.setattr(rank_report.time, "monotonic", lambda: clock[0])
    solver = SimpleNamespace(
        is_root=True,
        solver_count=3,
        iter=0,
        param=SimpleNamespace(display=3),
        runtime=SimpleNamespace(active=False),
        lms_log=SimpleNamespace(trained=SimpleNamespace(bytes_in=0, bytes_out=0, stall_seconds=0.0)),
    )
    report, wishes = RankReport(solver), []
    for iteration in range(1, 20):
        solver.iter, clock[0] = iteration, 2.0 * iteration
        if report.wanted(lag):
            wishes.append(iteration + lag)
        report.iterated(None)
    assert wishes == ([3, 9, 15] if lag == 0 else [6, 12, 18])
    clock[0], solver.iter, solver.solver_count = 100.0, 21 - lag, 1
    report.iterated(None)
    assert not report.wanted(lag), "one rank has nothing to compare"
    solver.solver_count, solver.is_root = 3, False
    assert not report.wanted(lag)
    solver.is_root = True
    assert report.wanted(lag)


def test_rows_are_of_the_iterations_between_reports(monkeypatch):
    """The first iteration does not count; the total has all others."""
    clock, trained = [0.0], SimpleNamespace(bytes_in=5, bytes_out=6, stall_seconds=0.5)
    monkeypatch.setattr(rank_report.time, "monotonic", lambda: clock[0])
    monkeypatch.setattr(rank_report.socket, "gethostname", lambda: "here")
    solver = SimpleNamespace(
        is_root=False, runtime=SimpleNamespace(active=True), lms_log=SimpleNamespace(trained=trained)
    )
    report, said = RankReport(solver), []

    def gather(value: bytes) -> list[bytes]:
        said.append(json.loads(value))
        return [value, value]

    report.display(gather)
    for iteration in range(1, 6):
        clock[0] += 1.0
        trained.bytes_in += 10
        report.iterated(0.25 * iteration)
        if iteration == 3:
            report.display(gather)
    report.display(gather)
    report.total(gather)
    assert [row[1:] for row in said] == [
        [2, 2.0, 0.5, 20, 0, 0.0],
        [2, 2.0, 0.5, 20, 0, 0.0],
        [4, 4.0, 1.0, 40, 0, 0.0],
    ]
    assert report.rows == [Row("here", 2, 2.0, 0.5, 20, 0, 0.0)] * 2
