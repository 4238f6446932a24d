"""Tests debug_info: Caffe's lines with correct numbers, training unchanged by it, and the origin of a NaN loss."""

from __future__ import annotations

import logging
import re

import numpy as np
import pytest

from .helpers import CONSTANT, GAUSSIAN, INPUT, PLACES, bits, inner, loss, make, messages, values

RANDOM = (
    GAUSSIAN
    + 'layer { name: "drop" type: "Dropout" bottom: "x" top: "drop" }\n'
    + 'layer { name: "bn" type: "BatchNorm" bottom: "drop" top: "bn" }\n'
    + inner("a", "bn", params='param { name: "w" } param { name: "b" }')
    + 'layer { name: "relu" type: "ReLU" bottom: "a" top: "a" }\n'
    + inner("back", "a", outputs=3)
    + inner("ip", "back", params='param { name: "w" } param { name: "b" }')
    + 'layer { name: "sum" type: "Eltwise" bottom: "a" bottom: "ip" top: "sum" }\n'
    + 'layer { name: "flat" type: "Flatten" bottom: "sum" top: "flat" }\n'
    + loss("flat")
    + 'layer { name: "accuracy" type: "Accuracy" bottom: "flat" bottom: "label" top: "accuracy" }\n'
)


@pytest.fixture(autouse=True)
def _log(caplog):
    caplog.set_level(logging.INFO, "pycaffe_lms")


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize(
    "options", [{}, {"iter_size": 3}, {"clip_gradients": 0.5}, {"iter_size": 2, "clip_gradients": 0.1}], ids=str
)
def test_no_number_changes(place, options):
    """Dropout draws once and statistics change once, whether or not an iteration is shown layer by layer."""
    options = {"momentum": 0.9, "weight_decay": 0.1, "test_iter": 2, "test_interval": 2, "display": 2} | options
    plain, shown = (make(RANDOM, place, debug_info=info, **options) for info in ("false", "true"))
    for _ in range(5):
        plain.step(1)
        shown.step(1)
        assert shown.net.loss() == plain.net.loss()
        assert bits(shown) == bits(plain)
    assert [n.layer.state() for n in shown.net.graph.nodes] == [n.layer.state() for n in plain.net.graph.nodes]
    assert shown.test() == plain.test()


def _numbers(lines) -> dict[str, float]:
    return {k: float(v) for k, v in (line.rsplit(": ", 1) for line in lines)}


@pytest.mark.parametrize("place", PLACES)
def test_the_lines_of_a_displayed_iteration(caplog, place):
    """Compare mean magnitudes with NumPy, layer by layer; the norms follow, before the update."""
    net = INPUT + inner("ip", params='param { name: "w" } param { lr_mult: 0 }') + loss()
    solver = make(net, place, debug_info="true", display=2)
    random = np.random.RandomState(0)
    x, label = random.randn(4, 3).astype(np.float32), np.array([0, 4, 2, 2])
    solver.net.blobs["x"].data, solver.net.blobs["label"].data = x, label
    w, b = (v.astype(np.float64) for v in values(solver))
    caplog.clear()
    solver.step(1)
    lines = [m for m in messages(caplog) if m.startswith("    [")]
    z = x @ w.T + b
    p = np.exp(z) / np.exp(z).sum(1, keepdims=True)
    error = (p - np.eye(5)[label]) / 4
    grad = error.T @ x
    expected = {
        "    [Forward] Layer x, top blob x data": np.abs(x).mean(),
        "    [Forward] Layer label, top blob label data": label.mean(),
        "    [Forward] Layer ip, top blob ip data": np.abs(z).mean(),
        "    [Forward] Layer ip, param blob w data": np.abs(w).mean(),
        "    [Forward] Layer ip, param blob 1 data": np.abs(b).mean(),
        "    [Forward] Layer loss, top blob loss data": -np.log(p[range(4), label]).mean(),
        "    [Backward] Layer loss, bottom blob ip diff": np.abs(error).mean(),
        "    [Backward] Layer ip, param blob 0 diff": np.abs(grad).mean(),
    }
    assert list(_numbers(lines[:-1])) == list(expected)
    assert _numbers(lines[:-1]) == pytest.approx(expected, rel=1e-4)
    norms = re.fullmatch(
        r"    \[Backward\] All net params \(data, diff\): L1 norm = \((.*), (.*)\); L2 norm = \((.*), (.*)\)", lines[-1]
    )
    both = np.concatenate([w.ravel(), b])
    truth = [np.abs(both).sum(), np.abs(grad).sum(), np.linalg.norm(both), np.linalg.norm(grad)]
    assert [float(v) for v in norms.groups()] == pytest.approx(truth, rel=1e-4)
    (record,) = [r for r in caplog.records if "All net params" in r.getMessage()]
    assert record.levelno == logging.ERROR, "Caffe gives this line another severity"
    caplog.clear()
    solver.step(1)
    assert not [m for m in messages(caplog) if m.startswith("    [")], "iteration 1 is not displayed"


