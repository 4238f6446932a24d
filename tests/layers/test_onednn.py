"""Convolutions and a net with oneDNN: the values and gradients of our own kernels, to rounding."""

from __future__ import annotations

import numpy as np
import pytest

from pycaffe_lms.backend.cpu import CpuDevice
from pycaffe_lms.formats.prototxt.parser import parse_net
from pycaffe_lms.net.net import Net
from pycaffe_lms.net.tuning import Tuning
from pycaffe_lms.ops import load_ops
from pycaffe_lms.ops.cpu.onednn import conv

from .all_cases import as_params, runnable_cases
from .harness import HostArrays

CONVOLUTIONS = [(n, c) for n, c in runnable_cases() if c.type in ("Convolution", "NdConvolution", "Deconvolution")]


class Libraries(HostArrays):
    """The CPU's libraries, as nets have them."""

    def __init__(self):
        super().__init__()
        self.ops = load_ops("cpu").use_libraries()


@pytest.mark.parametrize("case", as_params(CONVOLUTIONS))
def test_a_layer_computes_what_it_does_in_double(case, onednn):
    results = []
    for dtype, device in ((np.float64, HostArrays()), (np.float32, Libraries())):
        rng = np.random.default_rng(case.seed)
        bench = case.bench(dtype, device)
        bench.params = [np.abs(p) + 0.25 for p in bench.params]
        tops = bench.forward(case.make_bottoms(rng))
        bottom_diffs, param_diffs = bench.backward([rng.normal(size=t.shape) for t in tops])
        results.append([*tops, *bottom_diffs, *param_diffs])
    for want, got in zip(*results, strict=True):
        scale = max(1.0, float(np.abs(want).max())) if want.size else 1.0
        np.testing.assert_allclose(got, want, rtol=0, atol=5e-6 * scale)


NET = """
layer { name: "data" type: "Input" top: "data" input_param { shape { dim: 6 dim: 3 dim: 19 dim: 17 } } }
layer { name: "label" type: "Input" top: "label" input_param { shape { dim: 6 } } }
layer { name: "conv1" type: "Convolution" bottom: "data" top: "conv1"
  convolution_param { num_output: 16 kernel_size: 5 stride: 2 weight_filler { type: "xavier" } } }
layer { name: "relu1" type: "ReLU" bottom: "conv1" top: "conv1" }
layer { name: "conv2" type: "Convolution" bottom: "conv1" top: "conv2"
  convolution_param { num_output: 32 kernel_size: 3 pad: 1 group: 2 weight_filler { type: "xavier" } } }
layer { name: "relu2" type: "ReLU" bottom: "conv2" top: "conv2" }
layer { name: "ip" type: "InnerProduct" bottom: "conv2" top: "ip"
  inner_product_param { num_output: 40 weight_filler { type: "xavier" } } }
layer { name: "loss" type: "SoftmaxWithLoss" bottom: "ip" bottom: "label" top: "loss" }
"""


def gradients(tuning: Tuning) -> tuple[float, dict, list]:
    """Return (loss, gradients of the parameters, plans of the convolutions) of one iteration of NET."""
    net = Net(parse_net(NET).message, 0, device=CpuDevice(), seed=3, tuning=tuning)
    rng = np.random.default_rng(5)
    net.blobs["data"].data = rng.standard_normal((6, 3, 19, 17), dtype=np.float32)
    net.blobs["label"].data = rng.integers(0, 40, 6)
    for _ in range(2):  # the second time with what the first one built
        for blobs in net.params.values():
            for blob in blobs:
                blob.diff = np.zeros(blob.shape, np.float32)
        net.iteration(True, key="step")
    found = {name: [np.array(b.diff) for b in blobs] for name, blobs in net.params.items()}
    plans = [node.layer.plan for node in net.graph.nodes if hasattr(node.layer, "plan")]
    loss = float(net.loss())
    net.close()
    return loss, found, plans


@pytest.mark.parametrize("fuse", [False, True], ids=["layer by layer", "fused"])
def test_a_net_s_gradients_are_those_of_our_own_kernels(fuse, onednn, monkeypatch):
    loss, found, plans = gradients(Tuning(fuse=fuse))
    assert all(isinstance(plan, conv.OneDnnPlan) for plan in plans) and len(plans) == 2
    monkeypatch.setattr(conv, "load", lambda: None)
    same, expected, plans = gradients(Tuning(fuse=fuse))
    assert not any(isinstance(plan, conv.OneDnnPlan) for plan in plans)
    assert loss == pytest.approx(same, rel=1e-5)
    for name, values in expected.items():
        for got, want in zip(found[name], values, strict=True):
            assert np.abs(want).max() > 0
            np.testing.assert_allclose(got, want, rtol=0, atol=2e-5 * np.abs(want).max())
