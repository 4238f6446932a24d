"""Tests a loss that is NaN or infinite: which iteration, layer and label are named, and what the solver does."""

from __future__ import annotations

import logging
import math

import numpy as np
import pytest

from pycaffe_lms.backend import cuda_available, get_device
from pycaffe_lms.backend.sim.device import SimDevice
from pycaffe_lms.errors import NonFiniteLoss, UsageError
from pycaffe_lms.formats.weights.solverstate import read_solverstate
from pycaffe_lms.layers.loss.base import Labels
from pycaffe_lms.lms.config import LMSConfig

from . import helpers
from .helpers import INPUT, inner, loss

MEMORY = """
layer { name: "data" type: "MemoryData" top: "x" top: "label"
  memory_data_param { batch_size: 4 channels: 3 height: 1 width: 1 } }
"""
NET = MEMORY + inner() + loss()
BATCHES = 60
FROZEN = "param { lr_mult: 0 } param { lr_mult: 0 }"  # a NaN does not reach these weights

PLACES = helpers.PLACES | {
    "sim, early": lambda: {"device": SimDevice(64 << 20, order="earliest")},
    "sim with LMS auto": lambda: {"device": SimDevice(64 << 20), "lms": LMSConfig(auto=True)},
}


def make(net: str, place="cpu", **options):
    """Make a solver as `helpers.make` does, at one of the places above."""
    return helpers.make(net, place if callable(place) else PLACES[place], **options)


def feed(solver, bad: dict[tuple[int, int], float], net=None) -> None:
    """Feed batches of 4 with labels 0 to 4, except those that `bad` gives by (batch, position)."""
    random = np.random.RandomState(0)
    data, labels = random.randn(4 * BATCHES, 3, 1, 1), random.randint(0, 5, 4 * BATCHES)
    data, labels = data.astype(np.float32), labels.astype(np.float32)
    for (batch, position), label in bad.items():
        labels[4 * batch + position] = label
    (net or solver.net).graph.nodes[0].layer.set_input_arrays(data, labels)


def warnings(caplog) -> list[str]:
    return [r.getMessage() for r in caplog.records if r.levelno == logging.WARNING]


@pytest.mark.parametrize("place", PLACES)
def test_the_iteration_and_the_label_are_named(place, tmp_path):
    """They are, though only the end of `step` waits for the device, and later batches have other labels."""
    solver = make(NET, place, file=str(tmp_path / "s.prototxt"))
    feed(solver, {(5, 2): 12, (5, 3): 7, (9, 0): 30})
    with pytest.raises(NonFiniteLoss) as caught:
        solver.step(50)
    error = caught.value
    assert (error.iteration, error.label, error.classes) == (5, 12, 5) and math.isnan(error.loss)
    assert (error.where.layer, error.where.type, error.where.blob) == ("loss", "SoftmaxWithLoss", "label")
    assert error.where.file == str(tmp_path / "s.prototxt") and error.where.line
    assert error.message == (
        "iteration 5: the loss is nan: label 12, at position 2 of 4 (and 1 more), is none of the 5 classes 0 to 4"
    )
    assert error.exit_code == 1 and 5 < solver.iter < 20


@pytest.mark.parametrize("place", PLACES)
def test_every_pass_of_an_iteration_counts(place):
    solver = make(NET, place, iter_size=3)
    feed(solver, {(7, 1): -1})
    with pytest.raises(NonFiniteLoss) as caught:
        solver.step(10)
    assert (caught.value.iteration, caught.value.label) == (2, -1)


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("options", [{"display": 1}, {"clip_gradients": 1.0}, {"debug_info": "true"}], ids=str)
def test_however_the_iteration_runs(place, options):
    solver = make(NET, place, **options)
    feed(solver, {(3, 0): 5})
    with pytest.raises(NonFiniteLoss) as caught:
        solver.step(20)
    assert (caught.value.iteration, caught.value.label) == (3, 5)


@pytest.mark.parametrize("place", PLACES)
def test_step_by_step_too(place):
    solver = make(NET, place)
    feed(solver, {(2, 0): 5})
    solver.step(1)
    solver.step(1)
    with pytest.raises(NonFiniteLoss, match="iteration 2: the loss is nan"):
        solver.step(1)
    assert solver.iter == 3


@pytest.mark.parametrize("place", PLACES)
def test_an_infinite_loss_without_labels(place):
    """Half of the squared sum of 1e30 is beyond float32."""
    solver = make(
        INPUT
        + inner("ip", outputs=1)
        + ('layer { name: "far" type: "EuclideanLoss" bottom: "ip" bottom: "label" top: "far" }'),
        place,
    )
    solver.net.blobs["label"].data = 1e30
    solver.net.blobs["label"].reshape(4, 1)
    solver.net.blobs["label"].data = 1e30
    with np.errstate(over="ignore"), pytest.raises(NonFiniteLoss) as caught:
        solver.step(3)
    error = caught.value
    assert error.loss == math.inf and error.label is None and error.classes is None
    assert error.message == "iteration 0: the loss is inf" and error.where.layer == "far"
    assert "base_lr" in error.fix


