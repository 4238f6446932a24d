"""Tests the loop by its log: what happens in which iteration, in which order, and what displays average."""

from __future__ import annotations

import logging
import re

import numpy as np
import pytest

from pycaffe_lms.errors import SolverError
from pycaffe_lms.solvers.base import NONE, SNAPSHOT, STOP
from pycaffe_lms.solvers.display import number

from .helpers import CONSTANT, GAUSSIAN, INPUT, PLACES, bits, inner, loss, make, messages, values

NET = GAUSSIAN + inner() + loss()
TESTS = {"test_iter": 1, "test_interval": 2}


@pytest.fixture(autouse=True)
def _log(caplog):
    caplog.set_level(logging.INFO, "pycaffe_lms")


def _story(caplog) -> list[str]:
    """Return the log without times and outputs."""
    lines = [re.sub(r" \(.* iters\)", "", m) for m in messages(caplog)]
    return [re.sub(r"loss = \S+", "loss", m) for m in lines if "output #" not in m]


def _solve(caplog, net=NET, resume=None, **options):
    solver = make(net, **options)
    caplog.clear()
    solver.solve(resume)
    return solver, _story(caplog)


def test_the_order_of_a_whole_run(caplog, tmp_path):
    """Test, display and rate come before the update, a snapshot after it; at the end snapshot, loss and test."""
    prefix = str(tmp_path / "run")
    options = {"max_iter": 4, "display": 2, "snapshot": 3, "snapshot_prefix": f'"{prefix}"', **TESTS}
    _, story = _solve(caplog, snapshot_after_train=None, **options)

    def snapshots(k):
        return [
            f"Snapshotting to binary proto file {prefix}_iter_{k}.caffemodel",
            f"Snapshotting solver state to binary proto file {prefix}_iter_{k}.solverstate",
        ]

    assert story == [
        "Solving small",
        "Learning Rate Policy: fixed",
        *["Iteration 0, Testing net (#0)", "Iteration 0, loss", "Iteration 0, lr = 0.1"],
        *["Iteration 2, Testing net (#0)", "Iteration 2, loss", "Iteration 2, lr = 0.1"],
        *snapshots(3),
        *snapshots(4),
        *["Iteration 4, loss", "Iteration 4, Testing net (#0)"],
        "Optimization Done.",
    ]


@pytest.mark.parametrize(
    ("options", "tested"),
    [
        ({"test_interval": 2}, [0, 2, 4]),
        ({"test_interval": 2, "test_initialization": "false"}, [2, 4]),
        ({"test_interval": 3}, [0, 3]),
        ({"test_interval": 4, "test_initialization": "false"}, [4]),
        ({"test_interval": 9, "test_initialization": "false"}, []),
    ],
)
def test_when_is_tested(caplog, options, tested):
    _, story = _solve(caplog, max_iter=4, test_iter=[1, 1], **options)
    expected = [f"Iteration {k}, Testing net (#{i})" for k in tested for i in (0, 1)]
    assert [m for m in story if "Testing" in m] == expected


@pytest.mark.parametrize(
    ("display", "shown"), [(0, []), (None, []), (1, [0, 1, 2, 3, 4]), (2, [0, 2, 4]), (3, [0, 3]), (7, [0])]
)
def test_when_is_displayed(caplog, display, shown):
    """The last display is of the final forward, and has no rate."""
    _, story = _solve(caplog, max_iter=4, display=display)
    assert [m for m in story if "loss" in m] == [f"Iteration {k}, loss" for k in shown]
    assert [m for m in story if "lr" in m] == [f"Iteration {k}, lr = 0.1" for k in shown if k < 4]


class Losses:
    """Make a net whose loss is known: a constant input times a weight of 1 that does not change."""

    net = INPUT.replace("dim: 4 dim: 3", "dim: 1 dim: 1") + (
        'layer { name: "quiet" type: "Silence" bottom: "label" }\n'
        'layer { name: "sum" type: "Scale" bottom: "x" top: "sum" loss_weight: 2 param { lr_mult: 0 } }\n'
    )

    def __init__(self, **options):
        self.solver, self.next = make(self.net, **options), 0
        self.solver.callbacks.append((self.feed, lambda: None))

    def feed(self):
        """Give forward k the input k^2."""
        self.solver.net.blobs["x"].data = self.next**2
        self.next += 1


