"""Logs of training runs: Caffe's lines, with times worked out by hand."""

from __future__ import annotations

import math

import pytest

from pycaffe_lms.errors import DataError
from pycaffe_lms.formats.training_log import Point, columns, parse_training_log, read_training_log

CAFFE = """\
I0210 13:39:20.000000 25210 caffe.cpp:217] Using GPUs 0
I0210 13:39:22.250000 25210 solver.cpp:279] Solving LeNet
I0210 13:39:22.250100 25210 solver.cpp:280] Learning Rate Policy: inv
I0210 13:39:22.300000 25210 solver.cpp:337] Iteration 0, Testing net (#0)
I0210 13:39:23.250000 25210 solver.cpp:404]     Test net output #0: accuracy = 0.0919
I0210 13:39:23.250000 25210 solver.cpp:404]     Test net output #1: loss = 2.36417 (* 1 = 2.36417 loss)
I0210 13:39:23.350000 25210 solver.cpp:218] Iteration 0 (-1.2e-38 iter/s, 1.1s/100 iters), loss = 2.41298
I0210 13:39:23.350000 25210 solver.cpp:237]     Train net output #0: loss = 2.4 (* 1 = 2.4 loss)
I0210 13:39:23.350000 25210 sgd_solver.cpp:105] Iteration 0, lr = 0.01
I0210 13:39:32.250000 25210 solver.cpp:218] Iteration 100 (11.2 iter/s, 8.9s/100 iters), loss = 0.2
I0210 13:39:32.250000 25210 solver.cpp:237]     Train net output #0: loss = 1.5e-01 (* 1 = 0.15 loss)
I0210 13:39:32.250000 25210 sgd_solver.cpp:105] Iteration 100, lr = 0.00992565
I0210 13:40:22.250000 25210 solver.cpp:218] Iteration 200 (2 iter/s, 50s/100 iters), loss = 0.1
I0210 13:40:22.250000 25210 solver.cpp:237]     Train net output #0: loss = 0.125 (* 1 = 0.125 loss)
I0210 13:40:22.250000 25210 sgd_solver.cpp:105] Iteration 200, lr = 9.8e-05
I0210 13:40:22.250000 25210 solver.cpp:447] Snapshotting to binary proto file x.caffemodel
I0210 13:40:23.250000 25210 solver.cpp:310] Iteration 200, loss = 0.09
I0210 13:40:23.250000 25210 solver.cpp:330] Iteration 200, Testing net (#0)
I0210 13:40:24.250000 25210 solver.cpp:397]     Test net output #0: accuracy = 0.9
I0210 13:40:24.250000 25210 solver.cpp:397]     Test net output #1: loss = 0.3 (* 1 = 0.3 loss)
I0210 13:40:24.250000 25210 solver.cpp:315] Optimization Done.
"""


def parse(text, year=2016):
    return parse_training_log(text if isinstance(text, list) else text.splitlines(), year)


def test_a_log_of_caffe():
    log = parse(CAFFE)
    assert [list(row.values()) for row in log.train] == [
        [0, 1.1, 0.01, 2.4],  # each with the rate that the log shows for its iteration, behind the outputs
        [100, 10.0, 0.00992565, 0.15],
        [200, 60.0, 9.8e-05, 0.125],
    ]
    assert columns(log.train) == ["NumIters", "Seconds", "LearningRate", "loss"]
    assert columns(log.test) == ["NumIters", "Seconds", "LearningRate", "accuracy", "loss"]
    assert [list(row.values()) for row in log.test] == [
        [0, 1.0, 0.01, 0.0919, 2.36417],
        [200, 62.0, 9.8e-05, 0.9, 0.3],
    ]
    assert log.losses == [Point(0, 1.1, 2.41298), Point(100, 10.0, 0.2), Point(200, 60.0, 0.1), Point(200, 61.0, 0.09)]
    assert log.rates == [Point(0, 1.1, 0.01), Point(100, 10.0, 0.00992565), Point(200, 60.0, 9.8e-05)]
    assert log.weighted == {"loss"}


def test_the_newer_prefix_has_the_year():
    assert parse(CAFFE.replace("\nI0210", "\nI20160210")).test == parse(CAFFE).test


def test_a_run_over_new_year():
    text = (
        "I1231 23:59:59.500000 1 solver.cpp:1] Solving x\nI0101 00:00:01.750000 1 solver.cpp:1] Iteration 7, loss = 1\n"
    )
    assert parse(text).losses == [Point(7, 2.25, 1.0)]


def test_values_that_are_no_numbers_count():
    log = parse(CAFFE.replace("loss = 0.125", "loss = nan").replace("loss = 0.3", "loss = -inf"))
    assert math.isnan(log.train[2]["loss"]) and log.test[1]["loss"] == -math.inf
    assert len(log.train) == 3