@pytest.mark.parametrize("place", PLACES)
def test_labels_that_a_layer_changes_in_place(place):
    """The changed labels count: those that the host made are not blamed, even where the changed ones are gone."""
    shifted = 'layer { name: "less" type: "Power" bottom: "label" top: "label" power_param { shift: -1 } }\n'
    solver = make(MEMORY + shifted + inner() + loss(), place)
    feed(solver, {(k, i): 5 for k in range(BATCHES) for i in range(4)} | {(3, 2): 0})
    with pytest.raises(NonFiniteLoss) as caught:
        solver.step(20)
    assert caught.value.iteration == 3 and caught.value.label in ((-1,) if place == "cpu" else (-1, None))


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("place", PLACES)
def test_a_large_loss_that_a_plan_may_move(place, seed):
    """The top has 4 x 600 numbers and a loss weight; the layer's weights are NaN from iteration 3 on."""
    net = MEMORY + inner(outputs=600, params="loss_weight: 1 param { lr_mult: 0 } param { lr_mult: 0 }")
    managed = {"device": SimDevice(64 << 20, order="random", seed=seed), "lms": LMSConfig(threshold_kb=1, ahead=1)}
    solver = make(net, (lambda: managed) if place == "sim with LMS" else place)
    feed(solver, {})
    solver.step(3)
    solver.net.params["ip"][0].data = np.nan
    with pytest.raises(NonFiniteLoss) as caught:
        solver.step(5)
    assert caught.value.iteration == 3 and caught.value.where.layer == "ip"


@pytest.mark.parametrize("place", PLACES)
def test_warn_says_it_once_and_goes_on(place, caplog):
    solver = make(NET, place)
    feed(solver, {(5, 2): 12})
    solver.nan = "warn"
    solver.step(30)
    (line,) = warnings(caplog)
    assert solver.iter == 30 and math.isnan(solver.net.loss())
    assert 'layer "loss" (SoftmaxWithLoss), blob "label": iteration 5: the loss is nan: label 12' in line


@pytest.mark.parametrize("place", PLACES)
def test_ignore_says_nothing_and_trains_as_warn_does(place, caplog):
    found = []
    for policy in ("ignore", "warn"):
        solver = make(NET.replace('top: "ip"', f'top: "ip" {FROZEN}', 1), place, test_iter=1, test_interval=10)
        feed(solver, {(5, 2): 12})
        feed(solver, {(0, 2): 12}, solver.test_nets[0])
        solver.nan = policy
        caplog.clear()
        solver.step(30)
        assert bool(warnings(caplog)) == (policy == "warn")
        found.append([b.read_data().tobytes() for b in solver.net.params["ip"]])
    assert found[0] == found[1]


@pytest.mark.parametrize("place", PLACES)
def test_a_function_is_told_of_every_stretch(place):
    """Bad losses in a row are reported once; after a finite loss the next bad one is reported again."""
    net = MEMORY + inner(params=FROZEN) + loss()
    solver, told = make(net, place), []
    feed(solver, {(2, 0): 5, (3, 0): 6, (20, 1): math.nan, (40, 3): 9})
    solver.nan = told.append
    solver.step(50)
    assert [(e.iteration, e.label) for e in told if e.iteration != 20] == [(2, 5), (40, 9)]
    (other,) = [e for e in told if e.iteration == 20]
    assert math.isnan(other.label), "a label that is NaN names nothing"


def test_a_function_may_stop_the_training():
    solver = make(NET)
    feed(solver, {(2, 0): 5})

    def stop(error):
        raise KeyError(error.iteration)

    solver.nan = stop
    with pytest.raises(KeyError, match="2"):
        solver.step(10)


def test_what_is_no_policy():
    solver = make(NET)
    solver.nan = "halt"
    with pytest.raises(UsageError, match="'halt' is not a policy"):
        solver.step(1)


@pytest.mark.parametrize("place", PLACES)
def test_no_snapshot_under_its_own_name(place, tmp_path):
    """Neither that of an interval nor the last one is written; the one that is has another name, and can be resumed
    from."""
    prefix = tmp_path / "s"
    options = {"max_iter": 50, "snapshot": 4, "snapshot_after_train": "true", "snapshot_prefix": f'"{prefix}"'}
    solver = make(NET, place, **options)
    feed(solver, {(5, 2): 12})
    with pytest.raises(NonFiniteLoss, match="iteration 5"):
        solver.solve()
    names = sorted(p.name for p in tmp_path.iterdir())
    aside = f"s_nan_iter_{solver.iter}"
    kept = [f"s_{n}.{kind}" for n in ("iter_4",) for kind in ("caffemodel", "solverstate")]
    assert names == sorted([*kept, f"{aside}.caffemodel", f"{aside}.solverstate"])
    assert read_solverstate(tmp_path / f"{aside}.solverstate").iter == solver.iter