@pytest.mark.parametrize("window", [1, 2, 3, 10])
def test_average_loss_is_a_window(caplog, window):
    """It is the mean of the last `average_loss` losses, counted from the last call of step."""
    run = Losses(display=1, average_loss=window)
    caplog.clear()
    run.solver.step(6)
    run.solver.step(2)
    shown = [float(m.split("loss = ")[1]) for m in messages(caplog) if "iter/s" in m]
    calls = [[2 * k**2 for k in range(6)], [2 * k**2 for k in (6, 7)]]
    expected = [np.mean(losses[max(0, i + 1 - window) : i + 1]) for losses in calls for i in range(len(losses))]
    assert shown == pytest.approx(expected, rel=1e-5)
    outputs = [m for m in messages(caplog) if "Train net output" in m]
    assert outputs[3] == "    Train net output #0: sum = 9 (* 2 = 18 loss)"


def test_the_final_loss_joins_the_window(caplog):
    run = Losses(display=2, average_loss=2, max_iter=4)
    run.solver.solve()
    assert f"Iteration 4, loss = {(18 + 18) / 2:g}" in messages(caplog), "the last input was 3: 2 * 9, twice"


def test_the_loss_of_an_iteration_is_the_mean_over_its_batches(caplog):
    """The outputs that are displayed are the last batch's."""
    solver = make(NET, display=1, iter_size=3, base_lr=0)
    alone = make(NET, base_lr=0)
    caplog.clear()
    solver.step(1)
    losses = []
    for _ in range(3):
        alone.step(1)
        losses.append(alone.net.loss())
    line, output = (m for m in messages(caplog) if "loss = " in m)
    assert float(line.split("loss = ")[1]) == pytest.approx(np.mean(losses), rel=1e-5)
    assert f"loss = {losses[-1]:.6g} (*" in output and len(set(losses)) == 3


def test_times_in_the_display(caplog, monkeypatch):
    """A display tells x iterations in y seconds since the last one; the first one tells 0."""
    clock = iter([100.0, 102.0, 104.5, 109.5])
    monkeypatch.setattr("pycaffe_lms.solvers.display.time.monotonic", lambda: next(clock))
    make(NET, display=5).step(11)
    shown = [re.search(r"Iteration \d+ \((.*)\)", m) for m in messages(caplog)]
    assert [m.group(1) for m in shown if m] == [
        "0 iter/s, 2s/5 iters",
        "2 iter/s, 2.5s/5 iters",
        "1 iter/s, 5s/5 iters",
    ]


# -- signals as the solver sees them -----------------------------------------------------------------------------
class Actions:
    """Answer signal polls, one after the other, then with none."""

    def __init__(self, *answers):
        self.answers, self.polls = list(answers), 0

    def __call__(self):
        self.polls += 1
        return self.answers.pop(0) if self.answers else NONE


def test_stop_ends_after_the_iteration_with_a_snapshot(caplog, tmp_path):
    prefix = str(tmp_path / "s")
    solver, story = _solve(
        caplog,
        action=Actions(NONE, STOP),
        max_iter=9,
        snapshot_after_train=None,
        display=1,
        snapshot_prefix=f'"{prefix}"',
    )
    assert solver.iter == 2
    assert story[-3:] == [
        f"Snapshotting to binary proto file {prefix}_iter_2.caffemodel",
        f"Snapshotting solver state to binary proto file {prefix}_iter_2.solverstate",
        "Optimization stopped early.",
    ]
    caplog.clear()
    solver.solve()  # and can go on
    assert solver.iter == 9 and messages(caplog)[-1] == "Optimization Done."