def test_several_elements_and_several_test_nets():
    line = "I0210 13:39:23.250000 25210 solver.cpp:404] "
    text = CAFFE[: CAFFE.index("I0210 13:39:23")] + "".join(
        f"{line}{rest}\n"
        for rest in (
            "    Test net output #0: class = 0.5",
            "    Test net output #1: class = 0.25",
            "Iteration 0, Testing net (#1)",
            "    Test net output #0: class = 0.75",
        )
    )
    (row,) = parse(text).test
    assert list(row.items())[3:] == [("class", 0.5), ("class[1]", 0.25), ("net1/class", 0.75)]


def test_rows_of_a_run_that_was_resumed_stay_apart():
    again = CAFFE + CAFFE[CAFFE.index("I0210 13:40:23") :].replace("13:40", "13:50")
    assert [row["Seconds"] for row in parse(again).test] == [1.0, 62.0, 662.0]


def test_what_others_print_between_is_passed_over():
    lines = CAFFE.splitlines()
    noisy = "\n".join(part for line in lines for part in (line, "\x00 Iteration", "I9999 99:99:99.9 1 a:1] lr = 3"))
    assert parse(noisy).train == parse(CAFFE).train


@pytest.mark.parametrize("year", [2023, 2024])
def test_the_last_of_february(tmp_path, monkeypatch, year):
    """A leap year's log in a file of another year."""
    text = (
        "I0228 23:59:59.000000 1 s.cpp:1] Solving x\nI0229 00:00:01.000000 1 s.cpp:1] Iteration 1, loss = 4\n"
        "I0301 00:00:01.000000 1 s.cpp:1] Iteration 2, loss = 5\n"
    )
    path = tmp_path / "x.log"
    path.write_text(text)
    real = __import__("os").stat(path)

    class Stat:
        st_ctime = real.st_ctime - (__import__("time").localtime(real.st_ctime).tm_year - year) * 365.25 * 86400

    monkeypatch.setattr("pycaffe_lms.formats.training_log.os.stat", lambda p: Stat)
    assert [p.seconds for p in read_training_log(path).losses] == [2.0, 2.0 + 86400]


def test_lines_of_two_writers_that_run_together():
    """Broken numbers and absurdly large ones are skipped."""
    start, at = "I0210 13:39:22.000000 1 s.cpp:1] Solving x", "I0210 13:39:23.000000 1 s.cpp:1]"
    log = parse(
        [
            start,
            f"{at} Iteration 1, loss = 0.20.25",
            f"{at} Iteration 2, loss = .",
            f"{at} Iteration 3, lr = 0.0.01",
            f"{at}     Train net output #0: loss = 1.5I0210",
            f"{at} Iteration {'9' * 400}, loss = 7",
            f"{at} Iteration {'9' * 5000}, loss = 7",
            f"I0210 {'9' * 12}:39:23.000000 1 s.cpp:1] Iteration 4, loss = 7",
            f"{at} Iteration 5, loss = 1e-05",
            f"{at} Iteration 6, lr = .5",
            f"{at} Iteration 7, loss = -nan",
        ]
    )
    assert [(p.iteration, p.value) for p in log.losses[:1]] == [(5, 1e-05)] and len(log.losses) == 2
    assert math.isnan(log.losses[1].value) and log.losses[1].iteration == 7
    assert [(p.iteration, p.value) for p in log.rates] == [(6, 0.5)] and not log.train


def test_what_is_no_log(tmp_path):
    path = tmp_path / "x.log"
    with pytest.raises(DataError, match=r"Could not open file .*x\.log"):
        read_training_log(path)
    path.write_bytes(bytes(range(256)) * 10)
    with pytest.raises(DataError, match=r"x\.log: no line with the words"):
        read_training_log(path)


STAMP = "I0210 13:39:2{}.381027 25210 solver.cpp:204] "
TWO_WRITERS = {
    "another line in a number": (f"loss = 1.2{STAMP.format(5)}.5", []),
    "two numbers in one": ("loss = 0.51.5", []),
    "a number with two points": ("loss = 0.5.", []),
    "a number of 5,000 digits": (f"loss = {'9' * 5000}", [float("inf")]),
    "another line behind a space": (f"loss = 0.5 {STAMP.format(5)}", [0.5]),
    "a number with a comma behind": ("loss = 0.5, lr = 0.1", [0.5]),
}


@pytest.mark.parametrize("end, values", TWO_WRITERS.values(), ids=TWO_WRITERS)
def test_lines_of_two_writers_count_as_far_as_they_are_whole(end, values):
    lines = [f"{STAMP.format(2)}Solving net", f"{STAMP.format(3)}Iteration 7, {end}", f"{STAMP.format(4)}end"]
    log = parse_training_log(lines, 2020)
    assert [(p.iteration, p.value) for p in log.losses] == [(7, value) for value in values]


@pytest.mark.parametrize("text", [f"Iteration {'9' * 5000}, loss = 1", "Iteration 12I0210, loss = 1"])
def test_an_iteration_that_is_none(text):
    assert not parse_training_log([f"{STAMP.format(2)}Solving net", STAMP.format(3) + text], 2020).losses


def test_a_time_of_too_many_digits():
    line = f"I0210 {'9' * 5000}:39:22.381027 1 solver.cpp:1] Iteration 1, loss = 1"
    assert not parse_training_log([f"{STAMP.format(2)}Solving net", line], 2020).losses
