"""Check that a device draws the first values of parameters that a CPU draws."""

from __future__ import annotations

import numpy as np
import pytest

from pycaffe_lms.backend import cuda, get_device
from pycaffe_lms.backend.sim.device import SimDevice
from pycaffe_lms.net import first_values
from pycaffe_lms.net.first_values import draw_on
from pycaffe_lms.ops import load_ops
from pycaffe_lms.random import CaffeRandom

from .nets import make_net

BLOCK = first_values._BLOCK
NET = """
layer { name: "x" type: "Input" top: "x" input_param { shape { dim: 1 dim: 1030 } } }
layer { name: "msra" type: "InnerProduct" bottom: "x" top: "a"
  inner_product_param { num_output: 1026 weight_filler { type: "msra" } } }
layer { name: "sparse" type: "InnerProduct" bottom: "x" top: "b" inner_product_param {
  num_output: 1021 weight_filler { type: "gaussian" std: 0.3 mean: 2 sparse: 100 } bias_filler { type: "xavier" } } }
"""


@pytest.mark.parametrize("size", [1, 4 * BLOCK, 3 * BLOCK + 7, 9 * BLOCK + 2])
@pytest.mark.parametrize("key", [(0, 0, 0), (2**63 + 12345, 2**40 + 7, 2**32 - 2)], ids=["zeros", "large"])
@pytest.mark.parametrize("free", [1 << 20, 24 * BLOCK])
def test_pieces_are_the_whole(monkeypatch, size, key, free):
    """Pieces of four blocks, or of three where half of the free memory has no more."""
    monkeypatch.setattr(first_values, "_PIECE", 4 * BLOCK)
    key, whole, drawn = np.array(key, np.uint64), np.empty(size, np.float32), np.empty(size, np.float32)
    load_ops("cpu").random_gaussian(whole, key, -3.0, 0.7)
    device = SimDevice(free)
    draw_on(device, drawn, key, -3.0, 0.7)
    assert drawn.tobytes() == whole.tobytes() and device.in_use() == 0


@pytest.mark.gpu
def test_a_gpu_draws_what_a_cpu_draws(monkeypatch):
    """In pieces; the sparse and xavier values behind the first ones show that the stream goes on at the same place."""
    if not cuda.available():
        pytest.skip("no GPU")
    monkeypatch.setattr(first_values, "_PIECE", 1 << 18)
    gpu, cpu = (make_net(NET, device=get_device(name), random=CaffeRandom(5)) for name in ("cuda", "cpu"))
    for name in ("msra", "sparse"):
        for ours, theirs in zip(gpu.params[name], cpu.params[name], strict=True):
            assert ours.data.tobytes() == theirs.data.tobytes()
        assert np.ptp(gpu.params[name][0].data) > 0
