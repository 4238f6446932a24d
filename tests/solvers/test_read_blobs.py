"""What scripts read of a solver's blobs while blobs share device memory: the true value, or one error that says so."""

from __future__ import annotations

import logging
from contextlib import contextmanager

import numpy as np
import pytest

import pycaffe_lms as caffe
from pycaffe_lms.backend import get_device
from pycaffe_lms.backend.sim.device import SimDevice
from pycaffe_lms.errors import DiscardedRead, OutOfDeviceMemory
from pycaffe_lms.net.tuning import Tuning

from ..net.nets import conv, layer, loss, relu

APART, SHARED = Tuning(), Tuning(pack=True)  # each value has memory of its own; as the command line trains
NET = (
    'layer { name: "data" type: "Input" top: "data" top: "label" input_param { shape { dim: 4 dim: 3 dim: 8 dim: 8 } '
    "shape { dim: 4 } } }"
    + conv("c1", "data", 8)
    + relu("r1", "c1")
    + layer("s1", "Sigmoid", "c1")
    + conv("c2", "s1", 8)
    + conv("c3", "s1", 8)
    + layer("cat", "Concat", "c2 c3")
    + layer("s2", "Sigmoid", "cat")
    + 'layer { name: "ip" type: "InnerProduct" bottom: "s2" top: "ip" inner_product_param { num_output: 5 '
    'weight_filler { type: "xavier" } } }' + loss("ip")
)
ALL = ["data", "c1", "s1", "c2", "c3", "cat", "s2", "ip"]
SETTINGS = 'base_lr: 0.1 lr_policy: "fixed" momentum: 0.9 max_iter: 4 random_seed: 3 snapshot_after_train: false'


@pytest.fixture
def make(tmp_path):
    """Make a solver on a new device, its inputs filled. The device is `solver.net.device`."""

    def made(more="", capacity=1 << 22, order="latest", device=None, **options):
        (tmp_path / "net.prototxt").write_text(NET)
        (tmp_path / "solver.prototxt").write_text(f'net: "{tmp_path}/net.prototxt" {SETTINGS} {more}')
        device = device or SimDevice(capacity, order=order)
        solver = caffe.get_solver(tmp_path / "solver.prototxt", device=device, **options)
        rng = np.random.default_rng(1)
        for net in (solver.net, *solver.test_nets):
            net.blobs["data"].data = rng.standard_normal((4, 3, 8, 8))
            net.blobs["label"].data = rng.integers(0, 5, 4)
        return solver

    return made


def weights(solver):
    return [p.data.tobytes() for p in solver.net.learnable_params]


def memory(solver, steps, looks=()):
    """Bytes in use after each step; looks: (blob, "data" or "diff") that are read after it."""
    used = []
    for _ in range(steps):
        solver.step(1)
        used.append(solver.net.device.in_use())
        for name, which in looks:
            getattr(solver.net.blobs[name], which).sum()
    return used


def values(net):
    """The bytes of all values and gradients; None where one was lost."""

    def value(blob, which):
        try:
            return getattr(blob, f"read_{which}")().tobytes()
        except DiscardedRead:
            return None

    return {(name, which): value(blob, which) for name, blob in net.blobs.items() for which in ("data", "diff")}


def test_memory_of_the_command_line_from_the_second_step_on(make):
    ours, apart, shared = make(), make(tuning=APART), make(tuning=SHARED)
    used = memory(ours, 3)
    assert used == [memory(apart, 1)[0], *memory(shared, 3)[1:]] and used[1] < 0.7 * used[0]
    apart.step(2)
    assert weights(ours) == weights(apart) == weights(shared)


@pytest.mark.parametrize("order", ["latest", "random"])
@pytest.mark.parametrize("looks", [[("ip", "data")], [("c2", "data"), ("s1", "diff")], [(n, "data") for n in ALL]])
def test_what_is_read_after_the_first_step_stays(make, looks, order):
    """Every read finds the number that it would find if nothing shared memory, and none changes a number."""
    ours, apart = make(order=order), make(tuning=APART)
    for _ in range(4):
        for solver in (ours, apart):
            solver.step(1)
        for name, which in looks:
            mine, true = (getattr(s.net.blobs[name], which) for s in (ours, apart))
            np.testing.assert_array_equal(mine, true)
    assert weights(ours) == weights(apart)
    assert ours.net.device.in_use() <= apart.net.device.in_use()


