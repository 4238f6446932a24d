"""Layers that add their gradients of one value to one buffer: which do, and that the sum equals that of a Split."""

from __future__ import annotations

import numpy as np
import pytest

from pycaffe_lms.backend import cuda_available, get_device
from pycaffe_lms.backend.sim.device import SimDevice
from pycaffe_lms.formats.prototxt.parser import parse_solver
from pycaffe_lms.lms.config import LMSConfig
from pycaffe_lms.lms.program import Mode
from pycaffe_lms.net.tuning import Tuning
from pycaffe_lms.solvers import solver_class
from tests.lms.nets import _DATA, _eltwise, _pool, conv, head, train, unit

LOSS = 'layer { name: "half" type: "Reduction" bottom: "a" top: "half" loss_weight: 0.1 }\n'
# net: (its text, whose backward adds to the gradient of which other reader's, how many gradients each Split sums)
NETS = {
    # backward meets the sum first, then c, whose product goes on top
    "residual": (
        _DATA
        + unit("a", "data", 32)
        + unit("c", "a", 8, 1)
        + unit("d", "c", 32, relu=False)
        + _eltwise("s", "a", "d")
        + _pool("p", "s")
        + head("p"),
        {"backward:c": "a_relu_a_0_split_1"},
        [1],
    ),
    "four readers": (
        _DATA
        + unit("a", "data", 8)
        + conv("b", "a", 8, 1)
        + conv("c", "a", 8, 3)
        + conv("d", "a", 8, 1)
        + 'layer { name: "cat" type: "Concat" bottom: "a" bottom: "b" bottom: "c" bottom: "d" top: "cat" }\n'
        + _pool("p", "cat")
        + head("p"),
        {"backward:d": "a_relu_a_0_split_3", "backward:b": "a_relu_a_0_split_1"},
        [2],
    ),
    "first is who writes": (  # nothing is there yet when backward comes to b
        _DATA
        + unit("a", "data", 8)
        + conv("c", "a", 8, 3)
        + conv("b", "a", 8, 1)
        + _eltwise("s", "c", "b")
        + _pool("p", "s")
        + head("p"),
        {},
        [2],
    ),
    "groups": (
        _DATA
        + unit("a", "data", 8)
        + conv("b", "a", 8, 1, "group: 2")
        + conv("c", "a", 8, 3)
        + _eltwise("s", "b", "c")
        + head("s"),
        {},
        [2],
    ),
    "strides": (  # both skip positions; the first that backward meets writes the rest
        _DATA
        + unit("a", "data", 8)
        + conv("b", "a", 8, 1, "stride: 2")
        + conv("c", "a", 8, 1, "stride: 2")
        + _eltwise("s", "b", "c")
        + head("s"),
        {"backward:b": "a_relu_a_0_split_1"},
        [1],
    ),
    "a loss is read, too": (
        _DATA + unit("a", "data", 8) + LOSS + conv("b", "a", 8, 1) + _pool("p", "b") + head("p"),
        {},
        [2],
    ),
}


def make(net, device=None, lms=None, dtype="float32", lr=0.05, **tuning):
    text = f"base_lr: {lr} momentum: 0.9 lr_policy: 'fixed' max_iter: 9 random_seed: 7 snapshot_after_train: false\n"
    parsed = parse_solver(f"{text} net_param {{ name: 'm'\n{NETS[net][0]} }}")
    tuning, device = Tuning(**{"channels_last": True, **tuning}), device or SimDevice(64 << 20)
    make_one = solver_class(parsed.message)
    return make_one(parsed.message, lines=parsed.lines, device=device, lms=lms, tuning=tuning, dtype=dtype)


def backward(solver):
    return [s for s in solver.net._iteration("train", True, ()).steps if getattr(s, "joins", ())]


@pytest.mark.parametrize("net", NETS)
def test_who_adds_to_whose_gradient(net):
    solver = make(net)
    values = solver.net.run_graph.values
    steps = backward(solver)
    joins = {s.step.name: values[v].name for s in steps for v in s.joins if v is not None}
    assert joins == NETS[net][1]
    for s in steps:
        for v in s.joins:
            if v is not None:
                assert {a.mode for a in s.step.accesses if a.buffer == values[v].diff} == {Mode.UPDATE}
    assert [sum(s.top_diffs) for s in steps if s.step.name.endswith("a_relu_a_0_split")] == NETS[net][2]


@pytest.mark.parametrize("tuning", [{"channels_last": False}, {"fuse": False}], ids=str)
def test_nobody_does_in_another_order_or_unfused(tuning):
    assert not any(v is not None for s in backward(make("residual", **tuning)) for v in s.joins)


@pytest.mark.parametrize("net", NETS)
def test_gradients_are_those_of_the_sum(net):
    """By hand layers write gradients of their own, and the Split sums them."""
    found = []
    for fused in (False, True):
        solver = make(net, dtype="float64", lr=1)
        if fused:
            solver.step(1)  # which leaves the gradient times the learning rate, here 1
        else:
            solver.net.forward_range()
            solver.net.backward_range()
        found.append([p.read_diff().copy() for blobs in solver.net.params.values() for p in blobs])
    for plain, joined in zip(*found, strict=True):
        np.testing.assert_allclose(joined, plain, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("net", NETS)
def test_training_is_the_same_to_the_bit_under_lms(net):
    expected = train(make(net), 3)
    for seed, lms in enumerate(
        (
            LMSConfig(threshold_kb=1),
            LMSConfig(threshold_kb=1, ahead=0),
            LMSConfig(threshold_kb=1, frac=0.001),
            LMSConfig(auto=True, threshold_kb=1, budget=700 << 10),
        )
    ):
        assert train(make(net, SimDevice(64 << 20, order="random", seed=seed), lms), 3) == expected


@pytest.mark.gpu
@pytest.mark.skipif(not cuda_available(), reason="no GPU")
@pytest.mark.parametrize("net", NETS)
def test_on_a_gpu(net):
    device = get_device("cuda")
    plain, expected = train(make(net, device, fuse=False), 2), train(make(net, device), 6)
    assert {s.step.name for s in backward(make(net, device)) if any(v is not None for v in s.joins)} == {*NETS[net][1]}
    np.testing.assert_allclose(expected[0][:2], plain[0][:2], rtol=5e-3)
    for lms in (LMSConfig(threshold_kb=1), LMSConfig(threshold_kb=1, ahead=0)):
        solver = make(net, device, lms)
        assert train(solver, 6) == expected
        solver.close()
        solver.runtime.close()
