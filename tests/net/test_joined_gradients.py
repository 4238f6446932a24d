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


def product(name, bottom, outputs, extra=""):
    return (
        f'layer {{ name: "{name}" type: "InnerProduct" bottom: "{bottom}" top: "{name}" inner_product_param {{ '
        f'num_output: {outputs} weight_filler {{ type: "gaussian" std: 0.1 }} {extra} }} }}\n'
    )


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
    "three products": (  # as of queries, keys and values
        _DATA
        + product("a", "data", 9)
        + 'layer { name: "relu_a" type: "ReLU" bottom: "a" top: "a" }\n'
        + product("q", "a", 8)
        + product("k", "a", 8, "bias_term: false")
        + product("v", "a", 8, "transpose: true")
        + _eltwise("s", "q", "k")
        + _eltwise("t", "s", "v")
        + head("t"),
        {"backward:q": "a_relu_a_0_split_2", "backward:k": "a_relu_a_0_split_2"},
        [1],
    ),
    "norms of a sum": (  # as in a transformer's blocks: backward meets the sum first, then the norm
        _DATA
        + product("a", "data", 9)
        + 'layer { name: "relu_a" type: "ReLU" bottom: "a" top: "a" }\n'
        + 'layer { name: "n" type: "RMSNorm" bottom: "a" top: "n" }\n'
        + product("p", "n", 9)
        + 'layer { name: "s" type: "Eltwise" bottom: "a" bottom: "p" top: "s" }\n'
        + 'layer { name: "m" type: "LayerNorm" bottom: "s" top: "m" }\n'
        + product("q", "m", 9)
        + _eltwise("t", "s", "q")
        + head("t"),
        {"backward:m": "s_s_0_split_1", "backward:n": "a_relu_a_0_split_1"},
        [1],
    ),
    "a product and a convolution": (
        _DATA
        + unit("a", "data", 6)
        + conv("b", "a", 6)
        + product("c", "a", 5)
        + product("d", "b", 5)
        + _eltwise("s", "c", "d")
        + head("s"),
        {},  # backward meets c before b
        [2],
    ),
    "in place behind a user's Split": (  # the gradient of s0 stands where that of the ReLU's top stood
        _DATA
        + product("p", "data", 9)
        + 'layer { name: "a_relu_a_0_split" type: "Split" bottom: "p" top: "s0" top: "s1" }\n'
        + 'layer { name: "relu" type: "ReLU" bottom: "s0" top: "s0" }\n'
        + product("b", "s1", 6)
        + product("c", "s0", 6)
        + _eltwise("s", "b", "c")
        + head("s"),
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
def test_no_convolution_does_in_another_order_or_unfused(tuning):
    assert not any(v is not None for s in backward(make("residual", **tuning)) for v in s.joins)


def test_products_do_in_every_order_if_fused():
    for tuning, joined in (({"channels_last": False}, 2), ({"fuse": False}, 0)):
        found = backward(make("three products", **tuning))
        assert sum(v is not None for s in found for v in s.joins) == joined


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


# x, then h, whose products by rows of its last axis are q, k and v; the loss is a tenth of the sum of q k + v
POSITIONS = (
    'layer { name: "x" type: "DummyData" top: "x" dummy_data_param { shape { dim: 4 dim: 40 dim: 5 } '
    'data_filler { type: "gaussian" } } }\n'
    + "".join(product(name, bottom, 6, "axis: 2") for name, bottom in (("h", "x"), ("q", "h"), ("k", "h"), ("v", "h")))
    + 'layer { name: "qk" type: "Eltwise" bottom: "q" bottom: "k" top: "qk" eltwise_param { operation: PROD } }\n'
    + 'layer { name: "sum" type: "Eltwise" bottom: "qk" bottom: "v" top: "sum" }\n'
    + LOSS.replace('"a"', '"sum"')
)


@pytest.mark.parametrize("half, tolerance", [(False, 1e-5), (True, 3e-2)], ids=["float32", "bfloat16"])
def test_the_gradient_of_three_products_of_one_value(half, tolerance, monkeypatch):
    """Beside sums in float64 of the same parameters; and to the bit under LMS."""
    monkeypatch.setitem(NETS, "positions", (POSITIONS, {}, []))

    def run(lms=None, **device):
        solver = make("positions", SimDevice(64 << 20, **device), lms, lr=1, half=half)
        params = {name: [p.data.astype(np.float64) for p in blobs] for name, blobs in solver.net.params.items()}
        solver.step(1)
        after = {name: [p.data.astype(np.float64) for p in blobs] for name, blobs in solver.net.params.items()}
        return solver, params, after

    solver, params, after = run()
    assert {s.step.name for s in backward(solver) if any(v is not None for v in s.joins)} == {
        "backward:q",
        "backward:k",
    }
    assert all(v.half == half for v in solver.net.run_graph.values if v.name.startswith("h_h_0_split"))
    x = solver.net.blobs["x"].data.reshape(-1, 5).astype(np.float64)
    (w, b), q, k, v = params["h"], params["q"], params["k"], params["v"]
    h = x @ w.T + b
    dq, dk, dv = 0.1 * (h @ k[0].T + k[1]), 0.1 * (h @ q[0].T + q[1]), np.full((len(x), 6), 0.1)
    dh = dq @ q[0] + dk @ k[0] + dv @ v[0]
    found = [old - new for old, new in zip(params["h"], after["h"], strict=True)]  # lr 1, no momentum yet
    for got, expected in zip(found, (dh.T @ x, dh.sum(axis=0)), strict=True):
        np.testing.assert_allclose(got, expected, rtol=0, atol=tolerance * np.abs(expected).max())
    for seed in range(3):
        *_, again = run(LMSConfig(threshold_kb=1), order="random", seed=seed)
        for name, arrays in after.items():
            for one, other in zip(arrays, again[name], strict=True):
                np.testing.assert_array_equal(one, other)


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
