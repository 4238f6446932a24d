"""Operations and bytes that a step must do: by hand for single layers, by loops for convolutions."""

from __future__ import annotations

import itertools

import pytest

from pycaffe_lms.formats.prototxt.parser import parse_net
from pycaffe_lms.net.net import Net
from pycaffe_lms.net.program.costs import step_bytes, step_flops
from pycaffe_lms.net.tuning import Tuning

DATA = 'layer { name: "data" type: "Input" top: "data" input_param { shape { %s } } }\n'


def _net(shape, text):
    dims = " ".join(f"dim: {d}" for d in shape)
    message = parse_net(f"force_backward: true {DATA % dims}{text}").message
    return Net(message, 0, fill=False, tuning=Tuning(fuse=True))


def _steps(net):
    """{(layer, forward): step} of an iteration in which every top has a gradient."""
    n = len(net.graph.nodes) - 1
    steps = net.arrangement.builder.forward(0, n) + net.arrangement.builder.backward(
        n, 0, {v.diff for v in net.graph.values}, accumulate=False
    )
    return {(net.graph.nodes[s.node].name, s.forward): s for s in steps}


def _flops(net, name):
    steps = _steps(net)
    return step_flops(net.graph, steps[name, True]), step_flops(net.graph, steps[name, False])


def test_a_convolution_counts_every_product_that_loops_would_do():
    net = _net(
        (2, 4, 7, 6),
        'layer { name: "c" type: "Convolution" bottom: "data" top: "c" convolution_param { '
        "num_output: 6 kernel_h: 3 kernel_w: 2 stride: 2 pad: 1 group: 2 } }",
    )
    (top,) = (v.shape for v in net.graph.values if v.name == "c")
    macs = 0
    for _ in itertools.product(*map(range, top)):  # every output, every channel of its group, every tap
        macs += 2 * 3 * 2
    assert _flops(net, "c") == (2 * macs, 4 * macs)


def test_a_deconvolution_counts_as_the_convolution_that_it_transposes():
    net = _net(
        (2, 4, 5, 5),
        'layer { name: "d" type: "Deconvolution" bottom: "data" top: "d" convolution_param { '
        "num_output: 6 kernel_size: 4 stride: 2 group: 2 } }",
    )
    assert _flops(net, "d")[0] == 2 * (2 * 4 * 5 * 5) * (3 * 4 * 4)


@pytest.mark.parametrize("more", ["", "transpose: true"])
def test_an_inner_product(more):
    net = _net(
        (3, 4, 5),
        f'layer {{ name: "ip" type: "InnerProduct" bottom: "data" top: "ip" inner_product_param {{ '
        f"num_output: 7 {more} }} }}",
    )
    assert _flops(net, "ip") == (2 * 3 * 20 * 7, 4 * 3 * 20 * 7)


def test_an_lstm_meets_every_weight_in_every_step():
    net = _net(
        (5, 3, 8),
        'layer { name: "cont" type: "Input" top: "cont" input_param { shape { dim: 5 dim: 3 } } }\n'
        'layer { name: "x_static" type: "Input" top: "s" input_param { shape { dim: 3 dim: 6 } } }\n'
        'layer { name: "l" type: "LSTM" bottom: "data" bottom: "cont" bottom: "s" top: "l" '
        "recurrent_param { num_output: 4 } }",
    )
    assert _flops(net, "l")[0] == 2 * (15 * (16 * 8 + 16 * 4) + 3 * 16 * 6)


@pytest.mark.parametrize("data, weights, bias", list(itertools.product([False, True], repeat=3)))
def test_only_wanted_gradients_count_and_a_bias_is_no_product(data, weights, bias):
    net = _net(
        (1, 4, 6, 6),
        'layer { name: "c" type: "Convolution" bottom: "data" top: "c" convolution_param { '
        "num_output: 6 kernel_size: 3 } }",
    )
    step = _steps(net)["c", False]
    net.graph.nodes[step.node].propagate, net.graph.nodes[step.node].param_propagate = [data], [weights, bias]
    assert step_flops(net.graph, step) == (data + weights) * 2 * 6 * 4 * 4 * 36


def test_a_group_moves_less_than_its_layers():
    net = _net(
        (2, 5, 6, 6),
        'layer { name: "n" type: "BatchNorm" bottom: "data" top: "n" }\n'
        'layer { name: "s" type: "Scale" bottom: "n" top: "n" }\n'
        'layer { name: "r" type: "ReLU" bottom: "n" top: "n" }',
    )
    (group,) = net.graph.groups
    n, sizes = len(net.graph.nodes) - 1, {b: m.nbytes for b, m in net.memory.memories.items()}
    without_views, together = (net.arrangement.builder.forward(0, n, fused=fused) for fused in (False, True))
    (one,) = (s for s in together if s.group == group.group)
    moved = [sum(step_bytes(s.step, net.memory.buffers, sizes) for s in steps) for steps in (without_views, together)]
    x, c = 4 * 2 * 5 * 36, 4 * 5
    assert x * 2 <= step_bytes(one.step, net.memory.buffers, sizes) <= 2 * x + 20 * c
    assert moved[0] - moved[1] >= 2 * x  # what lies between is neither written nor read
    assert step_flops(net.graph, one) == 0


def test_layers_that_only_move_data_count_nothing():
    net = _net((2, 3, 4), 'layer { name: "r" type: "ReLU" bottom: "data" top: "r" }')
    assert _flops(net, "r") == (0, 0)


def test_bytes_are_every_array_once_and_an_updated_one_twice():
    net = _net(
        (2, 8, 6, 6),
        'layer { name: "c" type: "Convolution" bottom: "data" top: "c" convolution_param { '
        'num_output: 5 kernel_size: 3 } }\nlayer { name: "r" type: "ReLU" bottom: "c" top: "c" }',
    )
    sizes = {b: m.nbytes for b, m in net.memory.memories.items()}
    moved = {k: step_bytes(s.step, net.memory.buffers, sizes) for k, s in _steps(net).items()}
    x, y, w, b = 4 * 2 * 8 * 36, 4 * 2 * 5 * 16, 4 * 5 * 8 * 9, 4 * 5
    assert moved["c", True] == x + w + b + y
    assert moved["r", True] == 2 * y  # in place: read and written
    assert moved["r", False] == y + 2 * y
    assert moved["c", False] == x + w + y + x + w + b
