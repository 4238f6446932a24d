"""Tests what a solver's tests compute: means over batches, element by element, with the train net's weights."""

from __future__ import annotations

import logging

import numpy as np
import pytest

from .helpers import CONSTANT, GAUSSIAN, INPUT, PLACES, bits, inner, loss, make, messages, values

NET = GAUSSIAN + inner() + loss()


@pytest.fixture(autouse=True)
def _log(caplog):
    caplog.set_level(logging.INFO, "pycaffe_lms")


@pytest.mark.parametrize("place", PLACES)
def test_a_test_is_a_mean_over_its_batches(caplog, place):
    """Each batch has data of its own; the total loss is weighted, the output itself is not."""
    net = GAUSSIAN + inner() + loss(name="zloss", weight="loss_weight: 3")
    solver = make(net, place, test_iter=3, test_interval=1, test_compute_loss="true")
    other = make(net, place, test_iter=3, test_interval=1)
    net_by_hand, sums = other.test_nets[0], np.zeros(1)
    for _ in range(3):
        net_by_hand.share_with(other.net)
        net_by_hand.forward_range()
        sums = sums + net_by_hand.blobs["zloss"].read_data()
    caplog.clear()
    assert solver.test() == [("zloss", pytest.approx(float(sums.ravel()[0]) / 3, rel=1e-6))]
    mean = float(sums.ravel()[0]) / 3
    assert messages(caplog) == [
        "Iteration 0, Testing net (#0)",
        f"Test loss: {3 * mean:.6g}",
        f"    Test net output #0: zloss = {mean:.6g} (* 3 = {3 * mean:.6g} loss)",
    ]


def test_outputs_are_numbered_by_element(caplog):
    """There is a line per element, numbered through all outputs; outputs are sorted by the bytes of their names."""
    net = INPUT + inner() + loss(name="Loss") + 'layer { name: "relu" type: "ReLU" bottom: "x" top: "copy" }\n'
    solver = make(net, test_iter=2, test_interval=1)
    x = np.arange(12, dtype=np.float32).reshape(4, 3)
    solver.test_nets[0].blobs["x"].data = x
    result = solver.test()
    assert [name for name, _ in result] == ["Loss"] + ["copy"] * 12, "upper case sorts first"
    assert [v for _, v in result[1:]] == list(range(12))
    lines = [m for m in messages(caplog) if "output #" in m]
    assert [m.split(":")[0] for m in lines] == [f"    Test net output #{k}" for k in range(13)]
    assert lines[12] == "    Test net output #12: copy = 11"


BATCH_NORM = 'layer { name: "bn" type: "BatchNorm" bottom: "x" top: "bn" }\n'


@pytest.mark.parametrize("place", PLACES)
def test_test_nets_share_weights_and_running_statistics(place):
    net = GAUSSIAN + BATCH_NORM + inner(bottom="bn") + loss()
    solver = make(net, place, test_iter=[1, 1], test_interval=100, base_lr=0.5)
    solver.step(3)
    for i, test_net in enumerate(solver.test_nets):
        solver.test(i)
        for layer in ("ip", "bn"):
            for mine, trained in zip(test_net.params[layer], solver.net.params[layer], strict=True):
                assert mine.data_memory is trained.data_memory
    assert solver.net.params["bn"][2].read_data() == pytest.approx(1 + 0.999 + 0.999**2, rel=1e-6)
    before = bits(solver)
    solver.test_all()
    assert bits(solver) == before, "a test moves neither statistics nor weights"
    x = solver.test_nets[0].blobs["x"].read_data().copy()
    mean, var, factor = (v.astype(np.float64) for v in values(solver, "bn"))
    expected = (x - mean / factor) / np.sqrt(var / factor + 1e-5)
    solver.test_nets[0].forward_range(1)
    np.testing.assert_allclose(solver.test_nets[0].blobs["bn"].read_data(), expected, rtol=1e-4, atol=1e-5)


def test_every_test_takes_the_weights_of_the_train_net():
    """Whatever weights the test net shared in between."""
    net = CONSTANT + inner() + loss()
    solver, other = (make(net, test_iter=1, test_interval=1, random_seed=s) for s in (1, 2))
    expected = solver.test()
    assert other.test() != expected
    solver.test_nets[0].share_with(other.net)
    assert solver.test() == expected


def test_a_test_net_needs_no_memory_for_weights():
    """Count before anything runs: a second net on the device costs only its blobs."""
    net = CONSTANT + inner(outputs=4000) + loss()
    alone, tested = (make(net, "sim", test_interval=1, test_iter=[1] * n).runtime.resident_bytes for n in (0, 1))
    weights, blobs = 4000 * (3 + 1) * 4, 4 * 4000 * 4
    assert alone > 3 * weights, "with gradients and history"
    assert blobs <= tested - alone < blobs * 2 + weights


def test_a_test_of_no_batches(caplog):
    solver = make(NET, test_iter=0, test_interval=1, test_compute_loss="true")
    assert solver.test() == []
    assert messages(caplog)[-1] == "Test loss: nan"