@pytest.mark.parametrize("place", PLACES)
def test_no_nan_is_snapshotted_by_hand_unannounced(place, tmp_path):
    solver = make(NET, place, snapshot_prefix=f'"{tmp_path}/s"')
    feed(solver, {(0, 0): 5})
    solver.nan = lambda error: None
    solver.step(1)
    solver.snapshot()
    assert (tmp_path / "s_iter_1.solverstate").exists(), "the function was told and let it go on"


@pytest.mark.parametrize("place", PLACES)
def test_a_test_says_it_once(place, caplog):
    """A loss and an accuracy are reported with their batch; training goes on."""
    accuracy = 'layer { name: "right" type: "Accuracy" bottom: "ip" bottom: "label" top: "right" }\n'
    only = "include { phase: TEST }"
    net = MEMORY + inner() + loss() + accuracy.replace("}", only + " }", 1)
    solver = make(net, place, test_iter=3, test_interval=2)
    feed(solver, {})
    feed(solver, {(1, 3): 5, (4, 0): 6}, solver.test_nets[0])
    solver.step(5)
    (line,) = warnings(caplog)
    assert "iteration 0, batch 1 of test net #0: the loss is nan: label 5, at position 3 of 4, is none" in line
    assert 'layer "loss" (SoftmaxWithLoss), blob "label"' in line and solver.iter == 5


@pytest.mark.parametrize("place", PLACES)
def test_an_accuracy_alone(place, caplog):
    net = (
        MEMORY + inner() + 'layer { name: "right" type: "Accuracy" bottom: "ip" bottom: "label" top: "right" }\n'
        'layer { name: "sum" type: "Reduction" bottom: "x" top: "sum" loss_weight: 1 }'
    )
    solver = make(net, place, test_iter=1, test_interval=1)
    feed(solver, {})
    feed(solver, {(0, 3): 8}, solver.test_nets[0])
    solver.test()
    (line,) = warnings(caplog)
    assert 'layer "right" (Accuracy), blob "label"' in line
    assert "right is nan: label 8, at position 3 of 4, is none of the 5 classes 0 to 4" in line


@pytest.mark.parametrize("order", ["earliest", "latest"])
@pytest.mark.parametrize("iter_size", [1, 20])
def test_who_waits_for_the_device(order, iter_size):
    """A loss that has not arrived is waited for when 8 later ones are queued, never before, and at the end."""
    device = SimDevice(64 << 20, order=order)
    solver = make(INPUT + inner() + loss(), lambda: {"device": device}, iter_size=iter_size)
    solver.step(4)
    copies, waits, wait_host, copy_down = [], [], device.wait_host, device.copy_down

    def copied(host, span, stream=None):
        event = copy_down(host, span, stream)
        copies.append(event)
        return event

    def waited(event):
        if event in copies and not event.done:
            waits.append((copies.index(event), len(copies)))
        wait_host(event)

    device.copy_down, device.wait_host = copied, waited
    solver.step(3)
    passes = 3 * iter_size
    assert len(copies) >= passes and all(c.stream is device.compute for c in copies)
    early = [n - k for k, n in waits if n <= passes - iter_size]  # the losses of the last iteration are read
    assert set(early) == ({8} if order == "latest" and iter_size > 1 else set())


@pytest.mark.parametrize("kind", ["MultinomialLogisticLoss", "HingeLoss"])
def test_the_other_losses_that_read_labels(kind):
    net = MEMORY + inner() + 'layer { name: "p" type: "Softmax" bottom: "ip" top: "p" }\n'
    solver = make(net + f'layer {{ name: "far" type: "{kind}" bottom: "p" bottom: "label" top: "far" }}')
    feed(solver, {(1, 1): 5})
    with pytest.raises(NonFiniteLoss, match=r'layer "far" .*label 5, at position 1 of 4, is none of the 5 classes'):
        solver.step(3)


def test_which_labels_are_outside():
    """Labels are truncated: -0.5 counts as 0, and as ignored where 0 is."""
    labels = np.array([[0, 4.9], [-0.5, 5], [-1, 255], [np.nan, -np.inf]])
    assert Labels(1, 5).outside(labels).tolist() == [3, 4, 5, 6, 7]
    assert Labels(1, 5, ignore=255).outside(labels).tolist() == [3, 4, 6, 7]
    assert Labels(1, 5, ignore=-1).outside(labels).tolist() == [3, 5, 6, 7]


@pytest.mark.gpu
@pytest.mark.skipif(not cuda_available(), reason="no GPU")
@pytest.mark.parametrize("lms", [LMSConfig(), LMSConfig(threshold_kb=1, ahead=1), LMSConfig(auto=True)], ids=str)
@pytest.mark.parametrize("options", [{}, {"iter_size": 3}, {"display": 1}], ids=str)
def test_on_a_gpu(lms, options):
    """It works in iterations that a CUDA graph replays too."""
    solver = make(NET, lambda: {"device": get_device("cuda"), "lms": lms}, **options)
    passes = options.get("iter_size", 1)
    feed(solver, {(10 * passes, 2): 12})
    with pytest.raises(NonFiniteLoss) as caught:
        solver.step(BATCHES // passes)
    assert (caught.value.iteration, caught.value.label, caught.value.where.layer) == (10, 12, "loss")
