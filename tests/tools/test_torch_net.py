"""tools/bench/torch_net.py: the peer of the benchmarks computes the same loss and gradients as our net."""

from __future__ import annotations

import numpy as np
import pytest

from pycaffe_lms.formats.prototxt.parser import parse_net
from pycaffe_lms.net.net import Net

torch = pytest.importorskip("torch")

XAVIER = 'weight_filler { type: "xavier" } bias_filler { type: "uniform" min: -1 max: 1 }'
NET = f"""
layer {{ name: "data" type: "Input" top: "data" input_param {{ shape {{ dim: 3 dim: 4 dim: 13 dim: 11 }} }} }}
layer {{ name: "label" type: "Input" top: "label" input_param {{ shape {{ dim: 3 }} }} }}
layer {{ name: "a" type: "Convolution" bottom: "data" top: "a" convolution_param {{ num_output: 6 kernel_h: 3
  kernel_w: 2 stride: 2 pad: 1 group: 2 {XAVIER} }} }}
layer {{ name: "ra" type: "ReLU" bottom: "a" top: "a" }}
layer {{ name: "norm" type: "LRN" bottom: "a" top: "norm" lrn_param {{ local_size: 3 alpha: 0.5 }} }}
layer {{ name: "max" type: "Pooling" bottom: "norm" top: "max" pooling_param {{ kernel_size: 3 stride: 2 }} }}
layer {{ name: "b" type: "Convolution" bottom: "max" top: "b" convolution_param {{ num_output: 6 kernel_size: 1
  bias_term: false {XAVIER} }} }}
layer {{ name: "bn" type: "BatchNorm" bottom: "b" top: "b" batch_norm_param {{ eps: 0.01 }} }}
layer {{ name: "scale" type: "Scale" bottom: "b" top: "b" scale_param {{ bias_term: true }} }}
layer {{ name: "sum" type: "Eltwise" bottom: "max" bottom: "b" top: "sum" }}
layer {{ name: "rsum" type: "ReLU" bottom: "sum" top: "sum" }}
layer {{ name: "cat" type: "Concat" bottom: "sum" bottom: "max" top: "cat" }}
layer {{ name: "ave" type: "Pooling" bottom: "cat" top: "ave" pooling_param {{ pool: AVE kernel_size: 3 stride: 1 }} }}
layer {{ name: "side" type: "InnerProduct" bottom: "sum" top: "side" inner_product_param {{ num_output: 5 {XAVIER} }} }}
layer {{ name: "loss1" type: "SoftmaxWithLoss" bottom: "side" bottom: "label" top: "loss1" loss_weight: 0.3 }}
layer {{ name: "ip" type: "InnerProduct" bottom: "ave" top: "ip" inner_product_param {{ num_output: 5 {XAVIER} }} }}
layer {{ name: "loss2" type: "SoftmaxWithLoss" bottom: "ip" bottom: "label" top: "loss2" }}
"""


@pytest.fixture
def torch_net(script):
    return script("torch_net")


def _ours():
    net = Net(parse_net(NET).message, 0, seed=3)
    rng = np.random.default_rng(4)
    net.blobs["data"].data = rng.standard_normal(net.blobs["data"].shape)
    net.blobs["label"].data = rng.integers(0, 5, 3)
    return net


@pytest.mark.parametrize("channels_last", [False, True])
def test_loss_and_gradients_are_ours(torch_net, channels_last):
    net = _ours()
    net.iteration(True, key="test")
    params = {name: [np.array(b.data) for b in blobs] for name, blobs in net.params.items()}
    module = torch_net.TorchNet([node.layer.param for node in net.graph.nodes], params)
    data = torch.from_numpy(np.array(net.blobs["data"].data))
    if channels_last:
        module, data = (x.to(memory_format=torch.channels_last) for x in (module, data))
    loss = module(data, torch.from_numpy(np.array(net.blobs["label"].data)).long())
    loss.backward()
    assert float(loss.detach()) == pytest.approx(net.loss(), rel=1e-5)
    assert set(module.weights) == {"a", "b", "scale", "side", "ip"}
    for name, parameters in module.weights.items():
        for ours, theirs in zip(net.params[name], parameters, strict=True):
            np.testing.assert_allclose(ours.diff, theirs.grad.numpy(), rtol=1e-4, atol=1e-5)


def test_shapes_alone_make_the_same_parameters(torch_net):
    net = _ours()
    shapes = {name: [b.shape for b in blobs] for name, blobs in net.params.items()}
    module = torch_net.TorchNet([node.layer.param for node in net.graph.nodes], shapes)
    learned = sum(p.numel() for p in module.parameters())
    assert learned == sum(np.prod(p.shape) for p in net.graph.learnable if p.lr_mult)


def test_a_forward_is_one_graph(torch_net):
    """Compiled peers must not fall back to Python in the middle."""
    net = _ours()
    shapes = {name: [b.shape for b in blobs] for name, blobs in net.params.items()}
    module = torch_net.TorchNet([node.layer.param for node in net.graph.nodes], shapes)
    compiled = torch.compile(module, backend="eager", fullgraph=True)
    data, label = torch.ones(net.blobs["data"].shape), torch.zeros(3, dtype=torch.long)
    assert float(compiled(data, label).detach()) == pytest.approx(float(module(data, label).detach()))


def test_what_is_not_translated_is_named(torch_net):
    message = parse_net('layer { name: "x" type: "TanH" bottom: "data" top: "x" }').message
    with pytest.raises(NotImplementedError, match="x: layers of type TanH"):
        torch_net.TorchNet(message.layer, {})
