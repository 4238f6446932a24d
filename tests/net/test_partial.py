"""Passes over some layers of a net: which value a name shows and the next layer reads, as if versions shared memory."""

from __future__ import annotations

import numpy as np
import pytest

from pycaffe_lms.errors import GraphError

from .nets import CPU, conv, inputs, ip, layer, loss, make_net, make_solver, relu
from .test_net import IMAGES, feed, gradients

# conv makes x, then two layers in place that need copies of their own (the factor's gradient reads what it gets)
CHAIN = (
    IMAGES
    + conv("x", "data", 4)
    + layer("half", "Scale", "x", "x", 'scale_param { filler { type: "constant" value: 0.5 } }')
    + layer("minus", "Scale", "x", "x", 'scale_param { filler { type: "constant" value: -1 } }')
    + relu("relu", "x")
    + ip("y", "x", 3)
    + loss("y")
)
STEPS = {"x": lambda v: v, "half": lambda v: v * 0.5, "minus": lambda v: -v, "relu": lambda v: np.maximum(v, 0)}


@pytest.fixture
def net(place):
    net = make_net(CHAIN, place)
    feed(net)
    versions = {v.data for v in net.graph.values if v.name == "x"}
    assert len(versions) == 3  # else the tests below would test nothing
    return net


def _versions(net):
    """{layer: x as it is after that layer}, computed from what the convolution gives."""
    net.forward(end="x")
    value, out = net.blobs["x"].data.copy(), {}
    for name, step in STEPS.items():
        out[name] = value = step(value)
    return out


def _fc(net, x):
    w, b = (p.data.astype(np.float64) for p in net.params["y"])
    return x.reshape(len(x), -1) @ w.T + b


# -- end -------------------------------------------------------------------------------------------------------------
def test_end_inside_a_chain_shows_the_value_there(net):
    expected = _versions(net)
    for name in ("minus", "x", "relu", "half"):
        out = net.forward(end=name)
        assert list(out) == ["x"]
        assert (out["x"] == expected[name]).all() and (net.blobs["x"].data == expected[name]).all()
    net.forward()
    assert (net.blobs["x"].data == expected["relu"]).all()


def test_a_chain_is_finished_from_its_middle(net):
    expected = _versions(net)
    net.forward(end="half")
    net.forward(start="minus")
    assert (net.blobs["x"].data == expected["relu"]).all()
    np.testing.assert_allclose(net.blobs["y"].data, _fc(net, expected["relu"]), rtol=1e-4, atol=1e-5)