def test_only_what_was_read_keeps_memory(make):
    """Values and gradients apart: the bytes above those of the command line are those of the blobs that were read."""
    least, blob = memory(make(tuning=SHARED), 2)[-1], 4 * 4 * 8 * 8 * 8
    for looks in ([("s1", "diff")], [("s1", "diff"), ("c2", "diff"), ("c3", "data")]):
        assert least < memory(make(), 3, looks)[-1] <= least + len(looks) * blob


def test_everything_is_readable_after_a_first_call_of_many_iterations(make):
    ours, apart = make(), make(tuning=APART)
    used = []

    @contextmanager
    def watched():
        yield
        used.append(ours.net.device.in_use())

    ours.around_iteration = watched
    for solver in (ours, apart):
        solver.step(3)
    assert used[0] == used[1] < used[2]
    assert values(ours.net) == values(apart.net)
    ours.step(1)
    assert used[3] > used[0], "what was read stays"


def test_after_solve_too(make):
    ours, apart = make(), make(tuning=APART)
    for solver in (ours, apart):
        solver.solve()
    assert values(ours.net) == values(apart.net) and weights(ours) == weights(apart)


def test_a_late_read_is_one_error(make, caplog):
    caplog.set_level(logging.INFO, "pycaffe_lms")
    ours, apart = make(), make(tuning=APART)
    for solver in (ours, apart):
        solver.step(1)
        solver.step(1)
    blob = ours.net.blobs["s1"]
    with pytest.raises(DiscardedRead, match='net.keep."s1"'):
        _ = blob.diff
    for solver in (ours, apart):
        solver.step(1)
    assert "diff of s1" in caplog.text and "net.keep" in caplog.text
    np.testing.assert_array_equal(blob.diff, apart.net.blobs["s1"].diff)
    with pytest.raises(DiscardedRead):
        _ = blob.data
    for solver in (ours, apart):
        solver.step(2)
    np.testing.assert_array_equal(blob.data, apart.net.blobs["s1"].data)
    np.testing.assert_array_equal(blob.diff, apart.net.blobs["s1"].diff)
    assert weights(ours) == weights(apart)


def test_what_is_listed_before_the_first_step_is_not_kept_but_a_view_is(make):
    """Notebooks list the shapes of all blobs first; an array that is held is updated after every step."""
    ours, apart = make(), make(tuning=APART)
    assert {name: blob.data.shape for name, blob in ours.net.blobs.items()}["ip"] == (4, 5)
    view = ours.net.blobs["cat"].data
    least = memory(make(tuning=SHARED), 2)[-1]
    assert memory(ours, 3)[-1] <= least + 2 * view.nbytes
    apart.step(3)
    np.testing.assert_array_equal(view, apart.net.blobs["cat"].data)
    late = ours.net.blobs["cat"].data
    assert np.may_share_memory(late, view)


