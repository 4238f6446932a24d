"""Parameters stored channels-last: which are, that no product changes, and that users see (O, C, H, W)."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from pycaffe_lms.backend import cuda_available, get_device
from pycaffe_lms.backend.cpu import CpuDevice
from pycaffe_lms.backend.sim.device import SimDevice
from pycaffe_lms.errors import ShapeError
from pycaffe_lms.layers.base import Runs
from pycaffe_lms.layers.data.input import ParameterLayer
from pycaffe_lms.lms.config import LMSConfig
from pycaffe_lms.net.passes import param_order
from pycaffe_lms.net.program.reduction import digest
from pycaffe_lms.net.tuning import Tuning
from tests.lms import nets

from .nets import conv, graph, inputs, layer, make_net
from .open_sim import OpenSim
from .order_nets import NETS, copies, make, make_transposing, train, values

LAST = {
    "chain": {"conv1[0]", "conv2[0]"},
    "groups": {"conv1[0]", "conv2[0]"},
    "residual": {"c1[0]", "c3[0]", "c4[0]", "c5[0]"},  # c2 is 1x1: both orders are one
    "shared": {"s1[0]", "s2[0]"},
    "deconvolution": {"c[0]", "up[0]"},
    "volumes": {"c[0]", "d[0]"},
    "two bottoms": {"a[0]", "c[0]"},
    "tied": {"c[0]", "up[0]"},
    "looked at": {"c[0]", "w[0]"},
}


def stored_last(wired) -> set[str]:
    return {f"{wired.nodes[p.node].name}[{p.position}]" for p in wired.params if p.channels_last}


@pytest.mark.parametrize("net", NETS)
def test_weights_lie_as_the_images_do(net):
    solver, plain = make(net), make(net, last=False)
    assert stored_last(solver.net.graph) == LAST[net] and not stored_last(plain.net.graph)
    assert copies(solver.net) == ({"w.order.param0", "w.order.param_diff0"} if net == "looked at" else set())
    for blob, other in zip(solver.net.learnable_params, plain.net.learnable_params, strict=True):
        assert blob.shape == other.shape and (blob.read_data() == other.read_data()).all()
        assert blob.read_data().strides != other.read_data().strides or blob.name not in LAST[net]


def test_a_host_has_its_own_order():
    assert not stored_last(make("chain", last=None, device=CpuDevice()).net.graph)


def test_what_a_layer_needs_that_stays_channels_first():
    named = 'param { name: "w" %s }'
    first = nets._DATA + nets.conv("c", "data", 4).replace("convolution_param", named % "" + " convolution_param")
    matrix = named % "share_mode: PERMISSIVE" + " inner_product_param { num_output: 27 bias_term: false }"
    cut = layer("cut", "Slice", "c", "one rest", "slice_param { slice_point: 1 }") + layer(
        "gone", "Silence", "rest", ""
    )
    cut += layer("pool", "Pooling", "one", "pool", "pooling_param { pool: AVE kernel_size: 6 stride: 6 }")
    cut += layer("flat", "Flatten", "pool")
    net = make(first + cut + layer("f", "InnerProduct", "flat", text=matrix) + nets.head("f")).net
    assert not stored_last(net.graph) and {"c.order.param0", "c.order.param_diff0"} <= copies(net)
    param = layer("p", "Parameter", text=named % "" + " parameter_param { shape { dim: 4 dim: 3 dim: 3 dim: 3 } }")
    net = make(param + layer("gone", "Silence", "p", "") + first + nets.head("c")).net
    assert not stored_last(net.graph) and {"c.order.param0", "c.order.param_diff0"} <= copies(net)


@pytest.mark.parametrize(
    "why, value",
    [
        ("declares", replace(ParameterLayer.declares, runs_on=Runs.HOST)),
        ("forward_updates", lambda self: frozenset({0})),
        ("", None),
    ],
)
def test_whom_a_sharer_keeps_from_it(why, value, monkeypatch):
    """A layer on the host, and one that changes the parameter in its forward."""
    if why:
        monkeypatch.setattr(ParameterLayer, why, value)
    wired = graph(NETS["looked at"])
    for node in wired.nodes:
        node.channels_last = node.layer.declares.prefers_channels_last
    param_order.choose(wired)
    assert stored_last(wired) == (set() if why else {"c[0]", "w[0]"})


@pytest.mark.parametrize("net", NETS)
def test_no_bit_is_another_than_with_transposed_weights(net):
    expected = train(make_transposing(net))
    assert train(make(net)) == expected


@pytest.mark.parametrize(
    "options",
    [
        {"iter_size": 3},
        {"type": '"Adam"', "momentum2": 0.99, "delta": 1e-4},
        {"type": '"Nesterov"'},
        {"regularization_type": '"L1"'},
        {"debug_info": "true"},
    ],
    ids=str,
)
def test_nor_with_other_updates(options):
    for net in ("chain", "two bottoms", "tied"):
        assert train(make(net, **options), 3) == train(make_transposing(net, **options), 3)


def test_clipped_to_rounding():
    """The norm adds up in another order."""
    found, expected = (f("chain", dtype="float64", clip_gradients=0.05) for f in (make, make_transposing))
    (losses, _), (others, _) = train(found), train(expected)
    np.testing.assert_allclose(losses, others, rtol=1e-12)
    assert train(make("chain", dtype="float64"))[0] != losses  # it did clip


@pytest.mark.parametrize("transposing", [False, True])
@pytest.mark.parametrize("net", ["chain", "tied", "looked at", "deconvolution"])
def test_large_model_support_changes_no_bit(net, transposing):
    build = make_transposing if transposing else make
    expected = train(build(net), 3)
    for k, order in enumerate(("latest", "earliest", "random")):
        device = SimDevice(64 << 20, order=order, seed=k)
        assert train(build(net, device=device, lms=LMSConfig(threshold_kb=1)), 3) == expected


def test_in_parts_of_the_batch():
    """Later parts add to the gradients of earlier ones."""
    lms = LMSConfig(threshold_kb=1, split=2)
    solver = make("deconvolution", lms=lms)
    assert any(node.part for node in solver.net.run_graph.nodes)
    assert train(solver) == train(make_transposing("deconvolution", lms=lms))


def test_less_workspace():
    solver, other = make("residual"), make_transposing("residual")
    sizes = [
        sum(memory.buffers[b].nbytes for b in memory.store.call_scratch)
        for memory in (solver.net.memory, other.net.memory)
    ]
    # c1 of 3 channels, c3, c4 and c5 of 6, each 6 outputs of 3 x 3; buffers are multiples of 512 bytes
    weights = [-(-6 * c * 9 * 4 // 512) * 512 for c in (3, 6, 6, 6)]
    assert sizes[1] - sizes[0] == 2 * sum(weights)  # and their gradients


# -- what users see ----------------------------------------------------------------------------------------------------
def test_what_is_written_between_iterations_counts():
    written = np.random.default_rng(4).normal(size=(8, 6, 3, 3))
    solvers = [make("chain"), make_transposing("chain")]
    held = [s.net.params["conv2"][0].data for s in solvers]
    for solver, view in zip(solvers, held, strict=True):
        solver.step(1)
        view[...] = written
        solver.step(2)
    assert values(solvers[0]) == values(solvers[1])
    for solver, view in zip(solvers, held, strict=True):
        assert (view == solver.net.params["conv2"][0].data).all() and view.shape == (8, 6, 3, 3)


def test_gpu_arrays_have_the_shape_of_the_parameter():
    net = make_net(
        inputs(x=(2, 3, 4, 5)) + conv("c", "x", 4), device=OpenSim(64 << 20), tuning=Tuning(channels_last=True)
    )
    weights = np.arange(108, dtype=np.float32).reshape(4, 3, 3, 3)
    net.params["c"][0].data[...] = weights
    array = net.params["c"][0].gpu_data
    assert array.strides == (4 * 27, 4, 4 * 9, 4 * 3) and (array == weights).all()
    array[1, 2, 0, 1] = -7
    del array
    weights[1, 2, 0, 1] = -7
    assert (net.params["c"][0].data == weights).all()


def test_a_shape_that_is_no_view_is_refused():
    blob = make("chain").net.params["conv1"][0]
    blob.reshape(6, 3, 3, 3)
    with pytest.raises(ShapeError, match=r"\(6, 27\) is no view .* channels-last"):
        blob.reshape(6, 27)
    bias = make("chain").net.params["conv1"][1]
    bias.reshape(1, 6)
    assert bias.data.shape == (1, 6)


def test_another_batch_keeps_values():
    text = inputs(x=(2, 3, 8, 8)) + conv("c", "x", 4) + conv("d", "c", 5)
    net, plain = (
        make_net(text, device=SimDevice(64 << 20), tuning=Tuning(channels_last=last)) for last in (True, False)
    )
    for n in (net, plain):
        n.blobs["x"].reshape(3, 3, 8, 6)
        n.blobs["x"].data[...] = np.arange(432).reshape(3, 3, 8, 6) % 7
        n.forward()
    assert stored_last(net.graph) == {"c[0]", "d[0]"}
    np.testing.assert_allclose(net.blobs["d"].data, plain.blobs["d"].data, rtol=1e-5, atol=1e-5)


def test_ranks_with_other_orders_differ():
    found = []
    for solver in (make("chain"), make_transposing("chain"), make("chain")):
        net = solver.net
        steps = net.arrangement.builder.backward(
            len(net.graph.nodes) - 1, 0, net.arrangement.builder.loss_diffs(), accumulate=False
        )
        found.append(digest(net.run_graph, steps, 4))
    assert found[0] == found[2] != found[1]


# -- on a GPU ----------------------------------------------------------------------------------------------------------
gpu = [pytest.mark.gpu, pytest.mark.skipif(not cuda_available(), reason="no GPU")]


@pytest.mark.parametrize("net", [pytest.param(net, marks=gpu) for net in NETS])
def test_on_a_gpu(net):
    options = {"last": None, "device": get_device("cuda")}
    for size in (1, 2):
        expected = train(make_transposing(net, iter_size=size, **options))
        for lms in (None, LMSConfig(threshold_kb=1)):
            solver = make(net, lms=lms, iter_size=size, **options)
            assert train(solver) == expected
            solver.close()
            solver.runtime.close()


@pytest.mark.gpu
@pytest.mark.skipif(not cuda_available(), reason="no GPU")
def test_arrays_of_a_gpu():
    text = nets._DATA + nets.conv("c", "data", 8) + nets.conv("d", "c", 16) + nets.head("d")
    solver = make(text, last=None, device=get_device("cuda"))
    solver.step(2)
    blob = solver.net.params["d"][0]
    expected = blob.read_data().copy()
    array = blob.gpu_data
    assert array.shape == (16, 8, 3, 3) and array.strides == (4 * 72, 4, 4 * 24, 4 * 8)
    assert (array.get() == expected).all()