def test_every_batch_and_every_test_has_its_lines(caplog):
    """Include in-place, split and flattened blobs; test nets log their forward in every test. Layers that lead to no
    loss have no backward."""
    dead = inner("dead") + 'layer { name: "quiet" type: "Silence" bottom: "dead" }\n'
    solver = make(RANDOM + dead, debug_info="true", display=3, iter_size=2, test_iter=2, test_interval=1)
    caplog.clear()
    solver.step(2)
    lines = [m.rsplit(": ", 1)[0] for m in messages(caplog) if m.startswith("    [")]
    forward = [m for m in lines if m.startswith("    [Forward] Layer relu,")]
    assert forward == ["    [Forward] Layer relu, top blob a data"] * (2 * 2 + 2)
    backward = [m.removeprefix("    [Backward] Layer ").removesuffix(" diff") for m in lines if "[Backward] L" in m]
    once = [
        "loss, bottom blob flat_flat_0_split_0",
        "flat_flat_0_split, bottom blob flat",
        "flat, bottom blob sum",
        *("sum, bottom blob a_relu_0_split_1", "sum, bottom blob ip"),
        *("ip, bottom blob back", "ip, param blob 0", "ip, param blob 1"),
        *("back, bottom blob a_relu_0_split_0", "back, param blob 0", "back, param blob 1"),
        "a_relu_0_split, bottom blob a",
        "relu, bottom blob a",
        *("a, param blob 0", "a, param blob 1"),
    ]
    assert backward == once * 2
    assert len([m for m in lines if "All net params" in m]) == 2


@pytest.mark.parametrize("display", [1, 0])
@pytest.mark.parametrize("place", PLACES)
def test_the_first_layer_of_a_nan_loss(caplog, place, display):
    """It is named once, before the update spreads the NaN, in displayed iterations and others; parameters that hold a
    NaN are named too."""
    net = CONSTANT + inner("one") + inner("two", "one") + inner("ip", "two") + loss()
    solver = make(net, place, debug_info="true", display=display, lr_policy='"step"', stepsize=1, gamma=0)
    solver.step(1)
    caplog.clear()
    weight = solver.net.params["two"][1].read_data().copy()
    weight[2] = np.nan
    solver.net.params["two"][1].data = weight
    solver.nan = "ignore"
    solver.step(3)
    assert [r.getMessage() for r in caplog.records if r.levelno == logging.WARNING] == [
        'The loss is nan: the first is in top blob "two" of layer "two", whose parameter 1 already holds one'
    ]
    assert np.isnan(solver.net.loss())


@pytest.mark.parametrize("place", PLACES)
def test_the_first_layer_where_infinities_meet(caplog, place):
    """inf - inf: the sum makes the NaN; its bottoms are infinite and hold none."""
    net = INPUT.replace("dim: 4 dim: 3", "dim: 4 dim: 5") + (
        'layer { name: "relu" type: "ReLU" bottom: "x" top: "up" }\n'
        'layer { name: "difference" type: "Eltwise" bottom: "x" bottom: "up" top: "d" '
        "eltwise_param { coeff: 1 coeff: -1 } }\n"
    )
    solver = make(net + inner(bottom="d") + loss(), place, debug_info="true")
    solver.nan = "ignore"
    solver.net.blobs["x"].data = np.inf
    with np.errstate(invalid="ignore"):
        solver.step(1)
    warnings = [r.getMessage() for r in caplog.records if r.levelno == logging.WARNING]
    assert warnings == ['The loss is nan: the first is in top blob "d" of layer "difference"']


def test_a_value_overwritten_in_place_names_all_who_wrote_it(caplog):
    """The layers share memory, so it is not known which of them made the NaN."""
    net = INPUT + inner() + 'layer { name: "drop" type: "Dropout" bottom: "ip" top: "ip" }\n' + loss()
    solver = make(net, debug_info="true")
    solver.net.blobs["x"].data = 1
    solver.nan = "ignore"
    solver.net.params["ip"][0].data = [[np.inf, -np.inf, 0]] * 5
    with np.errstate(all="ignore"):
        solver.step(1)
    (warning,) = [r.getMessage() for r in caplog.records if r.levelno == logging.WARNING]
    assert warning == 'The loss is nan: the first is in top blob "ip" of layer "ip", or came in place from drop'


def test_a_finite_loss_says_nothing(caplog):
    solver = make(RANDOM, debug_info="true", display=1)
    solver.step(2)
    assert not [r for r in caplog.records if r.levelno == logging.WARNING]


def test_without_debug_info_there_is_nothing_of_it(caplog):
    solver = make(RANDOM, display=1, test_iter=1, test_interval=1)
    solver.step(2)
    assert not [m for m in messages(caplog) if "[Forward]" in m or "[Backward]" in m]