def test_without_room_for_all_values_nothing_changes(make, caplog):
    caplog.set_level(logging.INFO, "pycaffe_lms")
    least, most = memory(make(tuning=SHARED), 1)[0], memory(make(tuning=APART), 1)[0]
    ours, apart = make(capacity=(least + most) // 2), make(tuning=APART)
    for solver in (ours, apart):
        solver.step(2)
    assert "share device memory from the first iteration on" in caplog.text
    assert ours.net.device.in_use() == least and weights(ours) == weights(apart)
    with pytest.raises(DiscardedRead):
        _ = ours.net.blobs["s1"].data
    with pytest.raises(OutOfDeviceMemory):
        make(capacity=least // 2)


def test_large_model_support_is_as_before(make):
    """It plans for all memory; blobs that are lost raise, and stay so; gradients of parameters are there."""
    ours, apart = make(lms=caffe.LMS(1, budget="200KB")), make(tuning=APART)
    for solver in (ours, apart):
        solver.step(1)
    for _ in range(2):
        with pytest.raises(DiscardedRead):
            _ = ours.net.blobs["s1"].data
        for solver in (ours, apart):
            solver.step(1)
    assert weights(ours) == weights(apart)
    found, expected = ([b.diff.tobytes() for b in s.net.params["ip"]] for s in (ours, apart))
    assert found == expected


def test_a_tuning_of_ones_own_is_obeyed(make):
    assert None not in values((apart := make(tuning=APART)).net).values()
    assert len(set(memory(apart, 3))) == 1
    shared = make(tuning=SHARED)
    assert len(set(memory(shared, 3))) == 1
    with pytest.raises(DiscardedRead):
        _ = shared.net.blobs["s1"].data


def test_on_a_cpu_everything_is_readable(make):
    ours, apart = make(device=get_device("cpu")), make(tuning=APART)
    for solver in (ours, apart):
        solver.step(1)
        solver.step(2)
    assert {v for k, v in values(ours.net).items() if v is None} == set() and ours.net.tuning == Tuning()


def test_half_precision(make):
    caffe.set_math("bf16")
    try:
        ours, apart = make(), make(tuning=Tuning(half=True))
    finally:
        caffe.set_math("tf32")
    for _ in range(3):
        for solver in (ours, apart):
            solver.step(1)
        mine, true = (s.net.blobs["s2"].data for s in (ours, apart))
        np.testing.assert_array_equal(mine, true)
    with pytest.raises(DiscardedRead):
        _ = ours.net.blobs["s1"].data
    assert weights(ours) == weights(apart)


def test_test_nets(make):
    """After a test of the solver's, and in passes of one's own."""
    tests = "test_iter: 2 test_interval: 1"
    ours, apart = make(tests), make(tests, tuning=APART)
    for _ in range(3):
        for solver in (ours, apart):
            solver.step(1)
        mine, true = (s.test_nets[0].blobs["ip"].data for s in (ours, apart))
        np.testing.assert_array_equal(mine, true)
    mine, true = (s.test_nets[0].forward(blobs=["c2"])["c2"] for s in (ours, apart))
    np.testing.assert_array_equal(mine, true)


def test_passes_of_ones_own_between_steps(make):
    ours, apart = make(), make(tuning=APART)
    for _ in range(3):
        for solver in (ours, apart):
            solver.step(1)
            solver.net.forward()
            solver.net.backward()
        assert values(ours.net) == values(apart.net)
    assert weights(ours) == weights(apart)


def test_callbacks_read_what_is_there(make):
    """They run between backward and update, in every iteration."""
    ours, apart = make(), make(tuning=APART)
    seen = {}
    for solver in (ours, apart):
        said = seen[solver] = []
        solver.add_callback(lambda: None, lambda s=solver, said=said: said.append(s.net.blobs["c2"].diff.copy()))
        for _ in range(3):
            solver.step(1)
    np.testing.assert_array_equal(seen[ours], seen[apart])
    assert weights(ours) == weights(apart)


CHANGING = (
    'layer { name: "data" type: "Input" top: "data" top: "all" top: "chosen" input_param { '
    "shape { dim: 8 dim: 3 dim: 8 dim: 8 } shape { dim: 8 } shape { dim: 8 } } }"
    + conv("c1", "data", 8)
    + layer("s1", "Sigmoid", "c1")
    + conv("c2", "s1", 8)
    + 'layer { name: "some" type: "Filter" bottom: "c2" bottom: "all" bottom: "chosen" top: "some" top: "label" }'
    + layer("s2", "Sigmoid", "some")
    + 'layer { name: "ip" type: "InnerProduct" bottom: "s2" top: "ip" inner_product_param { num_output: 5 '
    'weight_filler { type: "xavier" } } }'
    + loss("ip").replace(" }", " propagate_down: true propagate_down: false }", 1)
)


@pytest.mark.parametrize("looks", [[], ["ip"], ["s1", "some"]])
def test_shapes_that_change_within_an_iteration(tmp_path, looks):
    """Another number of images passes the layer in each iteration; what is read is what nothing shared would have."""
    (tmp_path / "net.prototxt").write_text(CHANGING)
    (tmp_path / "solver.prototxt").write_text(f'net: "{tmp_path}/net.prototxt" {SETTINGS}')

    def make(**options):
        device = SimDevice(1 << 22, order="random", seed=4)
        return caffe.get_solver(tmp_path / "solver.prototxt", device=device, **options)

    ours, apart, rng = make(), make(tuning=APART), np.random.default_rng(2)
    for passing in (8, 3, 3, 5, 1, 8):
        given = {
            "data": rng.normal(size=(8, 3, 8, 8)),
            "all": rng.integers(5, size=8),
            "chosen": np.arange(8) < passing,
        }
        for solver in (ours, apart):
            for name, values in given.items():
                solver.net.blobs[name].data[...] = values
            solver.step(1)
        for name in looks:
            np.testing.assert_array_equal(*(s.net.blobs[name].data for s in (ours, apart)), err_msg=name)
        assert ours.net.blobs["some"].shape[0] == passing
    assert weights(ours) == weights(apart) and ours.net.device.in_use() < apart.net.device.in_use()