def test_stop_within_a_test_ends_before_the_next_iteration(caplog):
    """Polls are for iterations 0 and 1, then for the batches of the test at 2; the other test net is not tested any
    more."""
    action = Actions(NONE, NONE, NONE, STOP)
    options = {"test_iter": [3, 3], "test_interval": 2, "test_initialization": "false"}
    solver, story = _solve(caplog, action=action, max_iter=9, **options)
    assert solver.iter == 2 and action.polls == 4
    assert story[-3:] == ["Iteration 2, Testing net (#0)", "Test interrupted.", "Optimization stopped early."]


def test_snapshot_on_demand_within_training_and_testing(caplog, tmp_path):
    action = Actions(SNAPSHOT, NONE, SNAPSHOT)
    options = {"test_iter": 2, "test_interval": 2, "test_initialization": "false", "max_iter": 3}
    _solve(caplog, action=action, snapshot_prefix=f'"{tmp_path}/s"', **options)
    assert sorted(p.name for p in tmp_path.iterdir()) == [
        *("s_iter_1.caffemodel", "s_iter_1.solverstate"),
        *("s_iter_2.caffemodel", "s_iter_2.solverstate"),
    ]


def test_an_action_that_says_stop_for_ever_stops():
    solver = make(NET, action=lambda: STOP, max_iter=5, **TESTS)
    solver.solve()
    assert solver.iter == 0


# -- calls -----------------------------------------------------------------------------------------------------------
def test_callbacks_come_in_order(caplog):
    """The order is: every on_start, forward and backward, the display, every on_gradients_ready, the rate, the
    update."""
    solver = make(NET, display=1, iter_size=2, base_lr=0.5, **TESTS)
    told = logging.getLogger("pycaffe_lms.tests")
    for name in "ab":
        solver.callbacks.append((lambda n=name: told.info("start %s", n), lambda n=name: told.info("ready %s", n)))
    before, seen = values(solver), []
    solver.callbacks.append((lambda: None, lambda: seen.append(values(solver))))
    caplog.clear()
    solver.step(1)
    assert _story(caplog) == [
        "Iteration 0, Testing net (#0)",
        *("start a", "start b", "Iteration 0, loss", "ready a", "ready b"),
        "Iteration 0, lr = 0.5",
    ]
    assert [v.tobytes() for v in seen[0]] == [v.tobytes() for v in before]
    assert [v.tobytes() for v in values(solver)] != [v.tobytes() for v in before]


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("options", [{}, {"iter_size": 2}, {"clip_gradients": 0.2}], ids=str)
def test_two_calls_of_step_are_one(place, options):
    options = {"momentum": 0.9, "lr_policy": '"multistep"', "gamma": 0.5, "stepvalue": [2, 3], **TESTS, **options}
    once, twice = (make(NET, place, **options) for _ in range(2))
    once.step(5)
    twice.step(2)
    twice.step(3)
    assert bits(once) == bits(twice) and once.iter == twice.iter == 5
    assert once.current_step == twice.current_step == 2


def test_nothing_left_to_do(caplog):
    """solve at max_iter trains no further, but tests and shows the final loss."""
    solver, _ = _solve(caplog, max_iter=2, display=1, **TESTS)
    before = bits(solver)
    caplog.clear()
    solver.solve()
    assert bits(solver) == before
    assert _story(caplog)[2:] == ["Iteration 2, loss", "Iteration 2, Testing net (#0)", "Optimization Done."]


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"average_loss": 0}, "average_loss 0 is not positive"),
        ({"average_loss": -2}, "average_loss -2 is not positive"),
        ({"iter_size": 0}, "iter_size 0 is not positive"),
        ({"regularization_type": '"l2"'}, 'regularization_type "l2" is unknown'),
    ],
)
def test_numbers_that_mean_nothing(options, text):
    with pytest.raises(SolverError) as caught:
        make(CONSTANT + inner() + loss(), file="s.prototxt", **options)
    assert caught.value.message == text and caught.value.where.file == "s.prototxt" and caught.value.fix


def test_a_zero_has_no_sign():
    """-0.0 comes of a mean of zeros times a negative weight; C++ prints -0."""
    assert [number(v) for v in (-0.0, 0.0, -1.5, 1 / 3)] == ["0", "0", "-1.5", "0.333333"]
