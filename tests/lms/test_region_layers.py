"""Layers that resize, unpool and pool regions, and BatchNorm with a scale, in one net: the same training with Large
Model Support and without."""

from __future__ import annotations

import numpy as np
import pytest

from pycaffe_lms.backend import get_device
from pycaffe_lms.backend.sim.device import SimDevice
from pycaffe_lms.lms.config import LMSConfig

from . import nets


def _layer(kind, name, bottoms, tops="", more=""):
    lines = "".join(f' bottom: "{b}"' for b in bottoms.split()) + "".join(
        f' top: "{t}"' for t in (tops or name).split()
    )
    return f'layer {{ name: "{name}" type: "{kind}"{lines} {more} }}\n'


_SCALED = "batch_norm_param { scale_bias: true scale_filler { value: 0.5 } }"

NET = (
    nets._DATA
    + _layer(
        "DummyData",
        "rois",
        "",
        more='dummy_data_param { shape { dim: 4 dim: 5 } data_filler { type: "uniform" max: 3.9 } }',
    )
    + nets.conv("conv1", "data", 6)
    + _layer("BatchNorm", "norm", "conv1", "conv1", _SCALED)  # the overwritten value is read by its backward
    + _layer("ReLU", "relu", "conv1", "conv1")
    + _layer("Pooling", "pool", "conv1", "pool mask", "pooling_param { kernel_size: 3 stride: 2 }")
    + nets.conv("conv2", "pool", 6)
    + _layer("Upsample", "unpool", "conv2 mask", more="upsample_param { scale: 2 }")
    + _layer("Interp", "small", "unpool", more="interp_param { shrink_factor: 2 pad_end: -1 }")
    + _layer("Upsample", "blocks", "small", more="upsample_param { scale_h: 1 scale_w: 2 }")
    + _layer("Interp", "large", "blocks conv1")
    + _layer("Eltwise", "sum", "large conv1 unpool")
    + _layer("BatchNorm", "norm2", "sum", "norm2", _SCALED)
    + _layer("ROIPooling", "most", "norm2 rois", more="roi_pooling_param { pooled_h: 3 pooled_w: 3 spatial_scale: 3 }")
    + nets.conv("conv3", "norm2", 54, 1)
    + _layer(
        "PSROIPooling",
        "mean",
        "conv3 rois",
        more="psroi_pooling_param { output_dim: 6 group_size: 3 spatial_scale: 3 }",
    )
    + _layer("Eltwise", "regions", "most mean")
    + nets.head("regions")
)


@pytest.fixture(autouse=True)
def the_net(monkeypatch):
    monkeypatch.setitem(nets.NETS, "regions", NET)


def _train(device=None, lms=None):
    return nets.train(nets.make_solver("regions", device, lms), 3)


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


def test_every_parameter_learns():
    solver = nets.make_solver("regions", get_device("cpu"))
    solver.step(1)
    for name in ("conv1", "conv2", "conv3"):
        assert all(np.abs(blob.read_diff()).max() > 0 for blob in solver.net.params[name])
    for name in ("norm", "norm2"):
        blobs = solver.net.params[name]
        assert not np.allclose(blobs[3].read_data(), 0.5) and np.abs(blobs[4].read_data()).max() > 0
        assert blobs[2].read_data() == 1
