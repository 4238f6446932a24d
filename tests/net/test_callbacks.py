"""Callbacks around every layer: when they are called, what they see, and that results stay the same."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest

from pycaffe_lms.backend import cuda_available, get_device
from pycaffe_lms.backend.sim.device import SimDevice
from pycaffe_lms.errors import UsageError
from pycaffe_lms.lms.config import LMSConfig

from .nets import conv, inputs, ip, layer, loss, make_net, make_solver, relu

TEXT = (
    inputs(x=(4, 3, 6, 6), label=(4,))
    + conv("c", "x", 4)
    + relu("r", "c")
    + ip("a", "c", 300)
    + layer("drop", "Dropout", "a")
    + ip("b", "drop", 3)
    + loss("b")
)
LAYERS = 8
RNG = np.random.default_rng(7)
X = RNG.normal(size=(4, 3, 6, 6)).astype(np.float32)


@dataclass
class On:
    given: object
    lms: LMSConfig | None = None

    def device(self):
        return self.given


PLACES = {
    "cpu": lambda: On(get_device("cpu")),
    "sim": lambda: On(SimDevice(64 << 20)),
    "lms": lambda: On(SimDevice(64 << 20), LMSConfig(threshold_kb=1)),
    "lms, random order": lambda: On(SimDevice(64 << 20, order="random", seed=4), LMSConfig(threshold_kb=1, ahead=2)),
}


def feed(net):
    net.blobs["x"].data[...] = X
    net.blobs["label"].data[...] = [0, 2, 1, 0]


def watch(net):
    """The calls, in order, as they come in."""
    seen = []
    for name in ("before_forward", "after_forward", "before_backward", "after_backward"):
        getattr(net, name)(lambda i, name=name: seen.append((name, i)))
    return seen


def around(kind, layers):
    return [(f"{when}_{kind}", i) for i in layers for when in ("before", "after")]


def test_when_they_are_called(place):
    net = make_net(TEXT, place)
    feed(net)
    seen = watch(net)
    net.forward()
    assert seen == around("forward", range(LAYERS))
    seen.clear()
    net.backward()
    assert seen == around("backward", range(LAYERS - 1, -1, -1))
    seen.clear()
    net.forward(start="a", end="drop")
    net.backward(start="b", end="a")
    assert seen == around("forward", (4, 5)) + around("backward", (6, 5, 4))


@pytest.mark.parametrize("where", PLACES)
def test_a_solver_calls_them_and_learns_the_same(where):
    def train(callbacks: bool, fields: str = ""):
        solver = make_solver(TEXT, PLACES[where](), fields=fields)
        feed(solver.net)
        seen = watch(solver.net) if callbacks else []
        losses = []
        for _ in range(4):
            solver.step(1)
            losses.append(solver.net.loss())
        return losses, [b.read_data().tobytes() for b in solver.net.learnable_params], seen

    for fields, passes in (
        ("", 1),
        ("iter_size: 2", 2),
        ("clip_gradients: 0.5", 1),
        ("debug_info: true display: 2", 1),
    ):
        plain, watched = train(False, fields), train(True, fields)
        assert plain[:2] == watched[:2] and len(set(plain[0])) == 4
        assert watched[2] == (around("forward", range(LAYERS)) + around("backward", range(LAYERS)[::-1])) * 4 * passes


@pytest.mark.parametrize("where", PLACES)
def test_values_inside_are_true(where):
    """After each layer its tops, before each backward its gradients, as a net on the CPU has them layer by layer."""

    def record(net):
        seen = {}

        def note(kind, i):
            for name in net.top_names[list(net.layer_dict)[i]]:
                blob = net.blobs[name]
                seen[kind, i, name] = blob.data.copy(), blob.diff.copy() if "backward" in kind else None

        net.after_forward(lambda i: note("forward", i))
        net.before_backward(lambda i: note("backward", i))
        return seen

    solver = make_solver(TEXT, PLACES[where]())
    seen = record(solver.net)
    feed(solver.net)
    solver.step(1)
    expected = {}
    net = make_solver(TEXT).net
    feed(net)
    names = list(net.layer_dict)
    for i, name in enumerate(names):
        net.forward_range(i, i)
        expected |= {("forward", i, top): (net.blobs[top].data.copy(), None) for top in net.top_names[name]}
    for i in range(LAYERS - 1, -1, -1):
        for top in net.top_names[names[i]]:
            expected["backward", i, top] = net.blobs[top].data.copy(), net.blobs[top].diff.copy()
        net.backward_range(i, i)
    assert seen.keys() == expected.keys()
    for key, (data, diff) in expected.items():
        np.testing.assert_array_equal(seen[key][0], data, err_msg=str(key))
        if diff is not None:
            np.testing.assert_array_equal(seen[key][1], diff, err_msg=str(key))


@pytest.mark.parametrize("where", PLACES)
def test_what_is_written_inside_is_used(where):
    solver = make_solver(TEXT, PLACES[where]())
    net = solver.net
    feed(net)
    at = {name: i for i, name in enumerate(net.layer_dict)}

    def change(i):
        if i == at["b"]:
            net.blobs["b"].data[...] = [[1, 2, 3]] * 4

    def stop(i):
        if i == at["b"]:
            net.blobs["b"].diff[...] = 0

    net.after_forward(change)
    net.before_backward(stop)
    solver.step(1)
    p = np.exp([1.0, 2, 3]) / np.exp([1.0, 2, 3]).sum()
    np.testing.assert_allclose(net.loss(), -np.log(p[[0, 2, 1, 0]]).mean(), rtol=1e-6)
    assert not any(b.diff.any() for b in net.learnable_params)


def test_test_nets_too(place):
    """And a shape that changes in the middle, as Filter's: each layer is called once."""
    text = (
        inputs(x=(4, 300), chosen=(4, 1))
        + layer("f", "Filter", "x chosen", "y")
        + layer("p", "Power", "y", text="power_param { scale: 2 }")
    )
    net = make_net(text, place, phase=1)
    seen = watch(net)
    net.blobs["x"].data[...] = np.arange(1200).reshape(4, 300)
    for rows in ([1, 0, 1, 0], [0, 0, 0, 1]):
        net.blobs["chosen"].data[:, 0] = rows
        seen.clear()
        net.test_forward()
        assert seen == around("forward", range(4))
        assert net.blobs["p"].data.tolist() == (2 * np.arange(1200).reshape(4, 300)[np.flatnonzero(rows)]).tolist()