# -- start -----------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("shown", ["x", "half", "minus", "relu"])
@pytest.mark.parametrize("start", ["half", "minus", "relu", "y"])
def test_start_reads_what_the_name_shows(net, shown, start):
    """Whatever version was computed last, and wherever one goes on: the memory is one."""
    value = _versions(net)[shown]
    net.forward(end=shown)
    net.forward(start=start)
    names = list(STEPS)
    for name in names[names.index(start) :] if start != "y" else ():
        value = STEPS[name](value)
    assert (net.blobs["x"].data == value).all()
    np.testing.assert_allclose(net.blobs["y"].data, _fc(net, value), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("first", [None, "x", "half", "loss"])
@pytest.mark.parametrize("start", ["half", "minus", "relu", "y"])
def test_start_reads_what_the_user_wrote(net, first, start):
    if first is not None:
        net.forward(end=first)
    value = np.random.default_rng(3).normal(size=net.blobs["x"].shape).astype(np.float32)
    net.blobs["x"].data[...] = value
    net.forward(start=start)
    names = list(STEPS)
    for name in names[names.index(start) :] if start != "y" else ():
        value = STEPS[name](value)
    assert (net.blobs["x"].data == value).all()
    np.testing.assert_allclose(net.blobs["y"].data, _fc(net, value), rtol=1e-4, atol=1e-5)


def test_writing_is_undone_by_the_layer_that_makes_the_blob(net):
    expected = _versions(net)
    net.forward()
    net.blobs["x"].data[...] = 9
    net.forward()
    assert (net.blobs["x"].data == expected["relu"]).all()


def test_an_input_with_a_layer_in_place_on_it(place):
    """The user writes `data`, which shows the layer's output after a forward."""
    text = IMAGES + layer("s", "Scale", "data", "data", 'scale_param { filler { type: "constant" value: 2 } }')
    net = make_net(text + ip("y", "data", 3) + loss("y"), place)
    for seed in (1, 2):
        x, _ = feed(net, seed)
        net.forward_range()
        assert (net.blobs["data"].data == 2 * x).all()
    net.forward()  # nothing written: in Caffe the layer runs on its own output
    assert (net.blobs["data"].data == 4 * x).all()


def test_a_solver_too_reads_what_the_user_wrote_into_such_an_input(place):
    text = IMAGES + layer("s", "Scale", "data", "data%s", "scale_param { bias_term: true }") + ip("y", "data%s", 3)
    losses = []
    for name in ("", "2"):
        solver = make_solver((text + loss("y")).replace("%s", name), place)
        feed(solver.net)
        solver.step(1)
        losses.append(solver.net.loss())
    assert losses[0] == losses[1]


def test_a_solver_whose_input_nobody_writes_again(place):
    """The layer in place then runs on its own output, as in Caffe; the same everywhere, also under LMS."""
    text = IMAGES + layer("s", "Scale", "data", "data", "scale_param { bias_term: true }") + ip("y", "data", 3)
    results = []
    for where in (CPU, place):
        solver = make_solver(text + loss("y"), where)
        feed(solver.net)
        losses = []
        for _ in range(3):
            solver.step(1)
            losses.append(solver.net.loss())
        results.append((losses, solver.net.blobs["data"].data.tobytes()))
    assert results[0] == results[1] and len(set(losses)) == 3


def test_after_a_solvers_iteration_a_name_shows_its_last_version(place):
    solver = make_solver(CHAIN, place)
    net = solver.net
    net.keep("x")
    feed(net)
    net.forward(end="x")
    solver.step(1)
    assert net.blobs["x"].data.min() == 0  # ReLU was the last


# -- indices and names -----------------------------------------------------------------------------------------------
def test_forward_by_index_returns_the_loss_of_those_layers(net):
    n = len(net.graph.nodes) - 1
    whole = net._forward(0, n)
    assert net._forward(0, n - 1) == 0
    assert net._forward(n, n) == whole > 0


def test_backward_in_parts_equals_backward_at_once(net):
    net.forward_range()
    net.backward_range()
    whole = [g.tobytes() for g in gradients(net)]
    net.clear_param_diffs()
    n = len(net.graph.nodes) - 1
    middle = net.layer_index("relu")
    net._backward(n, middle)
    assert not net.params["x"][0].diff.any() and net.params["y"][0].diff.any()
    net._backward(middle - 1, 0)
    assert [g.tobytes() for g in gradients(net)] == whole


def test_backward_start_and_end_by_name(net):
    net.forward()
    out = net.backward(end="y", diffs=["y"])
    assert list(out) == ["x", "y"]
    d = out["y"].astype(np.float64)
    np.testing.assert_allclose(out["x"].reshape(4, -1), d @ net.params["y"][0].data, rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(net.params["y"][1].diff, d.sum(0), rtol=1e-5, atol=1e-7)


def test_backward_from_a_gradient_that_the_user_wrote(net):
    """Into the middle of the net, without its loss."""
    net.forward()
    d = np.random.default_rng(4).normal(size=net.blobs["y"].shape).astype(np.float32)
    net.blobs["y"].diff[...] = d
    net.backward(start="y", end="y")
    np.testing.assert_allclose(net.params["y"][1].diff, d.sum(0), rtol=1e-5)


def test_unknown_names(net):
    for call in (lambda: net.forward(start="nope"), lambda: net.forward(end="nope"), lambda: net.backward(end="nope")):
        with pytest.raises(GraphError, match='has no layer "nope"'):
            call()
    with pytest.raises(GraphError, match='has no blob "nope"'):
        net.keep("nope")


def test_parts_of_a_net_with_a_split_and_a_flatten(place):
    """Writing one of several names of a memory is writing all of them."""
    text = inputs(data=(4, 300)) + ip("x", "data", 300) + layer("f", "Flatten", "x") + relu("r", "f", "a")
    net = make_net(text + layer("m", "Bias", "f", "b", 'bias_param { filler { type: "constant" value: 1 } }'), place)
    net.forward()
    for name in ("x", "f", "f_f_0_split_1"):
        value = np.random.default_rng(len(name)).normal(size=(4, 300)).astype(np.float32)
        net.blobs[name].data[...] = value
        net.forward(start="r")
        assert (net.blobs["a"].data == np.maximum(value, 0)).all() and (net.blobs["b"].data == value + 1).all()
