"""Layers of forks that rearrange, rescale and compare, in one net: the same training with Large Model Support and
without."""

from __future__ import annotations

import numpy as np
import pytest

from pycaffe_lms.backend import get_device
from pycaffe_lms.backend.sim.device import SimDevice
from pycaffe_lms.lms.config import LMSConfig

from . import nets


def _layer(kind, name, bottoms, top="", more=""):
    lines = "".join(f' bottom: "{b}"' for b in bottoms.split())
    return f'layer {{ name: "{name}" type: "{kind}"{lines} top: "{top or name}" {more} }}\n'


_SEGNET = 'bn_param { scale_filler { type: "constant" value: 1 } }'
_EACH = 'norm_param { across_spatial: false channel_shared: false scale_filler { type: "constant" value: 2 } }'

NET = (
    nets._DATA
    + nets.conv("conv1", "data", 8)
    + _layer("BN", "bn1", "conv1", "conv1")
    + _layer("ReLU6", "relu1", "conv1", "conv1", "relu6_param { negative_slope: 0.1 }")
    + _layer("ShuffleChannel", "shuffle", "conv1", more="shuffle_channel_param { group: 2 }")
    + nets.conv("conv2", "shuffle", 8)
    + _layer("BN", "bn2", "conv2", "conv2", _SEGNET)
    + _layer("ReLU6", "relu2", "conv2", "conv2")
    + _layer("Normalize", "norm", "conv2", more=_EACH)
    + nets._pool("mean", "norm", "AVE", 12)
    + _layer("InnerProduct", "gate", "mean", more=f"inner_product_param {{ num_output: 8 {nets._FILL} }}")
    + _layer("Axpy", "sum", "gate norm shuffle")
    + _layer("Permute", "last", "sum", more="permute_param { order: 0 order: 2 order: 3 order: 1 }")
    + _layer("Permute", "same", "last", more="permute_param { order: 0 }")
    + _layer("Reorg", "reorg", "shuffle", more="reorg_param { stride: 2 }")
    + _layer("Normalize", "whole", "reorg")
    + _layer("Reshape", "flat", "whole", more="reshape_param { shape { dim: 0 dim: 12 dim: 12 dim: 8 } }")
    + _layer("SmoothL1Loss", "distance", "same flat", more="smooth_l1_loss_param { sigma: 2 } loss_weight: 0.1")
    + nets.head("sum")
)


@pytest.fixture(autouse=True)
def the_net(monkeypatch):
    monkeypatch.setitem(nets.NETS, "rearranging", NET)


def _train(device=None, lms=None):
    return nets.train(nets.make_solver("rearranging", device, lms), 3)


def test_it_trains_alike_on_both_devices():
    losses, _ = _train()
    assert len(set(losses)) == 3 and np.isfinite(losses).all()
    assert _train(get_device("cpu"))[0] == pytest.approx(losses, rel=1e-5)


@pytest.mark.parametrize("seed", range(12))
def test_lms_changes_no_bit(seed):
    device = SimDevice(64 << 20, order="random", seed=seed)
    lms = LMSConfig(threshold_kb=1, ahead=(0, 1, 32)[seed % 3])
    assert _train(device, lms) == _train()
    assert device.bytes_in > 0