def test_an_exception_arrives_and_the_net_lives_on(place):
    net = make_net(TEXT, place)
    feed(net)
    expected = net.forward()["loss"].copy()
    raising = [True]

    def fail(i):
        if i == 4 and raising[0]:
            raise KeyError("mine")

    net.before_forward(fail)
    with pytest.raises(KeyError, match="mine"):
        net.forward()
    raising[0] = False
    with pytest.raises(UsageError, match="a callback is 3"):
        net.after_backward(3)
    net2 = make_net(TEXT, place)
    feed(net2)
    assert net2.forward()["loss"] == expected
    assert np.isfinite(net.forward()["loss"])


@pytest.mark.gpu
@pytest.mark.skipif(not cuda_available(), reason="no GPU")
@pytest.mark.parametrize("lms", [None, LMSConfig(threshold_kb=1)])
def test_on_a_gpu(lms):
    def train(callbacks):
        solver = make_solver(TEXT, On(get_device("cuda"), lms))
        feed(solver.net)
        seen = watch(solver.net) if callbacks else []
        solver.step(3)
        return [b.read_data() for b in solver.net.learnable_params], seen

    (plain, _), (watched, seen) = train(False), train(True)
    assert len(seen) == 3 * 4 * LAYERS
    for a, b in zip(plain, watched, strict=True):
        np.testing.assert_allclose(a, b, rtol=2e-2, atol=1e-4)
